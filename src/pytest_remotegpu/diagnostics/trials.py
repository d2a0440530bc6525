"""One training run of some steps on one batch, watched: losses, gradients, steps, changes.

A trial starts from a model of the factory and leaves it as it found it. What it sees is recorded
and not judged: knows no check, no bounds and no findings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import meeting
from pytest_remotegpu.diagnostics.asfound import model_as_found, seed_all, without_dropout
from pytest_remotegpu.diagnostics.making import model_of, optimizer_of
from pytest_remotegpu.diagnostics.unregistered import hidden
from pytest_remotegpu.diagnostics.widening import magnitude

if TYPE_CHECKING:
    import torch

__all__ = ["Recipe", "Trial", "Watch", "run"]

SHORT: Final = 2
"""Bytes of a dtype in which small steps are lost."""
CLEARED: Final = 4
"""Steps in which it is watched whether gradients were cleared: each look waits for the device."""

Watch = Callable[["torch.nn.Module", int], Any]
"""Called with the model before each step."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train; :func:`overfit` explains each."""

    make_model: Callable[[], torch.nn.Module]
    batch: Callable[[int], Any]
    loss: Callable[[torch.nn.Module, Any], Any]
    train_step: Callable[[torch.nn.Module, torch.optim.Optimizer, Any], Any] | None
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer]
    clip: float | None
    steps: int
    seed: int


@dataclass(slots=True)
class Trial:
    """What one run has shown.

    :ivar lr: the highest learning rate of the optimizer's groups; ``nan`` where none was made.
    :ivar losses: one a step; the run ends with the first that is not finite.
    :ivar norms: the norm of all gradients together, one a step.
    :ivar largest: the largest norm of each parameter's gradient, only of those that got one.
    :ivar frozen: parameters that require no gradient. :ivar outside: those that require one and
        are in no group of the optimizer. :ivar unchanged: those in it whose values are as before.
    :ivar unregistered: those that got a gradient and are neither the model's nor the optimizer's.
    :ivar short: parameters of 16 bits or fewer.
    :ivar stepped: how often the optimizer stepped. :ivar uncleared: steps whose gradients were
        added to those of the step before, although the optimizer had used these.
    :ivar detached: whether the loss had no graph to go back through.
    :ivar spread: whether ranks trained the model together; the losses are their means then.
    """

    lr: float = math.nan
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    largest: dict[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    unregistered: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    stepped: int = 0
    uncleared: int = 0
    detached: bool = False
    spread: bool = False

    @property
    def bad_step(self) -> int | None:
        """The step whose loss was not finite, counted from 0."""
        return len(self.losses) - 1 if self.losses and not math.isfinite(self.losses[-1]) else None


class DetachedError(Exception):
    """Raised where the loss has no graph; does not leave this file."""


def run(
    recipe: Recipe, lr: float | None = None, *, calm: bool = False, watch: Watch | None = None
) -> Trial:
    """Train a new model.

    :param lr: the highest learning rate of a group, to which all are scaled; ``None``: as made.
    :param calm: without dropout: in evaluation mode, with all probabilities 0.
    :param watch: called before each step.
    :raises ValueError: where the optimizer is no new one, or a loss is no single number.
    """
    seed_all(recipe.seed)
    model = model_of(recipe.make_model)
    with model_as_found(model), ExitStack() as stack:
        seed_all(recipe.seed)
        if calm:
            model.eval()
            stack.enter_context(without_dropout(model))
        named = {name: p for name, p in model.named_parameters() if p.numel()}
        trial = Trial(names=tuple(named))
        trial.spread = meeting.is_spread(model)
        trial.short = tuple(name for name, p in named.items() if p.element_size() <= SHORT)
        trial.frozen = tuple(name for name, p in named.items() if not p.requires_grad)
        if len(trial.frozen) == len(named):
            return trial
        optimizer = _optimizer(recipe, model, lr, trial)
        before = {name: p.detach().clone() for name, p in named.items()}
        _train(recipe, model, optimizer, trial, stack, watch)
        missing = {*trial.frozen, *trial.outside}
        trial.unchanged = tuple(
            name for name, p in named.items() if name not in missing and _same(before[name], p)
        )
        return trial


def number(value: Any) -> float:
    """Read a loss.

    :raises ValueError: where it is no single number.
    """
    size = value.numel() if hasattr(value, "numel") else 1
    if size != 1:
        raise ValueError(
            f"the loss has {size} values, shape {tuple(value.shape)}; reduce it to one number, "
            "with .mean() for instance"
        )
    try:
        return float(value.detach() if hasattr(value, "detach") else value)
    except TypeError as error:
        raise ValueError(
            f"the loss is {type(value).__name__}, not a tensor of one number; give loss= a "
            "function of (model, batch) that returns one, or let train_step return it"
        ) from error


def _same(before: torch.Tensor, after: torch.Tensor) -> bool:
    return bool(_whole((before == after.detach()).all()))


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Give a value that is spread over ranks to this one."""
    whole: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


def _optimizer(
    recipe: Recipe, model: torch.nn.Module, lr: float | None, trial: Trial
) -> torch.optim.Optimizer:
    optimizer = optimizer_of(recipe.make_optimizer, model)
    if optimizer.state:
        raise ValueError(
            "make_optimizer gave an optimizer that has made steps already; it has to make a new "
            "one for the model at each call"
        )
    inside = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trial.outside = tuple(
        name
        for name, p in model.named_parameters()
        if p.requires_grad and p.numel() and id(p) not in inside
    )
    groups = [group for group in optimizer.param_groups if group.get("lr") is not None]
    highest = max((float(group["lr"]) for group in groups), default=math.nan)
    for group in groups if lr is not None else ():
        group["lr"] = group["lr"] * lr / highest if highest else lr
    trial.lr = highest if lr is None or not groups else lr
    return optimizer


class _Gradients:
    """Hears of each gradient that arrives at a parameter, and keeps what it hears on the device."""

    def __init__(self, model: torch.nn.Module, stack: ExitStack) -> None:
        self.step = 0
        self.used: set[str] = set()
        """Parameters whose gradients a step of the optimizer has used, and none has come since."""
        self.uncleared: set[int] = set()
        self.here: dict[str, torch.Tensor] = {}
        """The norm of each gradient of this step, or of what this rank has of it."""
        self.layouts: dict[str, Any] = {}
        """How those are spread that no rank has whole."""
        self.largest: dict[str, torch.Tensor] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self._hear(name, parameter, stack)

    def _hear(self, name: str, parameter: torch.nn.Parameter, stack: ExitStack) -> None:
        def came(_: torch.Tensor) -> None:
            old, used = parameter.grad, name in self.used
            self.used.discard(name)
            if used and old is not None and self.step < CLEARED and bool(old.any()):
                self.uncleared.add(self.step)

        def added(whole: torch.Tensor) -> None:
            if whole.grad is not None:
                self._take(name, whole.grad)

        stack.callback(parameter.register_hook(came).remove)
        stack.callback(parameter.register_post_accumulate_grad_hook(added).remove)

    def look(self, model: torch.nn.Module) -> None:
        """Take in, before the optimizer steps, gradients that came by another way, as FSDP's do."""
        for name, parameter in model.named_parameters():
            if name not in self.here and parameter.grad is not None:
                self._take(name, parameter.grad)

    def _take(self, name: str, gradient: torch.Tensor) -> None:
        places: Any = getattr(gradient, "placements", ())
        spread = bool(places) and not any(place.is_partial() for place in places)
        here: Any = gradient.detach()
        if spread:
            self.layouts[name] = here.device_mesh, places
        self.here[name] = magnitude(here.to_local()) if spread else _whole(magnitude(here))

    def end_step(self) -> torch.Tensor | float:
        """Give the norm of all gradients of the step."""
        import torch  # noqa: PLC0415 -- late

        self.here |= _whole_norms(self.here, self.layouts)
        for name, norm in self.here.items():
            last = self.largest.get(name)
            self.largest[name] = norm if last is None else torch.maximum(last, norm)
        total = torch.stack(list(self.here.values())).norm() if self.here else math.nan
        self.here, self.layouts, self.step = {}, {}, self.step + 1
        return total


def _whole_norms(here: dict[str, torch.Tensor], layouts: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Give the norms of spread tensors of which each rank knows that of its part.

    All that are spread alike take one exchange together, since each one waits for all ranks.
    """
    groups: dict[Any, list[str]] = {}
    for name in sorted(layouts):
        groups.setdefault(layouts[name], []).append(name)
    found: dict[str, torch.Tensor] = {}
    for (mesh, places), names in groups.items():
        import torch  # noqa: PLC0415 -- late
        from torch.distributed import tensor  # noqa: PLC0415 -- late

        squares = torch.stack([here[name].double() ** 2 for name in names])
        sums = [place if place.is_replicate() else tensor.Partial() for place in places]
        whole = tensor.DTensor.from_local(squares, mesh, sums).full_tensor().sqrt()
        found |= dict(zip(names, whole.float(), strict=True))
    return found


def _train(
    recipe: Recipe,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    trial: Trial,
    stack: ExitStack,
    watch: Watch | None,
) -> None:
    gradients = _Gradients(model, stack)
    heard = _unregistered(model, optimizer, stack)
    norms: list[Any] = []
    device = next(model.parameters()).device

    def stepped(*_: object) -> None:
        trial.stepped += 1
        gradients.used.update({*trial.names} - {*trial.outside})

    stack.callback(optimizer.register_step_pre_hook(lambda *_: gradients.look(model)).remove)
    stack.callback(optimizer.register_step_post_hook(stepped).remove)
    for step in range(recipe.steps):
        if watch is not None:
            watch(model, step)
        try:
            loss = _step(recipe, model, optimizer, recipe.batch(step))
        except DetachedError:
            trial.detached = True
            norms.append(gradients.end_step())
            break
        norms.append(gradients.end_step())
        trial.losses.append(meeting.mean(loss, device) if trial.spread else loss)
        if trial.bad_step is not None:
            break
    trial.unregistered = tuple(heard)
    trial.norms = [float(norm) for norm in norms]
    trial.largest = {name: float(norm) for name, norm in gradients.largest.items()}
    trial.uncleared = len(gradients.uncleared)


def _unregistered(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, stack: ExitStack
) -> dict[str, None]:
    """Give what will hold the names of parameters that get a gradient and that nobody knows of."""
    inside = {id(p) for group in optimizer.param_groups for p in group["params"]}
    heard: dict[str, None] = {}
    for name, parameter in hidden(model).items():
        if id(parameter) not in inside:
            hook = parameter.register_hook(lambda _, name=name: heard.setdefault(name))
            stack.callback(hook.remove)
    return heard


def _step(
    recipe: Recipe, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any
) -> float:
    import torch  # noqa: PLC0415 -- late

    if recipe.train_step is not None:
        try:
            return number(recipe.train_step(model, optimizer, batch))
        except RuntimeError as error:
            if "does not require grad and does not have a grad_fn" in str(error):
                raise DetachedError from error
            raise
    optimizer.zero_grad()
    loss = recipe.loss(model, batch)
    value = number(loss)
    if getattr(loss, "grad_fn", None) is None:
        raise DetachedError
    loss.backward()
    if recipe.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    return value
