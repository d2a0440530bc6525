"""Why a model does not learn: what a trial shows, told apart and put into words.

Each function gives findings for one kind of cause. Knows trials; knows no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import Final

from pytest_remotegpu.diagnostics import batches, noise, nonfinite, trials
from pytest_remotegpu.diagnostics.verdict import Finding

__all__ = [
    "bounds",
    "contradiction",
    "dropout",
    "not_finite",
    "plateau",
    "random",
    "rate",
    "rates",
    "wiring",
]

TRIED: Final = (1e-4, 1e-3, 1e-2, 1e-1)
"""Learning rates that are tried whatever the first was; one of them suits most optimizers."""
FACTORS: Final = (0.1, 10.0, 0.01, 100.0, 1e-3, 1e3)
RISEN: Final = 1.1
"""A loss that has once been so many times its beginning has risen."""
FLAT: Final = 0.02
"""A loss whose last quarter stays within this part of its mean has come to rest."""
SETTLED: Final = 0.05
"""Part of its largest value that the gradient's norm has at most at a minimum."""


def wiring(trial: trials.Trial, is_fixed: Callable[[str], bool]) -> list[Finding]:
    """Judge what took part: of the graph, the optimizer, each parameter.

    :param is_fixed: whether a parameter need not learn.
    """
    if trial.detached:
        return [
            Finding(
                "detached-loss",
                "the loss has no graph to go back through, so nothing can learn from it",
                "look for .item(), .detach(), .data, float(), numpy, torch.no_grad() or a new "
                "torch.tensor(...) on the way to the loss",
            )
        ]

    def named(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if not is_fixed(name))

    there = {*trial.names} - {*trial.frozen}
    missing = tuple(n for n in trial.names if n in there and n not in trial.largest)
    zero = tuple(name for name, norm in trial.largest.items() if norm == 0 and name in trial.names)
    used = {*missing, *zero}
    still = () if trial.stepped == 0 else tuple(n for n in trial.unchanged if n not in used)
    frozen = named(trial.frozen) if there else trial.frozen  # with all of them nothing can run
    found = [
        _frozen(frozen, len(trial.names)),
        _outside(named(trial.outside), len(trial.names)),
        _unregistered(named(trial.unregistered)),
        _missing(named(missing), len(trial.names)) if trial.losses else None,
        _zero(named(zero), len(trial.names)),
        _unstepped(trial) if trial.losses and not trial.stepped else None,
        _still(named(tuple(n for n in still if n not in trial.short)), trial),
        _rounded(named(tuple(n for n in still if n in trial.short)), trial),
        _uncleared(trial),
    ]
    return [finding for finding in found if finding is not None]


def _some(names: tuple[str, ...], of: int) -> str:
    return f"{len(names)} of {of} parameters" if len(names) < of else f"all {of} parameters"


def _frozen(names: tuple[str, ...], of: int) -> Finding | None:
    if not of:
        return Finding(
            "frozen-parameters",
            "the model has no parameters",
            "see that its modules are attributes or in a ModuleList, not in a plain list",
        )
    if not names:
        return None
    return Finding(
        "frozen-parameters",
        f"{_some(names, of)} can't learn: requires_grad is False",
        "call requires_grad_(True) on them, or name them in fixed=[...] if they are meant to stay",
        names,
    )


def _outside(names: tuple[str, ...], of: int) -> Finding | None:
    if not names:
        return None
    return Finding(
        "not-in-optimizer",
        f"{_some(names, of)} are in no group of the optimizer",
        "make the optimizer of model.parameters(), after the last module was added or replaced and "
        "after the model was wrapped or moved; or name them in fixed=[...]",
        names,
    )


def _unregistered(names: tuple[str, ...]) -> Finding | None:
    if not names:
        return None
    return Finding(
        "unregistered-parameters",
        f"{len(names)} parameters got gradients and are not among the model's: their modules lie "
        "in a plain list or dictionary",
        "put them into nn.ModuleList, ModuleDict, ParameterList or ParameterDict; else no "
        "optimizer, no .to(device) and no state dictionary knows them",
        names,
    )


def _missing(names: tuple[str, ...], of: int) -> Finding | None:
    if not names:
        return None
    return Finding(
        "missing-gradient",
        f"{_some(names, of)} got no gradient in any step: the way back from the loss does not "
        "reach them",
        "see that forward uses them, and look for .detach(), .data, .item(), argmax, numpy or "
        "no_grad() between them and the loss; name them in fixed=[...] if the sample does "
        "not use them",
        names,
    )


def _zero(names: tuple[str, ...], of: int) -> Finding | None:
    if not names:
        return None
    return Finding(
        "zero-gradients",
        f"the gradient of {_some(names, of)} was exactly zero in every step",
        "look for a saturated or dead activation (ReLU of negative values only; inputs far larger "
        "than 1 do it), a multiplication by zero, a mask that hides everything, or "
        "rounding to whole numbers behind them",
        names,
    )


def _unstepped(trial: trials.Trial) -> Finding:
    return Finding(
        "optimizer-not-stepped",
        f"the optimizer made no step in {len(trial.losses)} training steps",
        "call optimizer.step() after backward(), on the optimizer that train_step was given; with "
        "a GradScaler, call scaler.step(optimizer) and see that it does not skip every step",
    )


def _rounded(names: tuple[str, ...], trial: trials.Trial) -> Finding | None:
    if not names or trial.bad_step is not None:
        return None
    return Finding(
        "steps-rounded-away",
        f"{_some(names, len(trial.names))} of 16 bits or fewer got gradients and did not change in "
        f"{trial.stepped} steps of the optimizer: a step of less than 1/256 to 1/2048 of a value "
        "is lost when it is added",
        "keep parameters in float32 and compute in low precision (autocast, or a policy of FSDP), "
        "or use an optimizer with float32 copies or stochastic rounding",
        names,
    )


def _still(names: tuple[str, ...], trial: trials.Trial) -> Finding | None:
    if not names or trial.bad_step is not None:
        return None
    return Finding(
        "unchanged-parameters",
        f"{_some(names, len(trial.names))} got gradients and did not change in {trial.stepped} "
        "steps of the optimizer",
        "look for a learning rate of 0 in their group or from a scheduler, and for "
        "zero_grad() between backward() and step()",
        names,
    )


def _uncleared(trial: trials.Trial) -> Finding | None:
    if not trial.uncleared:
        return None
    return Finding(
        "gradients-not-cleared",
        "gradients that the optimizer had used were still there when the next ones were added",
        "call optimizer.zero_grad() once for each step of the optimizer",
    )


def not_finite(recipe: trials.Recipe) -> Finding:
    """Say where the first value that is no number came from."""
    words, where = nonfinite.locate(recipe)
    return Finding(
        "not-finite",
        words,
        "look there for a division by zero, log or sqrt of what may be 0, an overflow of float16, "
        "a row that is masked as a whole, or weights that are not initialised",
        where,
    )


def bounds(initial: float, below: float | None) -> list[Finding]:
    """Judge whether the bounds can be asked of such a loss."""
    if initial <= 0:
        return [
            Finding(
                "negative-loss",
                f"the loss begins at {initial:.4g}; a loss that is 0 or less has no ratio to halve",
                "give a loss that is positive and has its best value at 0",
            )
        ]
    if below is not None and initial < below:
        return [
            Finding(
                "nothing-to-learn",
                f"the loss begins at {initial:.4g}, below the bound already",
                "take a sample that the model does not know, or weights that are not trained on it",
            )
        ]
    return []


def random(recipe: trials.Recipe) -> list[Finding]:
    """Judge whether the loss moves by itself."""
    source = noise.source(recipe)
    if source == noise.TARGETS:
        return [
            Finding(
                "shuffled-targets",
                "with the weights held still the loss changes from step to step while every "
                "module gives the same output: the targets are other ones each time",
                "see where targets are shuffled, drawn or augmented apart from their inputs",
            )
        ]
    if source == noise.WHOLE:
        return [
            Finding(
                "random-loss",
                "with the weights held still and in evaluation mode the same batch gives other "
                "losses from step to step",
                "look for random masks, sampling, augmentation, or F.dropout(...) without "
                "training=self.training in the model or the loss",
            )
        ]
    return []


def contradiction(recipe: trials.Recipe, final: float) -> list[Finding]:
    """Judge whether the targets of a batch contradict each other."""
    found = batches.contradiction(recipe.batch(0))
    if found is None:
        return []
    kind = "entropy in nats" if found.classes else "squared deviation"
    return [
        Finding(
            "contradicting-targets",
            f"{len(found.rows)} samples have the same inputs and different targets; no model gets "
            f"below their mean {kind}, {found.floor:.4g} (the final loss is {final:.4g})",
            "see whether targets were shuffled apart from their inputs, or inputs cut, padded or "
            "masked until they are alike",
            tuple(f"sample {row}" for row in found.rows),
        )
    ]


def rates(trial: trials.Trial) -> list[float]:
    """Give other learning rates to try, the likelier direction and the nearest first.

    A loss that has risen speaks for lower ones.
    """
    lr = trial.lr
    known = lr > 0 and math.isfinite(lr)
    others = {float(f"{lr * factor:.3g}") for factor in FACTORS if known} | {*TRIED}
    near = math.log10(lr) if known else -3.0
    down = trial.bad_step is not None or max(trial.losses) > RISEN * trial.losses[0]
    return sorted(
        (rate for rate in others if not math.isclose(rate, lr, rel_tol=0.5)),
        key=lambda rate: ((math.log10(rate) < near) != down, abs(math.log10(rate) - near)),
    )


def rate(lr: float, works: float, final: float) -> Finding:
    """Name a learning rate for which another one works."""
    high = works < lr
    return Finding(
        f"learning-rate-too-{'high' if high else 'low'}",
        f"with a learning rate of {works:.3g} instead of {lr:.3g} the same run comes down to "
        f"{final:.4g}",
        f"{'lower' if high else 'raise'} it to about {works:.3g}"
        + (", warm it up, or clip gradients" if high else ", and see what a scheduler makes of it"),
    )


def dropout(final: float) -> Finding:
    """Name dropout, where the run without it works."""
    return Finding(
        "dropout-noise",
        f"without dropout the same run comes down to {final:.4g}: the model can learn the sample, "
        "and the noise hides it",
        "give this check a model with dropout 0, and lower it if training stays slow",
    )


def plateau(trial: trials.Trial) -> list[Finding]:
    """Say what is left to say of a run for which no cause was found."""
    last = trial.losses[-max(len(trial.losses) // 4, 2) :]
    rests = max(last) - min(last) <= FLAT * abs(fmean(last))
    strongest = max(trial.norms)
    if rests and trial.norms[-1] <= SETTLED * strongest:
        return [
            Finding(
                "loss-floor",
                f"the loss rests at {fmean(last):.4g} and its gradient has shrunk to "
                f"{trial.norms[-1] / strongest:.2g} of its largest: this is a minimum",
                "look for what holds the loss up: label smoothing, a penalty added to it, targets "
                "that the inputs do not decide, a model too small, or an activation behind which "
                "the targets can't be reached",
            )
        ]
    return [
        Finding(
            "does-not-learn",
            "no learning rate that was tried does better, gradients reach every parameter, and the "
            "loss is the same for the same weights",
            "look at the curve: a rising one speaks for a sign or a backward of your own, a "
            "falling one for more steps; at weight decay; then at the loss function, with targets "
            "known by hand",
        )
    ]
