"""Checks for training code: each gives a verdict that says what was found and what to do next.

In a test::

    from pytest_remotegpu.diagnostics import overfit

    def test_learns(artifacts_dir):
        verdict = overfit(make_model, sample)
        verdict.save(artifacts_dir)
        verdict.require()

This is a library beside the plugin: it imports nothing else of this package, no pytest, torch only
where a check runs, and matplotlib only where it is installed and a curve is drawn.

What holds for each check:

* it never raises for what it looks for: that is in the verdict, and :meth:`Verdict.require` raises;
  an error in the user's own code, or an argument that can't be meant, passes through as it is;
* nothing of the user's is changed: models come from a factory or are put back (values, gradients,
  modes), and random numbers, gradient mode, default dtype and deterministic switches are as before;
* it begins with ``seed`` and gives the same verdict for the same code, seed and machine;
* the source of each default bound stands in the check's docstring.
"""

from __future__ import annotations

from pytest_remotegpu.diagnostics.accumulating import accumulation_matches
from pytest_remotegpu.diagnostics.agreement import losses_agree
from pytest_remotegpu.diagnostics.attending import attention_parity
from pytest_remotegpu.diagnostics.compiling import compile_parity
from pytest_remotegpu.diagnostics.curves import Curve
from pytest_remotegpu.diagnostics.kernels import kernels_parity
from pytest_remotegpu.diagnostics.overfitting import SMALL_BATCH, overfit
from pytest_remotegpu.diagnostics.scaling import judge_loss_scale, loss_scale
from pytest_remotegpu.diagnostics.sharding import fsdp_matches
from pytest_remotegpu.diagnostics.synchronising import gradients_synchronised
from pytest_remotegpu.diagnostics.verdict import DiagnosisError, Finding, Measure, Verdict

__all__ = [
    "SMALL_BATCH",
    "Curve",
    "DiagnosisError",
    "Finding",
    "Measure",
    "Verdict",
    "accumulation_matches",
    "attention_parity",
    "compile_parity",
    "fsdp_matches",
    "gradients_synchronised",
    "judge_loss_scale",
    "kernels_parity",
    "loss_scale",
    "losses_agree",
    "overfit",
]
