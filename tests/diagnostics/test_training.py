"""``examples/training`` on pretend cards and plainly; and its tests fail where they should.

Faults are planted in copies of it, several where they do not meet in one test, and the tests that
they are for have to fail and name them. Each of these tests passes without.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from diagnostics.training import EXAMPLE, LIMIT, Fault, run

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ranks run on Linux only"),
    pytest.mark.timeout(LIMIT + 20),
]
CPU = "--remote=local:cpu"
ON_CARDS_ONLY = {
    "test_data_parallel.py::test_both_cards_work",
    "test_data_parallel.py::test_loss_falls",
    "test_kernels.py::test_compiled_model[inductor]",
    "test_kernels.py::test_liger_kernels[float32]",
    "test_kernels.py::test_liger_kernels[bfloat16]",
}


def test_all_pass_on_pretend_cards(tmp_path: Path) -> None:
    done = run(tmp_path, CPU, "--remote-artifacts=artifacts")
    assert done.status == 0, done.output
    assert done.having("SKIPPED") == ON_CARDS_ONLY
    assert "DataParallel only hands the batch on where there are no two CUDA cards" in done.output
    assert "inductor is tried on CUDA cards" in done.output
    assert len(done.having("PASSED")) == len(done.outcomes) - len(ON_CARDS_ONLY)
    files = {path.name for path in EXAMPLE.glob("test_*.py")}
    assert {name.partition("::")[0] for name in done.outcomes} == files
    assert "no GPU was used" in done.output
    curves = list((tmp_path / "training" / "artifacts").rglob("overfit-loss.csv"))
    assert len(curves) == 7


def test_without_a_card_all_are_skipped_and_say_why(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.status == 0, done.output
    assert set(done.outcomes.values()) == {"SKIPPED"}
    reasons = [line for line in done.output.splitlines() if line.startswith("SKIPPED [")]
    assert reasons
    assert all("this host shows 0; run it with --remote=" in line for line in reasons), reasons


DETACHED = Fault("training.py", "model(ids).float()", "model(ids).detach().float()")
FROZEN = Fault(
    "llama.py",
    "return Llama(Shape(tied=tied), attend).to(device)",
    "made = Llama(Shape(tied=tied), attend).to(device)\n"
    "        made.layers[0].key.requires_grad_(False)\n"
    "        return made",
)
MEAN_OF_PARTS = Fault("training.py", "* count(batch) / total).back", "/ len(micro_batches)).back")
NO_MOMENTS = Fault(
    "training.py", ', "optimizer": moments}\n    checkpoint.load', "}\n    checkpoint.load"
)
NO_MASK = Fault("llama.py", "is_causal=True", "is_causal=False")
NO_SCALING = Fault("llama.py", " * query.shape[-1] ** -0.5", "")
SAME_KERNEL = Fault("llama.py", "self.attend = shape, attend", "self.attend = shape, fused")
PRINTING = Fault(
    "llama.py", "return self.head(", "print(float(x.sum()))\n        return self.head("
)
NOT_EXCHANGED = Fault("training.py", "        distributed.all_reduce(parameter.grad)\n", "")
NOT_DIVIDED = Fault("training.py", "        parameter.grad /= ranks()\n", "")
NO_DDP = Fault("training.py", "return DistributedDataParallel(model)", "return model")
WRONG_DIVISOR = Fault("training.py", "count(batch) * ranks() / total", "count(batch) / total")
NO_SHARE = Fault("training.py", "mean_loss(model, batch) * share(batch)", "mean_loss(model, batch)")
SAME_DATA = Fault("sentences.py", "[rank::ranks]", "[::ranks]")
LEFT_BEHIND = Fault("groups.py", "        distributed.destroy_process_group()\n", "        pass\n")
LOW_PRECISION = Fault(
    "test_fsdp.py", "sharded(make(gpu_device), BFLOAT16)", "sharded(make(gpu_device).bfloat16())"
)

SCALE = "test_two_gpus.py::test_loss_is_scaled"
DDP, FSDP = (
    f"test_two_gpus.py::test_gradients_are_synchronised[{kind}]" for kind in ("ddp", "fsdp")
)
OWN = "test_two_gpus.py::test_own_exchange_synchronises"
LEARNS = "test_two_gpus.py::test_loss_falls_as_in_one_process"
SAMPLE, BATCH = "test_overfits_one_sample", "test_overfits_three_samples"
ATTENTION = "test_kernels.py::test_attention_of_the_model"
SAME_LOSS = "test_kernels.py::test_loss_is_that_of_attention_written_out"
NO_FINDING = set[str]()
"""Of a test that fails by an assertion of its own."""


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        pytest.param(
            (FROZEN, MEAN_OF_PARTS, NO_SCALING, PRINTING),
            {
                f"test_one_gpu.py::{SAMPLE}[tied]": {"frozen-parameters"},
                f"test_one_gpu.py::{BATCH}": {"frozen-parameters"},
                "test_one_gpu.py::test_accumulated_gradients_are_those_of_one_batch": {
                    "mean-of-means"
                },
                f"{ATTENTION}[float32]": {"missing-scaling"},
                SAME_LOSS: {"losses-differ"},
                "test_kernels.py::test_compiled_model[aot_eager]": {"graph-break"},
            },
            id="frozen",
        ),
        pytest.param(
            (DETACHED, NO_MASK, SAME_KERNEL),
            {
                f"test_one_gpu.py::{SAMPLE}[untied]": {"detached-loss"},
                f"test_one_gpu.py::{BATCH}": {"detached-loss"},
                f"{ATTENTION}[bfloat16]": {"mask-ignored"},
                SAME_LOSS: {"same-code"},
            },
            id="detached",
        ),
        pytest.param(
            (NOT_EXCHANGED, NO_DDP, LEFT_BEHIND, LOW_PRECISION),
            {
                DDP: {"dropped-all-reduce"},
                OWN: {"dropped-all-reduce"},
                f"{LEARNS}[ddp]": NO_FINDING,
                "test_groups.py::test_own_group_is_gone_after_its_block[1]": NO_FINDING,
                "test_fsdp.py::test_computes_in_bfloat16_and_keeps_float32": NO_FINDING,
            },
            id="not-exchanged",
        ),
        pytest.param(
            (WRONG_DIVISOR,),
            {name: {"divided-twice"} for name in (SCALE, DDP, FSDP, OWN)},
            id="wrong-divisor",
        ),
        pytest.param(
            (NO_SHARE, NOT_DIVIDED),
            {
                SCALE: {"mean-of-means"},
                DDP: {"mean-of-means"},
                OWN: {"sum-instead-of-mean"},
            },
            id="no-share",
        ),
        pytest.param(
            (SAME_DATA, FROZEN),
            {
                SCALE: {"same-data"},
                DDP: {"same-data"},
                f"test_fsdp.py::{BATCH}[2-ranks]": {"frozen-parameters"},
            },
            id="same-data",
        ),
    ],
)
def test_each_fault_is_named(
    faults: tuple[Fault, ...], expected: dict[str, set[str]], tmp_path: Path
) -> None:
    done = run(tmp_path, CPU, *expected, faults=faults)
    assert done.status == 1, done.output
    assert done.failures.keys() == expected.keys(), done.output
    assert {name: done.codes(name) for name in expected} == expected, done.output


def test_a_checkpoint_without_the_moments_does_not_go_on(tmp_path: Path) -> None:
    name = "test_one_gpu.py::test_goes_on_from_a_checkpoint"
    done = run(tmp_path, CPU, name, faults=(NO_MOMENTS,))
    assert done.failures.keys() == {name}
    assert "== approx(" in done.failures[name]
