"""Where the first value that is no number came from: batch, weights, a module, or a gradient.

Trains once more with eyes open, since looking at each module's output makes a run slow. Knows
trials, and no bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pytest_remotegpu.diagnostics import batches, trials

if TYPE_CHECKING:
    import torch

__all__ = ["locate"]


def locate(recipe: trials.Recipe) -> tuple[str, tuple[str, ...]]:
    """Train until something is not finite.

    :return: words that say what was, in which step, and the names of what it concerns: parts of
        the batch, parameters or a module. The names are empty where only the loss was not finite.
    """
    eyes = _Eyes(recipe)
    with ExitStack() as eyes.stack:
        trials.run(recipe, watch=eyes.look)
    return eyes.first or (
        "the loss is not finite, and what it is made of is: look into the loss function itself",
        (),
    )


class _Eyes:
    """Looks at everything before, in and after a step; remembers the first thing."""

    def __init__(self, recipe: trials.Recipe) -> None:
        self.recipe = recipe
        self.first: tuple[str, tuple[str, ...]] | None = None
        self.stack = ExitStack()
        self.step = 0
        self.gradients: tuple[str, ...] = ()

    def look(self, model: torch.nn.Module, step: int) -> None:
        """Look before a step, and hear of what happens in it."""
        if step == 0:
            self._listen(model)
        bad = _bad(batches.tensors(self.recipe.batch(step)))
        if bad:
            self._found(f"the batch itself is not finite, at step {step}", bad)
        weights = _bad([*model.named_parameters(), *model.named_buffers()])
        if self.gradients and weights:
            at = f"at step {self.step}, while the loss was still finite"
            self._found(f"the gradient is not finite {at}", self.gradients)
        elif weights:
            when = "as made" if step == 0 else f"after the optimizer's step {self.step}"
            self._found(f"parameters or buffers are not finite {when}", weights)
        self.step, self.gradients = step, ()

    def _listen(self, model: torch.nn.Module) -> None:
        for name, module in model.named_modules():
            self._hear_module(name or type(model).__name__, module)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self._hear_gradient(name, parameter)

    def _hear_module(self, name: str, module: torch.nn.Module) -> None:
        def gave(_: object, inputs: Any, output: Any) -> None:
            if not self.first and _bad(batches.tensors(_open(output), "output")):
                kind, was = type(module).__name__, "its input was finite"
                if _bad(batches.tensors(inputs, "input")):
                    was = "its input was not, already: look at what is computed right before it"
                self._found(
                    f"the output of {kind} is not finite at step {self.step}; {was}", (name,)
                )

        self.stack.callback(module.register_forward_hook(gave).remove)

    def _hear_gradient(self, name: str, parameter: torch.nn.Parameter) -> None:
        def came(gradient: torch.Tensor) -> None:
            if _bad([(name, gradient)]):
                self.gradients = (*self.gradients, name)

        self.stack.callback(parameter.register_hook(came).remove)

    def _found(self, words: str, where: tuple[str, ...]) -> None:
        self.first = self.first or (words, where)


def _open(output: Any) -> Any:
    """Give the parts of an output object that is a mapping in all but its type."""
    if isinstance(output, Mapping | list | tuple) or hasattr(output, "dtype"):
        return output
    return getattr(output, "__dict__", output)


def _bad(
    named: Iterator[tuple[str, torch.Tensor]] | list[tuple[str, torch.Tensor]],
) -> tuple[str, ...]:
    import torch  # noqa: PLC0415 -- late

    return tuple(
        name
        for name, tensor in named
        if (tensor.is_floating_point() or tensor.is_complex())
        and not bool(torch.isfinite(tensor).all())
    )
