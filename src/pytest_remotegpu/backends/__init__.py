"""Backends by name: entry points of the group ``pytest_remotegpu.backends``, imported late.

Those whose workers outlive a session have one in the group ``pytest_remotegpu.lists``, too.

Knows no backend by itself; each is known to its entry point only.
"""

from __future__ import annotations

import contextlib
import difflib
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Final

from pytest_remotegpu.backends.base import Backend, Lists, Make, MakeLists, Site
from pytest_remotegpu.errors import SpecError, UsageError

__all__ = ["GROUP", "LISTS", "find", "listing", "lists", "names"]

GROUP: Final = "pytest_remotegpu.backends"
LISTS: Final = "pytest_remotegpu.lists"


def names() -> list[str]:
    """List the installed backends."""
    return sorted(point.name for point in entry_points(group=GROUP))


def find(name: str, rest: str, site: Site) -> Backend:
    """Make the backend ``name`` from the rest of the specification.

    :raises SpecError: where there is none by that name, or where it can't read ``rest``.
    :raises UsageError: where the backend's own module can't be imported.
    """
    points = _own(name) or [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        close = difflib.get_close_matches(name.lower(), names(), 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(
            f"there is no backend {name!r}; {hint}installed are: {', '.join(names())}"
            "; a type of card stands behind one, as in modal:T4"
        )
    try:
        make: Make = points[0].load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"backend {name!r} ({points[0].value}) can't be loaded: {error}"
        ) from error
    return make(rest, site)


def _own(name: str) -> list[EntryPoint]:
    """Look at this package's own: that of all others is one file for each that is installed."""
    with contextlib.suppress(PackageNotFoundError):
        points = distribution("pytest-remotegpu").entry_points
        return [point for point in points if (point.group, point.name) == (GROUP, name)]
    return []


def listing() -> list[str]:
    """Name the installed backends that may have something running; imports none of them."""
    return sorted({point.name for point in entry_points(group=LISTS)})


def lists(name: str, site: Site) -> Lists | None:
    """Make what lists the things that a backend runs for this user.

    :param name: one of :func:`listing`.
    :return: ``None`` where the user has nothing to do with that backend.
    :raises ImportError, AttributeError: where its module can't be imported, or lacks the callable.
    """
    point = next(point for point in entry_points(group=LISTS) if point.name == name)
    make: MakeLists = point.load()
    return make(site)
