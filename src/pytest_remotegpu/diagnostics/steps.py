"""Some steps of training, written down: losses, the first step's gradients, parameters at the end.

Knows models, plain and sharded, and no check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_remotegpu.diagnostics import batches, gradients, shards, tracing, trials

if TYPE_CHECKING:
    import torch

__all__ = ["Run", "Steps", "train", "watched"]


@dataclass(frozen=True, slots=True)
class Steps:
    """What is done in each step.

    :ivar loss: gives the loss of ``(model, batch)``.
    :ivar clip: the norm that gradients are clipped to.
    """

    loss: Callable[[torch.nn.Module, Any], torch.Tensor]
    clip: float | None


@dataclass(slots=True)
class Run:
    """What came of it.

    :ivar gradients: of the first step, before they were clipped. :ivar dtypes: that modules gave
        their outputs in. :ivar operations: of torch, in the first step, with shapes and dtypes.
    """

    losses: list[float] = field(default_factory=list)
    gradients: gradients.Gradients = field(default_factory=dict)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    dtypes: set[torch.dtype] = field(default_factory=set)
    operations: tuple[tuple[str, str], ...] = ()


def train(
    steps: Steps,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    parts: Sequence[Any],
    *,
    first: bool = False,
    trace: bool = False,
    last: bool = False,
    step: bool = True,
) -> Run:
    """Make a step for each batch.

    :param first: whether the gradients of the first step are wanted, and what it computes in.
    :param trace: whether the operations of the first step are. :param last: whether the parameters
        after the last are. :param step: whether the optimizer steps at all.
    """
    run = Run()

    def begin(batch: Any) -> None:
        run.losses.append(_backward(steps, model, optimizer, batch))

    for place, batch in enumerate(parts):
        with watched(model, run.dtypes) if first and place == 0 else nullcontext():
            if trace and place == 0:
                run.operations = tracing.trace(partial(begin, batch)).operations
            else:
                begin(batch)
        if place == 0 and first:
            run.gradients = gradients.taken(model)
        if step:
            _step(steps, model, optimizer)
    if last:
        run.parameters = shards.parameters(model)
    return run


def _backward(
    steps: Steps, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any
) -> float:
    optimizer.zero_grad()
    for parameter in model.parameters():  # one that the optimizer does not know, too
        parameter.grad = None
    loss = steps.loss(model, batch)
    value = trials.number(loss)
    loss.backward()
    return value


def _step(steps: Steps, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    import torch  # noqa: PLC0415 -- late

    if steps.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), steps.clip)
    optimizer.step()


def watched(model: torch.nn.Module, dtypes: set[torch.dtype]) -> ExitStack:
    """Note the dtypes of what modules give, as long as the stack is open."""

    def gave(_module: object, _inputs: object, output: Any) -> None:
        dtypes.update(t.dtype for _, t in batches.tensors(output) if t.is_floating_point())

    stack = ExitStack()
    for module in model.modules():
        stack.callback(module.register_forward_hook(gave).remove)
    return stack
