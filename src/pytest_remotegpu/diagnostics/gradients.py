"""Gradients of a model by name, and which of several explanations fits them.

Knows tensors, and no check: what an explanation means is said by those who give it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics.widening import doubled

if TYPE_CHECKING:
    import torch

__all__ = [
    "BOUNDS",
    "Gradients",
    "added",
    "distances",
    "explained",
    "largest_error",
    "of",
    "plain_name",
    "scaled_to",
    "taken",
]

Gradients = Mapping[str, "torch.Tensor"]
"""A gradient for each parameter that requires one; zeros where none came."""

BOUNDS: Final = {"float64": 1e-7, "float32": 1e-4, "bfloat16": 1.6e-2, "float16": 2e-3}
"""How far what the same formula gives by other code may be off, relative to its norm and by dtype;
:func:`compile_parity` has the source."""

SMALL: Final = 1e-3
"""Part of all gradients' norm; what is smaller is measured by it, since it may be rounding."""

TINY: Final = 1e-30


def taken(model: torch.nn.Module) -> Gradients:
    """Copy the gradients that a model holds, whole: shards are gathered."""
    import torch  # noqa: PLC0415 -- late

    found: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        value = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        found[plain_name(name)] = whole.detach().clone()
    return found


def of(model: torch.nn.Module, run: Callable[[], Any]) -> Gradients:
    """Give the gradients that ``run`` leaves in a model which had none."""
    for parameter in model.parameters():
        parameter.grad = None
    run()
    return taken(model)


def plain_name(name: str) -> str:
    """Take away what wrappers (DDP, ``torch.compile``, checkpointing) put into a name."""
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module."):
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def added(total: Gradients, weight: float, more: Gradients) -> Gradients:
    """Add gradients with a weight to a sum, which is empty at first; in doubles."""
    if not total:
        return {name: doubled(gradient) * weight for name, gradient in more.items()}
    return {name: value + weight * doubled(more[name]) for name, value in total.items()}


def scaled_to(own: Gradients, gradients: Gradients) -> Gradients:
    """Stretch gradients to those of other parameters, each by the factor that comes closest.

    One number is a multiple of any other and says nothing: those get the middle of all factors.
    """
    factors = {
        name: float((doubled(gradients[name]) * doubled(part)).sum() / (doubled(part) ** 2).sum())
        for name, part in own.items()
        if part.numel() > 1 and bool(part.any())
    }
    usual = median(factors.values()) if factors else 1.0
    return {name: part * factors.get(name, usual) for name, part in own.items()}


def explained(
    gradients: Gradients, candidates: Mapping[str, tuple[float, Gradients]], rtol: float
) -> dict[str, str]:
    """Find for each parameter the first candidate that its gradient equals.

    Equal is what is no further away than ``rtol`` times the candidate's norm.

    :param candidates: gradients and what they are multiplied by, by a word; the right one first.
    :return: that word by parameter, and an empty one where none fits.
    """
    floors = {word: SMALL * factor * _size(base) for word, (factor, base) in candidates.items()}

    def fits(name: str, word: str) -> bool:
        factor, base = candidates[word]
        return _error(gradients[name], base[name] * factor, floors[word]) <= rtol

    return {name: next((w for w in candidates if fits(name, w)), "") for name in gradients}


def largest_error(gradients: Gradients, right: Gradients) -> float:
    """Give the largest distance of a parameter's gradient from the right one, relative to it."""
    return max(distances(gradients, right).values(), default=0.0)


def distances(gradients: Gradients, right: Gradients) -> dict[str, float]:
    """Give each gradient's distance from the right one, relative to it."""
    floor = SMALL * _size(right)
    return {name: _error(gradients[name], right[name], floor) for name in gradients}


def _size(gradients: Gradients) -> float:
    return math.sqrt(sum(float(doubled(gradient).norm()) ** 2 for gradient in gradients.values()))


def _error(one: torch.Tensor, right: torch.Tensor, floor: float) -> float:
    """Give the distance of two tensors relative to the norm of the second, or to the floor."""
    distance = float((doubled(one) - doubled(right)).norm())
    return distance / max(float(doubled(right).norm()), floor, TINY) if distance else 0.0
