"""Gradients of a model by name, and which of several explanations fits them.

Knows tensors, and no check: what an explanation means is said by those who give it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

__all__ = ["Gradients", "combined", "explained", "largest_error", "of", "scaled_to", "taken"]

Gradients = Mapping[str, "torch.Tensor"]
"""A gradient for each parameter that requires one; zeros where none came."""

SMALL: Final = 1e-3
"""Part of all gradients' norm; what is smaller is measured by it, since it may be rounding."""


def taken(model: torch.nn.Module) -> Gradients:
    """Copy the gradients that a model holds, whole, as doubles; shards are gathered."""
    import torch  # noqa: PLC0415 -- late

    found: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        value = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        found[plain_name(name)] = whole.detach().double().clone()
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


def combined(parts: list[tuple[float, Gradients]]) -> Gradients:
    """Add gradients up, each with its weight."""
    names = parts[0][1]
    return {name: sum(weight * part[name] for weight, part in parts) for name in names}


def scaled_to(own: Gradients, gradients: Gradients) -> Gradients:
    """Stretch gradients to those of other parameters, each by the factor that comes closest.

    One number is a multiple of any other and says nothing: those get the middle of all factors.
    """
    factors = {
        name: float((gradients[name] * part).sum() / (part * part).sum())
        for name, part in own.items()
        if part.numel() > 1 and bool(part.any())
    }
    usual = median(factors.values()) if factors else 1.0
    return {name: part * factors.get(name, usual) for name, part in own.items()}


def explained(
    gradients: Gradients, candidates: Mapping[str, Gradients], rtol: float
) -> dict[str, str]:
    """Find for each parameter the first candidate that its gradient equals.

    Equal is what is no further away than ``rtol`` times the candidate's norm.

    :param candidates: by a word for them, the right one first.
    :return: that word by parameter, and an empty one where none fits.
    """
    floors = {word: SMALL * _size(whole) for word, whole in candidates.items()}
    return {
        name: next(
            (w for w, c in candidates.items() if _is_near(gradient, c[name], rtol, floors[w])), ""
        )
        for name, gradient in gradients.items()
    }


def largest_error(gradients: Gradients, right: Gradients) -> float:
    """Give the largest distance of a parameter's gradient from the right one, relative to it."""
    floor = max(SMALL * _size(right), 1e-30)
    return max(
        (
            float((gradients[name] - right[name]).norm()) / max(float(right[name].norm()), floor)
            for name in gradients
        ),
        default=0.0,
    )


def _size(gradients: Gradients) -> float:
    return float(sum(float(gradient.norm()) ** 2 for gradient in gradients.values()) ** 0.5)


def _is_near(one: torch.Tensor, other: torch.Tensor, rtol: float, floor: float) -> bool:
    return float((one - other).norm()) <= rtol * max(float(other.norm()), floor)
