"""What a user's factories give, or a word on what they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["model_of", "optimizer_of"]


def model_of(make_model: Callable[[], Any]) -> torch.nn.Module:
    """Call a factory of models.

    :raises TypeError: where it is a model itself, or gives none.
    :raises Exception: what it raises.
    """
    import torch  # noqa: PLC0415 -- late

    if isinstance(make_model, torch.nn.Module):
        kind = type(make_model).__name__
        raise TypeError(
            f"make_model is a model, a {kind}; a check makes several, so give it a function that "
            f"makes one: lambda: {kind}(...)"
        )
    model = make_model()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"make_model has given {_shown(model)}, and has to return a torch.nn.Module"
        )
    return model


def optimizer_of(
    make_optimizer: Callable[[torch.nn.Module], Any], model: torch.nn.Module
) -> torch.optim.Optimizer:
    """Call a factory of optimizers.

    :raises TypeError: where it gives none.
    :raises Exception: what it raises.
    """
    optimizer = make_optimizer(model)
    if not (hasattr(optimizer, "step") and hasattr(optimizer, "param_groups")):
        raise TypeError(
            f"make_optimizer has given {_shown(optimizer)}, and has to return an optimizer, "
            "which has step() and param_groups"
        )
    return optimizer


def _shown(given: Any) -> str:
    return "None" if given is None else f"a {type(given).__name__}"
