"""Backends by name: entry points of the group ``pytest_remotegpu.backends``, imported late.

Knows no backend by itself; each is known to its entry point only.
"""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from typing import Final

from pytest_remotegpu.backends.base import Backend, Make, Site
from pytest_remotegpu.errors import SpecError, UsageError

__all__ = ["GROUP", "find", "names"]

GROUP: Final = "pytest_remotegpu.backends"


def names() -> list[str]:
    """List the installed backends."""
    return sorted(point.name for point in entry_points(group=GROUP))


def find(name: str, rest: str, site: Site) -> Backend:
    """Make the backend ``name`` from the rest of the specification.

    :raises SpecError: where there is none by that name, or where it can't read ``rest``.
    :raises UsageError: where the backend's own module can't be imported.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        close = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(f"there is no backend {name!r}; {hint}installed are: {', '.join(names())}")
    try:
        make: Make = points[0].load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"backend {name!r} ({points[0].value}) can't be loaded: {error}"
        ) from error
    return make(rest, site)
