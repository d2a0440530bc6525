"""Two runs that should be one: how far apart their losses and parameters are, and may be.

How much the order of sums makes is measured by a third run, which adds up in another order. Knows
runs, and no check.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_remotegpu.diagnostics import gradients
from pytest_remotegpu.diagnostics.verdict import Finding
from pytest_remotegpu.diagnostics.widening import doubled

if TYPE_CHECKING:
    import torch

    from pytest_remotegpu.diagnostics.steps import Run

__all__ = ["LOW", "Bounds", "Comparison", "bounds", "compare", "lowest", "not_finite", "rests"]

LOW: Final = ("bfloat16", "float16")
ORDER: Final = 4
"""Times what another order of sums makes, by which two right runs may differ."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far apart two runs may be, each relative.

    :ivar loss: to the loss. :ivar gradient: to a gradient's norm. :ivar moved: of a parameter, to
        how far training has moved it.
    """

    loss: float
    gradient: float
    moved: float


BOUNDS: Final = {
    "float64": Bounds(1e-9, 1e-8, 1e-6),
    "float32": Bounds(1e-5, 1e-4, 1e-3),
    "bfloat16": Bounds(1.6e-2, 5e-2, 0.15),
    "float16": Bounds(2e-3, 1e-2, 0.05),
}
"""By the dtype that is computed in; :func:`fsdp_matches` has the source."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs have shown.

    :ivar bounds: those that held, with what the order of sums makes. :ivar loss: the largest
        relative distance of two losses. :ivar gradient, moved: likewise of a gradient, a parameter.
    """

    bounds: Bounds
    loss: float
    gradient: float
    moved: float
    findings: tuple[Finding, ...]


def lowest(dtypes: Iterable[torch.dtype]) -> str:
    """Name the smallest dtype that is computed in; where nothing is known, float32."""
    names = [str(dtype).removeprefix("torch.") for dtype in sorted(dtypes, key=_size)]
    return next((name for name in names if name in BOUNDS), "float32")


def _size(dtype: torch.dtype) -> tuple[int, str]:
    return dtype.itemsize, str(dtype)


def bounds(dtype: str, slack: float) -> Bounds:
    """Give the bounds of a dtype, all multiplied by a number."""
    plain = BOUNDS[dtype]
    return Bounds(plain.loss * slack, plain.gradient * slack, plain.moved * slack)


def compare(
    run: Run,
    right: Run,
    twin: Run,
    start: Mapping[str, torch.Tensor],
    given: Bounds,
    *,
    who: str = "the ranks",
    code: str = "",
) -> Comparison:
    """Compare a run with the right one.

    :param twin: the right one once more, added up in another order.
    :param start: the parameters that all began with.
    :param who: whose run it is. :param code: of what is found, in place of one for losses and one
        for parameters.
    """
    losses = [_relative(one, other) for one, other in zip(run.losses, right.losses, strict=True)]
    order = [_relative(one, other) for one, other in zip(twin.losses, right.losses, strict=True)]
    apart = _moved_apart(run.parameters, right.parameters, start)
    noise = _moved_apart(twin.parameters, right.parameters, start)
    held = Bounds(
        max(given.loss, ORDER * _finite(order)),
        max(
            given.gradient,
            ORDER * _finite([gradients.largest_error(twin.gradients, right.gradients)]),
        ),
        max(given.moved, ORDER * _finite(noise.values())),
    )
    bad = [place for place, distance in enumerate(losses) if not distance <= held.loss]
    far = {
        name: distance
        for name, distance in apart.items()
        if not distance <= max(given.moved, ORDER * _finite([noise[name]]))
    }
    found = []
    if bad:
        found.append(_losses_differ(run, right, bad[0], who, code))
    if far and not (bad and code):
        found.append(_parameters_differ(far, who, code))
    return Comparison(
        held,
        _largest(losses),
        gradients.largest_error(run.gradients, right.gradients) if run.gradients else 0.0,
        _largest(apart.values()),
        tuple(found),
    )


def _relative(one: float, right: float) -> float:
    """Give the distance of two numbers, relative to the second; two alike have none."""
    if one == right:
        return 0.0
    distance = abs(one - right) / max(abs(right), 1e-30)
    return distance if math.isfinite(distance) else math.inf


def _finite(numbers: Iterable[float]) -> float:
    """Give the largest number, of which NaN and infinity are none: they are no measure."""
    return max((n for n in numbers if math.isfinite(n)), default=0.0)


def _largest(numbers: Iterable[float]) -> float:
    return max((math.inf if math.isnan(n) else n for n in numbers), default=0.0)


def _moved_apart(
    one: gradients.Gradients, right: gradients.Gradients, start: gradients.Gradients
) -> dict[str, float]:
    """Give how far parameters are from the right ones, relative to how far these have moved."""
    moved = {name: doubled(right[name]) - doubled(start[name]) for name in right if name in one}
    return gradients.distances(
        {name: doubled(one[name]) - doubled(start[name]) for name in moved}, moved
    )


def _losses_differ(run: Run, right: Run, step: int, who: str, code: str) -> Finding:
    return Finding(
        code or "losses-differ",
        f"{who} have another loss than they should, from step {step} on: "
        f"{run.losses[step]:.6g} in place of {right.losses[step]:.6g}",
        "where it is step 0, the way there differs: look at what is computed from shards, at "
        "buffers and dtypes; where it is a later one, look at the gradients and the optimizer",
    )


def _parameters_differ(far: Mapping[str, float], who: str, code: str) -> Finding:
    worst = max(far.values())
    return Finding(
        code or "parameters-differ",
        f"{who} have other parameters after training: {len(far)} are off by up to {worst:.3g} of "
        "the way that they should have moved",
        "look at the optimizer: groups with another rate or decay, clipping that takes each "
        "shard's norm for the whole one, state that is shared",
        tuple(far),
    )


def not_finite(run: Run, right: Run) -> Finding:
    """Say in which step the ranks' loss is not finite."""
    step = next(n for n, loss in enumerate(run.losses) if not math.isfinite(loss))
    alone = "is" if all(math.isfinite(loss) for loss in right.losses) else "is not"
    return Finding(
        "not-finite",
        f"the ranks' loss is not finite in step {step}; the unsharded model's {alone}",
        "run overfit over the same model on each rank: it finds the module, the parameter or the "
        "part of the batch",
    )


def rests(run: Run, right: Run, start: Mapping[str, torch.Tensor]) -> Finding | None:
    """Find that training changes nothing for the better."""
    if run.losses[-1] < run.losses[0]:
        return None
    if all(bool((run.parameters[name] == value).all()) for name, value in start.items()):
        return Finding(
            "unchanged-parameters",
            f"{len(run.losses)} steps have changed no parameter",
            "look at the learning rate, at the optimizer's groups, and at what is frozen",
        )
    falls = "falls" if right.losses[-1] < right.losses[0] else "does not fall either"
    return Finding(
        "loss-does-not-fall",
        f"the loss is {run.losses[-1]:.6g} after {len(run.losses)} steps on the same batches, and "
        f"was {run.losses[0]:.6g}; the unsharded model's {falls}",
        "run overfit over the model: it tells the learning rate from other causes",
    )
