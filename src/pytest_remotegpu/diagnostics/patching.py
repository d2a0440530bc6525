"""What a patch puts in place of something else, in a model and in the whole process; putting back.

Knows models and Python's modules, and no check and no library that patches.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

__all__ = ["Part", "Replaced", "Stock", "code_of", "parts", "put_back", "replaced", "stock"]

NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Part:
    """What a module of a model does when it is called."""

    kind: type
    forward: Any


@dataclass(frozen=True, slots=True)
class Replaced:
    """A function or class that is another one now, for the whole process.

    :ivar name: where it is found, ``torch.nn.functional.cross_entropy`` for instance.
    :ivar before: what it was, which may be nothing: then it hid what a class inherits.
    """

    name: str
    owner: Any
    attribute: str
    before: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Stock:
    """What Python's modules and a model's classes have under their names."""

    modules: tuple[tuple[str, Any, dict[str, Any]], ...]
    classes: tuple[tuple[str, Any, dict[str, Any]], ...]


def parts(model: torch.nn.Module) -> dict[str, Part]:
    """Give what each module of a model does; the root's name is empty."""
    found = {}
    for name, module in model.named_modules():
        forward = module.forward
        found[name] = Part(type(module), getattr(forward, "__func__", forward))
    return found


def code_of(function: Any) -> set[CodeType]:
    """Give the code of a function, or of a class's own ``forward`` and ``__call__``."""
    candidates = [function]
    if isinstance(function, type):
        candidates += [vars(function).get(name) for name in ("forward", "__call__")]
    codes = [getattr(candidate, "__code__", None) for candidate in candidates]
    return {code for code in codes if isinstance(code, CodeType)}


def stock(*models: torch.nn.Module) -> Stock:
    """Take stock of all modules that Python has loaded and of the models' classes."""
    kinds = {
        kind: None
        for model in models
        for module in model.modules()
        for kind in type(module).__mro__
        if kind is not object
    }
    return Stock(
        tuple(
            (name, module, dict(vars(module)))
            for name, module in sorted(sys.modules.items())
            if isinstance(module, ModuleType)
        ),
        tuple((f"{k.__module__}.{k.__qualname__}", k, dict(vars(k))) for k in kinds),
    )


def replaced(before: Stock) -> list[Replaced]:
    """Find functions and classes that are other ones since then, and methods that came along."""
    found: dict[tuple[int, str], Replaced] = {}
    for name, owner, old in (*before.modules, *before.classes):
        now = dict(vars(owner))
        names = [key for key in old if now.get(key, NOTHING) is not old[key]]
        if isinstance(owner, type):
            names += [key for key in now if key not in old]
        for key in names:
            one, other = old.get(key, NOTHING), now.get(key, NOTHING)
            if other is not NOTHING and callable(other) and (one is NOTHING or callable(one)):
                place = Replaced(f"{name}.{key}", owner, key, one, other)
                found.setdefault((id(owner), key), place)
    return [*found.values()]


def put_back(changes: list[Replaced]) -> None:
    """Put back what was replaced."""
    for change in changes:
        if change.before is not NOTHING:
            setattr(change.owner, change.attribute, change.before)
        else:
            with suppress(AttributeError):
                delattr(change.owner, change.attribute)
