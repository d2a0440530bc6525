"""What the user's modules give a suite of checks: model, batch, loss and the rest, made ready.

Imports them, finds what was named or what has a usual name, and calls the factory once. Knows no
check.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import asfound, batches, looking, peeking
from pytest_remotegpu.diagnostics.asking import Asked
from pytest_remotegpu.diagnostics.faults import NotMeantError, user_code

if TYPE_CHECKING:
    import torch

__all__ = ["Given", "load"]

ROWS: Final = 8
"""Rows that are taken from a data set."""
OUTPUTS: Final = ("output", "outputs", "logits", "pred", "preds", "prediction", "predictions")
"""Names of the first parameter of a function that is given the model's output."""
NO_LOSS: Final = """\
no loss: {module} has none of {names}, and {why}. Write there, for instance,

    def loss(model, batch):
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(model(inputs), labels)

or let the model's output have the loss, as .loss; or name one with --loss=MODULE:NAME"""


@dataclass(frozen=True, slots=True)
class Given:
    """What is checked.

    :ivar make_model: makes it, on its device. :ivar draw: gives a batch there, each time anew
        where it is a function or a loader. :ivar loss: gives the loss of ``(model, batch)``.
    :ivar facts: what ran where, in words, by name.
    """

    make_model: Callable[[], torch.nn.Module]
    draw: Callable[[], Any]
    loss: Callable[[torch.nn.Module, Any], Any]
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer] | None
    train_step: Callable[[torch.nn.Module, torch.optim.Optimizer, Any], Any] | None
    accumulate: Callable[[torch.nn.Module, Any], Any] | None
    count: Callable[[Any], int] | None
    wrap: Callable[[torch.nn.Module], torch.nn.Module] | None
    rank_loss: Callable[[torch.nn.Module, Any], Any] | None
    facts: Mapping[str, Any]

    def first(self, seed: int) -> Any:
        """Draw the batch that all checks use."""
        with asfound.as_found(seed), user_code():
            return self.draw()

    def seen(self, batch: Any, seed: int) -> peeking.Seen:
        """Look at what a forward pass of a batch and its loss compute, without dropout."""
        with asfound.as_found(seed):
            model = self.make_model()
            with asfound.without_dropout(model):
                return peeking.peek(model, lambda: self.loss(model, batch))

    def counted(self, batch: Any, seed: int) -> int:
        """Count what the loss of a batch is the mean over: as is said, as is seen, or its rows."""
        if self.count is not None:
            return int(self.count(batch))
        counts = [entropy.targets for entropy in self.seen(batch, seed).entropies]
        return counts[0] if len(counts) == 1 else batches.rows(batch)


def load(asked: Asked, device: str = "") -> Given:
    """Make ready what was asked for.

    :param device: in place of the one that was asked for, as ranks have it.
    :raises NotMeantError: where something is missing or can't be meant.
    :raises UserCodeError: where the user's code raises.
    """
    try:
        import torch  # noqa: PLC0415 -- late
    except ImportError as error:
        raise NotMeantError(
            f"the checks need torch, and it can't be imported by {sys.executable}: {error}; "
            "install it here, or run them elsewhere with --remote=SPEC"
        ) from error
    home, name = looking.split(asked.target, "MODULE:FACTORY")
    factory = _found(home, name)
    if not callable(factory):
        raise NotMeantError(
            f"{asked.target} is {_kind(factory)}, not a function that makes a model; write a "
            f"function beside it:\n\n    def make_model():\n        return {name}"
        )
    parts = {kind: _part(kind, home, asked) for kind in looking.CONVENTIONS}
    place = _device(torch, device or asked.device)
    with asfound.as_found(asked.seed):
        model = _first(factory, home, name)
        own = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
        chosen = own if place is None and own.type != "cpu" else place or _best(torch)
        draw = _draw(parts["batch"], home, chosen)
        with user_code():
            model.to(chosen)
            batch = draw()
        _see_batch(batch, asked, home)
        loss = _loss(parts["loss"], model, batch, home)

    def make() -> torch.nn.Module:
        made: torch.nn.Module = factory()
        return made.to(chosen)

    return Given(
        make_model=make,
        draw=draw,
        loss=loss,
        make_optimizer=parts["optimizer"],
        train_step=parts["train_step"],
        accumulate=parts["accumulate"],
        count=parts["count"],
        wrap=parts["wrap"],
        rank_loss=parts["rank_loss"],
        facts=_facts(torch, model, chosen),
    )


def _found(module: str, name: str) -> Any:
    """Import a module, and give what has the name there."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        with user_code():
            try:
                found: Any = importlib.import_module(module)
            except ModuleNotFoundError as error:
                if f"{module}.".startswith(f"{error.name}."):
                    raise NotMeantError(f"there is no module {error.name!r} in {here}") from error
                raise
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise NotMeantError(f"module {module!r} has no {name!r}") from error
    return found


def _part(kind: str, home: str, asked: Asked) -> Any:
    """Give what was named of a kind, or has a usual name in the factory's module."""
    given = asked.parts.get(kind, "")
    option = f"--{kind.replace('_', '-')}"
    if given:
        found = _found(*looking.split(given, option, home))
    else:
        module = sys.modules[home]
        names = [name for name in looking.CONVENTIONS[kind] if hasattr(module, name)]
        found = getattr(module, names[0]) if names else None
        given = names[0] if names else ""
    if found is not None and kind != "batch" and not callable(found):
        if not asked.parts.get(kind):
            return None  # a number named `loss`, say: it is none of ours
        raise NotMeantError(f"{option}={given} is {_kind(found)}, and has to be a function")
    return found


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _device(torch: Any, text: str) -> Any:
    """Read the device that was asked for, and see that it is there."""
    if not text:
        return None
    try:
        device = torch.device(text)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        first = str(error).strip().splitlines()[0]
        raise NotMeantError(f"--device={text} can't be had here: {first}") from error
    return device


def _best(torch: Any) -> Any:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _first(factory: Callable[..., Any], home: str, name: str) -> Any:
    """Call the factory, and see that what comes is a model."""
    import torch  # noqa: PLC0415 -- late

    with suppress(ValueError):  # what is built in has no signature
        needed = [
            each.name
            for each in inspect.signature(factory).parameters.values()
            if each.default is each.empty
            and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        if needed:
            raise NotMeantError(looking.needs_arguments(home, name, needed))
    with user_code():
        model = factory()
    if not isinstance(model, torch.nn.Module):
        raise NotMeantError(
            f"{home}:{name} gave {_kind(model)}, and has to return a torch.nn.Module (is a return "
            "missing?)"
        )
    return model


def _draw(source: Any, home: str, device: Any) -> Callable[[], Any]:
    """Make what gives a batch on a device."""
    if source is None:
        raise NotMeantError(looking.NO_BATCH.format(module=home, names=", ".join(looking.BATCHES)))

    def draw() -> Any:
        made = source() if callable(source) and not isinstance(source, Mapping) else source
        return batches.mapped(_batch(made), lambda tensor: tensor.to(device))

    return draw


def _batch(made: Any) -> Any:
    """Take a batch from what may be a loader or a data set."""
    import torch  # noqa: PLC0415 -- late
    from torch.utils import data  # noqa: PLC0415 -- late

    if (
        isinstance(made, torch.Tensor | Mapping)
        or (isinstance(made, list | tuple) and any(True for _ in batches.tensors(made)))
        or isinstance(made, str | bytes)
    ):
        return made
    if hasattr(made, "__getitem__") and hasattr(made, "__len__") and not hasattr(made, "_asdict"):
        rows = [made[place] for place in range(min(ROWS, len(made)))]
        return data.default_collate(rows) if rows else made
    if hasattr(made, "__iter__"):
        if isinstance(made, data.IterableDataset):
            return data.default_collate([*itertools.islice(made, ROWS)])
        return next(iter(made))
    return made


def _see_batch(batch: Any, asked: Asked, home: str) -> None:
    if not any(True for _ in batches.tensors(batch)):
        named = f"--batch={asked.parts['batch']}" if "batch" in asked.parts else f"{home}'s batch"
        raise NotMeantError(
            f"{named} gave {_kind(batch)} without a tensor; a batch is a tensor, a tuple or list "
            "of what forward takes, or a mapping of it"
        )


def _loss(given: Any, model: Any, batch: Any, home: str) -> Callable[[Any, Any], Any]:
    """Give the loss as a function of ``(model, batch)``."""
    import torch  # noqa: PLC0415 -- late

    if given is not None:
        if isinstance(given, torch.nn.Module) or _takes_output(given):
            return _of_output(given)
        function: Callable[[Any, Any], Any] = given
        return function
    names = ", ".join(looking.CONVENTIONS["loss"])

    def missing(why: str) -> NotMeantError:
        return NotMeantError(NO_LOSS.format(module=home, names=names, why=why))

    try:
        signature = inspect.signature(model.forward)
        if isinstance(batch, Mapping):
            signature.bind(**batch)
        else:
            signature.bind(*(batch if isinstance(batch, list | tuple) else [batch]))
    except TypeError as error:
        raise missing(f"the model's forward does not take the batch ({error})") from error
    with user_code():
        seen = peeking.peek(model, lambda: batches.loss_of(model, batch))
    if seen.misfit is not None:
        return batches.loss_of  # it is for a check to say what does not fit
    made = seen.value
    if not isinstance(made, torch.Tensor) or made.numel() != 1:
        shape = f" of shape {tuple(made.shape)}" if isinstance(made, torch.Tensor) else ""
        raise missing(f"the model gives {_kind(made)}{shape}, which is none")
    return batches.loss_of


def _takes_output(function: Any) -> bool:
    """Whether a function is called with an output and a target, as a criterion is."""
    try:
        names = [*inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return False
    return len(names) > 1 and (names[0] in OUTPUTS or names[:2] == ["input", "target"])


def _of_output(criterion: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def loss(model: Any, batch: Any) -> Any:
        if not isinstance(batch, list | tuple) or len(batch) != 2:  # noqa: PLR2004 -- a pair
            raise NotMeantError(
                "a loss of (output, target) needs a batch that is a pair of inputs and targets; "
                "write one of (model, batch) for another"
            )
        inputs, targets = batch
        output = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
        return criterion(output, targets)

    return loss


def _facts(torch: Any, model: Any, device: Any) -> dict[str, Any]:
    parameters = [*model.parameters()]
    dtypes = dict.fromkeys(str(p.dtype).removeprefix("torch.") for p in parameters)
    shown = str(device)
    if device.type == "cuda":
        shown += f", {torch.cuda.get_device_name(device)}"
    return {
        "model": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "dtype": ", ".join(dtypes) or "none",
        "device": shown,
        "torch": str(torch.__version__),
    }
