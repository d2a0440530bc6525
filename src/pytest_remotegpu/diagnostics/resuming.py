"""Saving a sharded model with its optimizer, and going on from what was saved.

Knows ``torch.distributed.checkpoint.state_dict``, and no check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_remotegpu.diagnostics import batches, meeting
from pytest_remotegpu.diagnostics.gradients import plain_name
from pytest_remotegpu.diagnostics.shards import local
from pytest_remotegpu.diagnostics.verdict import Finding

if TYPE_CHECKING:
    import torch

__all__ = ["Load", "Save", "Saved", "Way", "dropped", "not_loaded", "taken", "ways", "went_wrong"]

Save = Callable[["torch.nn.Module", "torch.optim.Optimizer"], Any]
"""Gives what has to be kept of a model and its optimizer; called on all ranks."""
Load = Callable[["torch.nn.Module", "torch.optim.Optimizer", Any], Any]
"""Puts what was kept into a new model and its optimizer."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to save and to load.

    :ivar own: whether it is the user's: its errors are his, and its form is not looked at.
    """

    name: str
    save: Save
    load: Load
    own: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """What a rank holds at a moment: its parts of parameters and buffers, and of the optimizer."""

    weights: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor]


def ways() -> tuple[Way, ...]:
    """Give torch's two: state dictionaries that are whole on each rank, and ones of shards."""
    return _way("full", full=True), _way("sharded", full=False)


def _way(name: str, *, full: bool) -> Way:
    def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        from torch.distributed.checkpoint import state_dict  # noqa: PLC0415 -- late

        options = state_dict.StateDictOptions(full_state_dict=full)
        model_state, state = state_dict.get_state_dict(model, optimizer, options=options)
        # what is saved must not change when training goes on, as a file does not
        return batches.mapped((model_state, state), lambda tensor: tensor.detach().clone())

    def load(model: torch.nn.Module, optimizer: torch.optim.Optimizer, state: Any) -> None:
        from torch.distributed.checkpoint import state_dict  # noqa: PLC0415 -- late

        kept, trained = (
            state[1]["state"],
            [n for n, p in model.named_parameters() if p.requires_grad],
        )
        # a parameter that no gradient has reached has no state, which torch takes for a loss
        complete = all(plain_name(name) in kept for name in trained)
        state_dict.set_model_state_dict(
            model, state[0], options=state_dict.StateDictOptions(full_state_dict=full)
        )
        options = state_dict.StateDictOptions(full_state_dict=full, strict=complete)
        state_dict.set_optimizer_state_dict(model, optimizer, state[1], options=options)

    return Way(name, save, load)


def taken(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Saved:
    """Copy what this rank holds, of buffers those that belong into a state dictionary."""
    import torch  # noqa: PLC0415 -- late

    named = dict(model.named_parameters())
    kept = {plain_name(name) for name in model.state_dict()}
    buffers = {n: b for n, b in model.named_buffers() if plain_name(n) in kept}
    state = {
        f"{plain_name(name)}: {key}": local(value).cpu().clone()
        for name, p in named.items()
        for key, value in optimizer.state.get(p, {}).items()
        if isinstance(value, torch.Tensor)
    }
    weights = {plain_name(n): local(t).cpu().clone() for n, t in (named | buffers).items()}
    return Saved(weights, state)


def dropped(way: Way, state: Any, expected: Iterable[str]) -> Finding | None:
    """Find names that a state dictionary of torch's should have and has not."""
    if way.own:
        return None
    there = {plain_name(name) for name in state[0]}
    gone = tuple(name for name in expected if name not in there)
    if not gone:
        return None
    return Finding(
        "state-dict-drops-keys",
        f"the {way.name} state dictionary lacks {len(gone)} entries that the unsharded model's has",
        "look for hooks of state_dict(), a state_dict() or _save_to_state_dict of a module's own, "
        "and persistent=False; what is missing is lost when training is resumed",
        gone,
    )


def went_wrong(way: Way, saved: Saved, loaded: Saved, group: Any) -> list[Finding]:
    """Compare what was loaded with what was there when it was saved, bit by bit, on all ranks."""
    weights = _unequal(saved.weights, loaded.weights, group)
    state = _unequal(saved.state, loaded.state, group)
    found = []
    if weights:
        found.append(
            Finding(
                "resumed-weights-differ",
                f"{len(weights)} parameters or buffers are not what was saved, after loading "
                f"({way.name})",
                "see that all names are saved and loaded, that nothing is made anew after loading, "
                "and that a full state dictionary reaches all ranks (broadcast_from_rank0)",
                weights,
            )
        )
    if state:
        found.append(
            Finding(
                "resumed-optimizer-differs",
                f"{len(state)} parts of the optimizer's state are not what was saved, after "
                f"loading ({way.name})",
                "save and load the optimizer too, with get_optimizer_state_dict and "
                "set_optimizer_state_dict, into an optimizer that was made after fully_shard",
                state,
            )
        )
    return found


def _unequal(
    saved: Mapping[str, torch.Tensor], loaded: Mapping[str, torch.Tensor], group: Any
) -> tuple[str, ...]:
    import torch  # noqa: PLC0415 -- late

    mine = [
        name
        for name, tensor in saved.items()
        if name not in loaded
        or loaded[name].dtype != tensor.dtype
        or not torch.equal(loaded[name], tensor)
    ]
    return tuple(dict.fromkeys(name for names in meeting.gather(mine, group) for name in names))


def not_loaded(way: Way, said: str) -> Finding:
    """Say that torch refused to save or to load."""
    return Finding(
        "state-dict-not-loaded",
        f"torch could not save and load the {way.name} state dictionary: {said}",
        "see that the optimizer holds the sharded model's parameters and no others, and that the "
        "model is built alike before loading",
    )
