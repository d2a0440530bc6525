"""This package among what a project asks for: not installed, since this session's own is sent.

An index may not have the version that runs here, or have another one. Values in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pytest_remotegpu.recipe.needs import Here
from pytest_remotegpu.recipe.requirements import parsed
from pytest_remotegpu.recipe.values import Files

__all__ = ["OURS", "is_ours", "notes", "without"]

OURS: Final = "pytest-remotegpu"
PROVIDED: Final = "modal"
"""The extra whose need the provider meets: it has its SDK in each container."""
_PLACE: Final = re.compile(
    r"(?:.*/|^)pytest[-_.]remotegpu(?:\.git(?:@[^#/]*)?|@[^#/]*|-\d[^/]*)?/?(?:[#?].*)?$",
    re.IGNORECASE | re.DOTALL,
)
_EGG: Final = re.compile(r"#(?:.*&)?egg=pytest[-_.]remotegpu\b", re.IGNORECASE)


def is_ours(line: str) -> bool:
    """Say whether a line asks for this package, by its name or by an address."""
    requirement = parsed(line)
    if requirement is not None:
        return canonicalize_name(requirement.name) == OURS
    place = line.partition(" --")[0].strip()
    return not line.startswith("-") and bool(_PLACE.match(place) or _EGG.search(place))


def without(files: Files, here: Here) -> Files:
    """Leave this package out; what it needs for the extras that were asked for stands in its place.

    What it needs in any case is in a layer of its own.
    """
    lines = [new for line in files.lines for new in _instead(line, here)]
    constraints = [line for line in files.constraints if not is_ours(line)]
    return replace(
        files, lines=tuple(dict.fromkeys(lines)), constraints=tuple(dict.fromkeys(constraints))
    )


def _instead(line: str, here: Here) -> Iterator[str]:
    if not is_ours(line):
        yield line
        return
    asked = parsed(line)
    for extra in sorted(asked.extras if asked is not None else ()):
        if canonicalize_name(extra) != PROVIDED:
            yield from _of_extra(canonicalize_name(extra), asked.marker if asked else None, here)


def _of_extra(extra: str, marker: Marker | None, here: Here) -> Iterator[str]:
    """Give what an extra needs, where the line's own marker lets it."""
    for need in map(Requirement, here.requires):
        if need.marker is None or not need.marker.evaluate({"extra": extra}):
            continue
        if need.marker.evaluate({"extra": ""}):
            continue  # needed in any case
        need.marker = marker
        yield str(need)


def notes(files: Files, pins: tuple[tuple[str, str], ...], where: str, here: Here) -> Iterator[str]:
    """Say where another version is asked for than the one that is sent."""
    found = map(parsed, filter(is_ours, files.lines))
    asked = [requirement.specifier for requirement in found if requirement is not None]
    wrong = [str(one) for one in asked if not one.contains(here.package, prereleases=True)]
    wrong += [f" {version}" for name, version in pins if name == OURS and version != here.package]
    if here.package:
        for one in dict.fromkeys(wrong):
            yield (
                f"{where} has {OURS}{one}, and the far side gets {here.package}, which runs "
                "here; install the other one here if it is the one that is meant"
            )
