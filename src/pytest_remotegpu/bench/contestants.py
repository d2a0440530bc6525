"""From what a test hands in to calls that can be timed: names, inputs, copies of these.

Knows torch where inputs are its tensors, inside functions only; no pytest.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_remotegpu.bench.timing import Call, Rotating
from pytest_remotegpu.errors import UsageError

__all__ = ["CONTESTANT", "REFERENCE", "Inputs", "named"]

CONTESTANT: Final = "contestant"
REFERENCE: Final = "reference"
"""Names of two that were handed in without."""
TIMES_CACHE: Final = 2
"""So many times the L2 cache are all copies of the inputs."""
MOST_COPIES: Final = 64
MOST_MEMORY: Final = 8
"""Copies take one part in so many of the card's free memory at most."""


def named(contestant: Any, reference: Any = None) -> dict[str, Callable[..., object]]:
    """Name contestants, the first of which is on trial.

    :param contestant: one function, or several by name.
    :param reference: one function, or several by name.
    :raises UsageError: for what can't be called, an empty mapping, or a name that comes twice.
    """
    found: dict[str, Callable[..., object]] = {}
    for what, given in ((CONTESTANT, contestant), (REFERENCE, reference)):
        if given is None and what == REFERENCE:
            continue
        several = given if isinstance(given, Mapping) else {what: given}
        if not several:
            raise UsageError(f"gpu_benchmark got no {what}: the mapping is empty")
        for name, function in several.items():
            if not isinstance(name, str) or not name:
                raise UsageError(f"a {what} is named {name!r}", fix="name it by a text")
            if name in found:
                raise UsageError(f"two contestants are named {name!r}", fix="rename one of them")
            if not callable(function):
                raise UsageError(
                    f"{name} is {function!r}, which can't be called",
                    fix="hand in the function itself, and its arguments as args=(...)",
                )
            found[name] = function
    return found


@dataclass(slots=True)
class Inputs:
    """What contestants are called with.

    :ivar args: positional arguments. :ivar kwargs: arguments by name.
    :ivar backward: whether the way back alone is timed.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    backward: bool = False
    _copies: list[tuple[tuple[Any, ...], Mapping[str, Any]]] = field(
        default_factory=list, init=False
    )

    def tensors(self) -> list[Any]:
        """List the tensors among them, in lists, tuples and dicts too."""
        return _tensors((self.args, self.kwargs))

    @property
    def size(self) -> int:
        """Bytes of their tensors, each piece of memory once."""
        return sum({_place(one): one.untyped_storage().nbytes() for one in self.tensors()}.values())

    def dtype(self) -> str:
        """Name the first floating-point tensor's type; nothing where there is none."""
        for one in self.tensors():
            if one.dtype.is_floating_point or one.dtype.is_complex:
                return str(one.dtype).removeprefix("torch.")
        return ""

    def call(self, function: Callable[..., object]) -> Call:
        """Bind a function to its inputs as they are."""
        return _bound(function, self.args, self.kwargs, backward=self.backward)

    def turning(self, function: Callable[..., object], copies: int) -> Call:
        """Bind it to copies of its inputs, in turns; contestants share these."""
        while len(self._copies) < copies:
            self._copies.append(_copied((self.args, self.kwargs), {}))
        return Rotating(
            [
                _bound(function, args, kwargs, backward=self.backward)
                for args, kwargs in self._copies[:copies]
            ]
        )

    def copies_for(self, cache: int, free: int) -> int:
        """Say how many copies keep an L2 cache from holding the next one; 1 where none do.

        :param cache: bytes of that. :param free: bytes of memory that are left.
        """
        size = self.size
        if not size:
            return 1
        wanted = max(2, math.ceil(TIMES_CACHE * cache / size))
        fits = wanted * size <= free // MOST_MEMORY
        return wanted if wanted <= MOST_COPIES and fits else 1


def _tensors(value: Any) -> list[Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [one for part in value for one in _tensors(part)]
    return []


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _copied(value: Any, seen: dict[int, Any]) -> Any:
    """Copy tensors with their strides; views of the same memory stay views of the same memory.

    :param seen: copies of memory that have been made, by where it lies.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        place = _place(value)
        if place not in seen:
            seen[place] = value.untyped_storage().clone()
        empty = torch.empty(0, dtype=value.dtype, device=value.device)
        made = empty.set_(seen[place], value.storage_offset(), value.size(), value.stride())
        return made.requires_grad_(value.requires_grad)
    return _mapped(value, lambda part: _copied(part, seen))


def _aliased(value: Any, seen: dict[int, Any]) -> Any:
    """Give tensors that need a gradient as new leaves, on the same memory.

    A leaf remembers the stream on which it was used first, and contestants share their inputs.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.requires_grad:
        return seen.setdefault(id(value), value.detach().requires_grad_())
    return _mapped(value, lambda part: _aliased(part, seen))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Give lists, tuples and mappings with their parts changed, and all else as it is."""
    if isinstance(value, Mapping):
        return {name: change(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change(part) for part in value)
    return value


def _bound(
    function: Callable[..., object],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    backward: bool,
) -> Call:
    if backward:
        return _Backward(function, args, kwargs)
    if not args and not kwargs:
        return function
    return lambda: function(*args, **kwargs)


@dataclass(slots=True)
class _Backward:
    """The way back alone: the way there is gone once on each stream, outside of what is timed.

    autograd runs the way back on the stream of the way there, and a capture allows one only.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    _kept: tuple[Any, Any, Any, Any] | None = None

    def __call__(self) -> object:
        """Go the way back.

        :raises UsageError: where no input needs a gradient, or no result has one.
        """
        import torch  # noqa: PLC0415 -- who hands in tensors has imported it

        stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None
        if self._kept is None or self._kept[0] != stream:
            self._kept = None  # what is left of the way there would bind it to its stream
            self._kept = (stream, *self._there())
        _stream, results, leaves, grads = self._kept
        return torch.autograd.grad(results, leaves, grads, retain_graph=True, allow_unused=True)

    def _there(self) -> tuple[Any, Any, Any]:
        import torch  # noqa: PLC0415 -- as above

        args, kwargs = _aliased((self.args, self.kwargs), {})
        given = _tensors((args, kwargs))
        if isinstance(self.function, torch.nn.Module):
            given += self.function.parameters()
        leaves = list({id(one): one for one in given if one.requires_grad}.values())
        if not leaves:
            raise UsageError(
                "backward=True, but neither args nor a module's parameters need a gradient",
                fix="call requires_grad_() on those whose gradients are wanted",
            )
        results = [one for one in _tensors(self.function(*args, **kwargs)) if one.requires_grad]
        if not results:
            raise UsageError(
                "backward=True, but no result has a gradient",
                fix="return a tensor that depends on those in args",
            )
        return results, leaves, [torch.ones_like(one) for one in results]
