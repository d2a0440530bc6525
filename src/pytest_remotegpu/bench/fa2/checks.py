"""Looks at values of a configuration: what is wrong is said with its name and what would do.

Values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pytest_remotegpu.bench.fa2.limits import STEP, WIDEST
from pytest_remotegpu.errors import UsageError

__all__ = [
    "FEWEST",
    "MOST",
    "NAMES",
    "among",
    "count",
    "counts",
    "once",
    "some",
    "targets",
    "width",
    "words",
    "wrong",
]

FEWEST: Final = 5
"""Rounds that an interval needs."""
MOST: Final = 2**24
"""More than any of the numbers can be meant to be."""
NAMES: Final = (
    "masked",
    "sdpa-flash",
    "sdpa-cudnn",
    "fa2",
    "fa2-folded",
    "flash_attn",
    "flex",
    "stand-in",
)
"""The columns that are there; what they are needs more than values."""

One = TypeVar("One")


def wrong(name: str, value: Any, wanted: str) -> UsageError:
    """Make the error for a value."""
    return UsageError(f"{name} has {value!r}", fix=f"give {wanted}")


def some(name: str, value: Any) -> Sequence[Any]:
    """Look at a list, which has one entry at least."""
    if not isinstance(value, list | tuple):
        raise UsageError(f"{name} is {value!r}, which is no list", fix="put it in brackets")
    if not value:
        raise UsageError(f"{name} is empty", fix="give one value at least, or leave the key away")
    return value


def once(name: str, values: Iterable[One]) -> tuple[One, ...]:
    """Look for values that come twice."""
    seen: list[One] = []
    for value in values:
        if value in seen:
            raise UsageError(f"{name} has {value!r} twice", fix="give each value once")
        seen.append(value)
    return tuple(seen)


def count(name: str, value: Any, least: int = 1) -> int:
    """Look at a whole number."""
    if type(value) is not int or not least <= value <= MOST:
        raise wrong(name, value, f"a whole number from {least} to {MOST}")
    return value


def counts(name: str, value: Any) -> tuple[int, ...]:
    """Look at a list of whole numbers."""
    return once(name, [count(name, one) for one in some(name, value)])


def width(name: str, value: Any) -> int:
    """Look at the width of a head; what a card can do is looked at there."""
    if type(value) is not int or value % STEP or not STEP <= value <= WIDEST:
        raise wrong(
            name, value, f"a head's width that is a multiple of {STEP} from {STEP} to {WIDEST}"
        )
    return value


def words(name: str, value: Any) -> tuple[str, ...]:
    """Look at a list of words."""
    for one in some(name, value):
        if not isinstance(one, str) or not one.strip():
            raise wrong(name, one, "a word")
    return once(name, value)


def among(name: str, value: Any, possible: Sequence[str]) -> tuple[str, ...]:
    """Look at a list of words out of some."""
    for one in words(name, value):
        if one not in possible:
            raise wrong(name, one, f"words of {', '.join(possible)}")
    return tuple(value)


def targets(name: str, value: Any) -> dict[str, str]:
    """Look at a table of functions, ``module:function``."""
    if not isinstance(value, Mapping):
        raise wrong(name, value, "a table such as { mine = 'module:function' }")
    for key, target in value.items():
        module, _, function = target.partition(":") if isinstance(target, str) else ("", "", "")
        if not all(f"{module}.{function}".split(".")) or not str(key).strip():
            raise wrong(name, target, "module:function")
    return dict(value)
