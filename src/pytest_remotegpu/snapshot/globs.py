"""The globs of ``remotegpu_include`` and ``remotegpu_exclude``; knows no file system.

A glob and a path are both tuples of components.
"""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterable

from pytest_remotegpu.errors import UsageError

__all__ = ["Parts", "covers", "escaped", "parse", "reaches"]

Parts = tuple[str, ...]


def parse(option: str, texts: Iterable[str]) -> tuple[Parts, ...]:
    """Split each text into its components.

    :raises UsageError: a text is empty, absolute or goes up
    """
    return tuple(_parse(option, text) for text in texts)


def _parse(option: str, text: str) -> Parts:
    parts = tuple(part for part in text.split("/") if part not in {"", "."})
    if not parts or ".." in parts or text.startswith("/"):
        raise UsageError(
            f"{option} has {text!r}, but its globs start at the project root and stay in it;"
            " write for instance 'data/*.bin'"
        )
    return parts


def escaped(path: str) -> str:
    """Return the glob that matches this path and what is in it, and nothing else."""
    return glob.escape(path)


def covers(pattern: Parts, path: Parts, guarded: frozenset[int] = frozenset(), at: int = 0) -> bool:
    """Whether the glob matches the path, or a folder above it.

    The components with an index in ``guarded`` must be spelt out by the glob; ``at`` is where in
    the path the glob's first component stands.
    """
    if not pattern:
        return all(index < at for index in guarded)
    if at == len(path):
        return all(component == "**" for component in pattern)
    if pattern[0] == "**":
        return covers(pattern[1:], path, guarded, at) or (
            at not in guarded and covers(pattern, path, guarded, at + 1)
        )
    same = _is_spelt(path[at], pattern[0]) or (at not in guarded and _fits(path[at], pattern[0]))
    return same and covers(pattern[1:], path, guarded, at + 1)


def reaches(pattern: Parts, folder: Parts) -> bool:
    """Whether the glob can match something in the folder."""
    if not pattern or not folder or pattern[0] == "**":
        return True
    return _fits(folder[0], pattern[0]) and reaches(pattern[1:], folder[1:])


def _is_spelt(name: str, component: str) -> bool:
    return component == name or ("[" in component and component == glob.escape(name))


def _fits(name: str, component: str) -> bool:
    return name == component or fnmatch.fnmatchcase(name, component)
