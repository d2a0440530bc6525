"""Can the model learn one sample by heart? The check that comes first, and what is in the way.

Knows the bounds and the words; running, watching and locating are done below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pytest_remotegpu.diagnostics import batches, causes, meeting, trials
from pytest_remotegpu.diagnostics.asfound import as_found
from pytest_remotegpu.diagnostics.curves import Curve
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["SMALL_BATCH", "overfit"]

ENDS: Final = 5
"""Losses at each end of a run whose mean is compared: one alone may be a lucky draw."""
LEARNING_RATE: Final = 1e-3
"""Of AdamW, in which a model of any usual size learns one sample."""
UNCHANGED: Final = {"unchanged-parameters"}, {"steps-rounded-away"}
"""Findings behind which a learning rate may stand that is far too low."""
CLIP: Final = 1.0
"""The norm that gradients are clipped to, as is usual for language models."""


class Goal(TypedDict):
    """The bounds of :func:`overfit`, to be spread into its arguments."""

    steps: int
    below: float | None
    ratio: float


SMALL_BATCH: Final[Goal] = {"steps": 50, "below": None, "ratio": 0.3}
"""What a batch of three samples has to come to: ``overfit(make_model, batch, **SMALL_BATCH)``."""


def overfit(
    make_model: Callable[[], torch.nn.Module],
    batch: Any,
    *,
    loss: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None,
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer] | None = None,
    train_step: Callable[[torch.nn.Module, torch.optim.Optimizer, Any], Any] | None = None,
    fixed: Sequence[str] = (),
    steps: int = 100,
    below: float | None = 0.1,
    ratio: float = 0.5,
    lr: float | None = None,
    clip: float | None = CLIP,
    seed: int = 0,
) -> Verdict:
    """Train on one sample again and again: a model that can't learn it by heart learns nothing.

    Passed is a run whose final loss is below ``below`` and below ``ratio`` times the initial one,
    and in which every parameter took part. Initial and final are means of the first and of the last
    5 losses. The numbers by default are customary ones for one sample: 100 steps of AdamW with
    1e-3 and gradients clipped to 1.0, to below 0.1 and half of the start. For a batch of three
    samples :data:`SMALL_BATCH` has 50 steps to below 0.3 of the start.

    Where it fails, the same is tried anew: at other learning rates, without dropout, with the
    weights held still; at most fourteen runs. Nothing of the caller's is changed, see the package's
    first lines; each model of the factory is given back as it was made.

    In ranks that train a model together (DDP, FSDP), all call this; the losses are the means over
    the ranks, and the verdicts name the same.

    :param make_model: makes the model, on its device; called for each run.
    :param batch: what the model learns: a tensor, a tuple of arguments, a mapping of keyword
        arguments; or a function that is given the step, from 0 on, and gives the step's batch.
    :param loss: gives the loss of ``(model, batch)``, a tensor of one number that is not negative.
        By default the model gives it itself: its output, the output's ``loss``, or the first of a
        tuple.
    :param make_optimizer: makes a new optimizer for a model; AdamW by default.
    :param train_step: your own step, called with ``(model, optimizer, batch)`` in place of
        ``zero_grad``, ``backward``, clipping and ``step``; returns the loss, a tensor or a float.
    :param fixed: patterns of names of parameters that need not learn, ``encoder.*`` for instance.
    :param steps: how many, 10 at least. :param below: a loss; ``None`` asks for the ratio only.
    :param ratio: between 0 and 1. :param lr: of the default optimizer, 1e-3 where it is not given.
    :param clip: the norm that gradients are clipped to, ``None`` for no clipping; not used with
        ``train_step``. :param seed: of the random numbers before each model is made and run.
    :return: the verdict with the losses as a curve. Its codes: ``detached-loss``,
        ``frozen-parameters``, ``not-in-optimizer``, ``unregistered-parameters``,
        ``missing-gradient``, ``zero-gradients``,
        ``optimizer-not-stepped``, ``unchanged-parameters``, ``steps-rounded-away``,
        ``gradients-not-cleared``,
        ``not-finite``, ``learning-rate-too-high``, ``learning-rate-too-low``, ``shuffled-targets``,
        ``contradicting-targets``, ``random-loss``, ``dropout-noise``, ``loss-floor``,
        ``nothing-to-learn``, ``negative-loss``, ``does-not-learn``.
    :raises ValueError: where an argument can't be meant, or the loss is no single number.
    """
    if steps < 2 * ENDS:
        raise ValueError(f"steps is {steps}; the means of both ends need {2 * ENDS} at least")
    if isinstance(fixed, str):
        raise ValueError(f"fixed is the text {fixed!r}; give a list of patterns: [{fixed!r}]")  # noqa: TRY004 -- as all arguments that can't be meant
    if make_optimizer is not None and lr is not None:
        raise ValueError("lr is for the default optimizer; set it in make_optimizer")
    if train_step is not None and loss is not None:
        raise ValueError("train_step computes the loss itself; give loss or train_step")
    recipe = trials.Recipe(
        make_model=make_model,
        batch=batch if callable(batch) else lambda _: batch,
        loss=loss or batches.loss_of,
        train_step=train_step,
        make_optimizer=make_optimizer or _adamw(LEARNING_RATE if lr is None else lr),
        clip=clip,
        steps=steps,
        seed=seed,
    )
    return _Check(recipe, below, ratio, fixed).verdict()


def _adamw(lr: float) -> Callable[[torch.nn.Module], torch.optim.Optimizer]:
    def make(model: torch.nn.Module) -> torch.optim.Optimizer:
        import torch  # noqa: PLC0415 -- late

        return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)

    return make


class _Check:
    """One check: the run that counts, and the runs that explain it."""

    def __init__(
        self, recipe: trials.Recipe, below: float | None, ratio: float, fixed: Sequence[str]
    ) -> None:
        self.recipe, self.below, self.ratio, self.fixed = recipe, below, ratio, fixed
        self.spread = False
        self.series: dict[str, tuple[float, ...]] = {}

    def verdict(self) -> Verdict:
        """Run, and judge."""
        with as_found():
            first = trials.run(self.recipe)
            self.series[f"lr {first.lr:.3g}"] = tuple(first.losses)
            findings = self._judge(first)
        curves = (
            Curve("overfit-loss", self.series),
            Curve("overfit-gradient", {"all parameters": tuple(first.norms)}, y="gradient norm"),
        )
        return Verdict("overfit", self._measured(first), tuple(findings), curves)

    def _judge(self, first: trials.Trial) -> list[Finding]:
        self.spread = first.spread
        wiring = self._together(causes.wiring(first, self._is_fixed))
        if self._reached(first):
            return wiring
        if first.bad_step is not None:
            return [
                *self._other_rates(first, downward=True),
                *self._together([causes.not_finite(self.recipe)]),
                *wiring,
            ]
        if {finding.code for finding in wiring} in UNCHANGED:
            return [*self._other_rates(first), *wiring]
        if wiring:
            return wiring
        return (
            causes.bounds(_initial(first), self.below)
            or self._together(causes.random(self.recipe))
            or self._together(causes.contradiction(self.recipe, _final(first)))
            or self._other_rates(first)
            or self._without_dropout()
            or self._together(causes.plateau(first))
        )

    def _together(self, findings: list[Finding]) -> list[Finding]:
        """Give what any rank has found to all, where they train together: they go on alike."""
        if not self.spread:
            return findings
        everyones = [finding for found in meeting.gather(findings) for finding in found]
        return list({finding.code: finding for finding in reversed(everyones)}.values())[::-1]

    def _is_fixed(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.fixed)

    def _reached(self, trial: trials.Trial) -> bool:
        if len(trial.losses) < self.recipe.steps or trial.bad_step is not None:
            return False
        initial, final = _initial(trial), _final(trial)
        return (
            initial > 0
            and final < self.ratio * initial
            and (self.below is None or final < self.below)
        )

    def _other_rates(self, first: trials.Trial, *, downward: bool = False) -> list[Finding]:
        """Try other rates, the nearest ones first, until one reaches the goal."""
        for rate in causes.rates(first):
            if downward and rate > first.lr:
                continue
            trial = trials.run(self.recipe, lr=rate)
            self.series[f"lr {rate:.3g}"] = tuple(trial.losses)
            if self._reached(trial):
                return [causes.rate(first.lr, rate, _final(trial))]
        return []

    def _without_dropout(self) -> list[Finding]:
        calm = trials.run(self.recipe, calm=True)
        self.series["without dropout"] = tuple(calm.losses)
        return [causes.dropout(_final(calm))] if self._reached(calm) else []

    def _measured(self, trial: trials.Trial) -> tuple[Measure, ...]:
        initial, final = _initial(trial), _final(trial)
        bound = f"< {self.below:g}" if self.below is not None else ""
        return (
            Measure("initial loss", initial),
            Measure("final loss", final, bound=bound),
            Measure(
                "final / initial",
                final / initial if initial else math.nan,
                bound=f"< {self.ratio:g}",
            ),
            Measure("learning rate", trial.lr),
            Measure("steps", len(trial.losses), bound=str(self.recipe.steps)),
            Measure("steps of the optimizer", trial.stepped),
            Measure("parameters", len(trial.names)),
            Measure("parameters with a gradient", len(trial.largest)),
        )


def _initial(trial: trials.Trial) -> float:
    return fmean(trial.losses[:ENDS]) if trial.losses else math.nan


def _final(trial: trials.Trial) -> float:
    return fmean(trial.losses[-ENDS:]) if trial.losses else math.nan
