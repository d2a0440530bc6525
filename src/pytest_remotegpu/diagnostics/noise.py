"""Whether a loss stands still while the weights do, and if not, what is random about it.

Knows trials, and no bounds.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import batches, trials

if TYPE_CHECKING:
    import torch

__all__ = ["CALM", "DATA", "MODEL", "TARGETS", "WHOLE", "source"]

STEPS: Final = 6
"""Losses that are compared; six labels in a row fall the same way by chance once in many runs."""
SPREAD: Final = 1e-3
"""Part of the mean loss by which the losses may differ, far above what rounding does."""

CALM: Final = "calm"
"""The loss stands still."""
DATA: Final = "data"
"""It moves because each step has other inputs."""
MODEL: Final = "model"
"""It moves, and stands still in evaluation mode without dropout."""
TARGETS: Final = "targets"
"""It moves while all modules give the same: what they are compared with moves."""
WHOLE: Final = "whole"
"""It moves, in evaluation mode too, and so do the outputs of modules."""


def source(recipe: trials.Recipe) -> str:
    """Train some steps from the same weights each, as made and then without dropout.

    :return: one of this module's words.
    """
    short = replace(recipe, steps=min(STEPS, recipe.steps))
    if _still(trials.run(short, watch=_Holder().hold).losses):
        return CALM
    prints = [_print(short.batch(step)) for step in range(short.steps)]
    ears = _Ears()
    with ears.stack:
        losses = trials.run(short, calm=True, watch=ears.listen).losses
    if _still(losses):
        return MODEL
    if ears.same:
        return TARGETS
    return WHOLE if len(set(prints)) == 1 else DATA


def _still(losses: list[float]) -> bool:
    mean = math.fsum(losses) / len(losses) if losses else 0.0
    return not losses or max(losses) - min(losses) <= SPREAD * abs(mean) + 1e-9


def _print(value: Any) -> tuple[float, ...]:
    """Give some numbers that tell one set of tensors from another."""
    found: list[float] = []
    for _, tensor in batches.tensors(value):
        real = tensor.resolve_conj().view(-1).abs() if tensor.is_complex() else tensor
        flat = real.detach().reshape(-1).double().cpu()
        ramp = flat.new_ones(len(flat)).cumsum(0)
        found += [float(flat.sum()), float((flat * ramp.sin()).sum())]
    return tuple(found)


class _Holder:
    """Puts weights and buffers back to where they began before each step.

    A learning rate of 0 would not do: an optimizer may have none, or use it in another way.
    """

    def __init__(self) -> None:
        self.began: list[torch.Tensor] = []

    def hold(self, model: torch.nn.Module, step: int) -> None:
        """Look at the first step, put back at each other."""
        import torch  # noqa: PLC0415 -- late

        tensors = [*model.parameters(), *model.buffers()]
        if step == 0:
            self.began = [tensor.detach().clone() for tensor in tensors]
        with torch.no_grad():
            for tensor, began in zip(tensors, self.began, strict=True):
                tensor.copy_(began)


class _Ears(_Holder):
    """Hears besides what modules without children give, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.steps: list[list[tuple[float, ...]]] = []

    def listen(self, model: torch.nn.Module, step: int) -> None:
        """Begin a step."""
        self.hold(model, step)
        self.steps.append([])
        for module in model.modules() if step == 0 else ():
            if not list(module.children()):
                self.stack.callback(module.register_forward_hook(self._heard).remove)

    def _heard(self, _module: object, _inputs: object, output: Any) -> None:
        self.steps[-1].append(tuple(round(number, 4) for number in _print(output)))

    @property
    def same(self) -> bool:
        """Whether all steps gave the same."""
        return bool(self.steps[0]) and all(step == self.steps[0] for step in self.steps)
