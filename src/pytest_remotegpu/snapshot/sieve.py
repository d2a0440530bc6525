"""Decides path by path what may travel; reads no content and asks no git.

The sieve also keeps what the user is to be told: paths left out with their reasons, and notes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from pytest_remotegpu import guards
from pytest_remotegpu.snapshot import globs
from pytest_remotegpu.snapshot.globs import Parts
from pytest_remotegpu.snapshot.values import Rules, printable

__all__ = ["NOT_UTF8", "Sieve", "is_environment"]

WRITTEN: Final = "is where this session itself writes (--remote-json, --remote-artifacts)"
NOT_UTF8: Final = "has a name, or links to one, that isn't UTF-8"
_DRIVE: Final = "looks like a path on a drive of its own"
_BEHIND_LINK: Final = ""  # no reason to show: the link speaks for itself

_Guarded = tuple[tuple[int, str], ...]


class _Objection(NamedTuple):
    """The path, or the folder above it, that may not travel, and why."""

    path: str
    reason: str


class _Folder(NamedTuple):
    """Why nothing in a folder travels, and which components of its path are guarded, and why."""

    objection: _Objection | None
    guarded: _Guarded


class Sieve:
    """The rules applied to one root.

    :raises UsageError: a glob reaches outside the root
    """

    def __init__(self, root: Path, rules: Rules) -> None:
        self.root = root
        self.prefix = os.path.join(root, "")  # noqa: PTH118 -- what turns a path into a whole one
        self.left_out: dict[str, str] = {}
        self.notes: list[str] = []
        self._include = globs.parse("remotegpu_include", rules.include)
        self._exclude = globs.parse("remotegpu_exclude", rules.exclude)
        self._written = globs.parse("what the session writes", rules.written)
        self._components = {component for pattern in self._include for component in pattern}
        self._folders: dict[Parts, _Folder] = {(): _Folder(None, ())}

    def leave(self, path: str, reason: str) -> None:
        """Note a path that stays behind."""
        self.left_out[printable(path)] = reason

    def folders(self) -> dict[str, bool]:
        """Give the folders that were looked at, and of each whether it is a virtual environment."""
        return {
            "/".join(path): any(
                at == len(path) - 1 and why == guards.ENVIRONMENT for at, why in known.guarded
            )
            for path, known in self._folders.items()
        }

    def includes(self, path: Parts) -> bool:
        """Whether an include glob covers the path, guards not considered."""
        return any(globs.covers(pattern, path) for pattern in self._include)

    def seeks(self, folder: Parts) -> bool:
        """Whether an include glob may cover something in the folder."""
        return any(globs.reaches(pattern, folder) for pattern in self._include)

    def spells_out(self, path: Parts, guarded: Iterable[int]) -> bool:
        """Whether an include glob covers the path and spells out these components of it."""
        indices = frozenset(guarded)
        return any(globs.covers(pattern, path, indices) for pattern in self._include)

    def enters(self, folder: Parts) -> bool:
        """Whether a walk may find something to send in the folder; a refusal is noted."""
        known = self._folder(folder)
        objection = known.objection or next(
            (
                _objection(folder, index, reason)
                for index, reason in known.guarded
                if not self._may_spell(folder[index])
            ),
            None,
        )
        return self._passes(objection)

    def admits(self, path: Parts) -> bool:
        """Whether a file or link may travel, as far as its path tells; a refusal is noted."""
        folder = self._folder(path[:-1])
        return self._passes(
            folder.objection
            or self._excluded(path)
            or _foreign(path)
            or self._guarded(path, folder.guarded)
        )

    def _passes(self, objection: _Objection | None) -> bool:
        if objection is not None and objection.reason != _BEHIND_LINK:
            self.leave(*objection)
        return objection is None

    def _may_spell(self, name: str) -> bool:
        return not self._components.isdisjoint({name, globs.escaped(name)})

    def _guarded(self, path: Parts, guarded: _Guarded) -> _Objection | None:
        own = guards.of_file(path)
        if own is not None:
            guarded = (*guarded, (len(path) - 1, own))
        for index, reason in guarded:
            if reason not in guards.SPELT_OUT:
                return _objection(path, index, reason)
        if guarded and not self.spells_out(path, (index for index, _ in guarded)):
            return _objection(path, *guarded[0])
        return None

    def _folder(self, path: Parts) -> _Folder:
        known = self._folders.get(path)
        if known is None:
            above = self._folder(path[:-1])
            known = above if above.objection else self._look(path, above.guarded)
            self._folders[path] = known
        return known

    def _look(self, path: Parts, guarded: _Guarded) -> _Folder:
        here = self.root.joinpath(*path)
        if os.path.islink(here):  # noqa: PTH114 -- Path.is_symlink raises where it may not look
            return _Folder(_Objection("/".join(path), _BEHIND_LINK), ())
        reason = guards.ENVIRONMENT if is_environment(here) else guards.of_folder(path[-1])
        own: _Guarded = () if reason is None else ((len(path) - 1, reason),)
        return _Folder(self._excluded(path), (*guarded, *own))

    def _excluded(self, path: Parts) -> _Objection | None:
        for pattern in self._exclude:
            if globs.covers(pattern, path):
                reason = f"matches {'/'.join(pattern)!r} in remotegpu_exclude"
                return _Objection("/".join(path), reason)
        if any(globs.covers(pattern, path) for pattern in self._written):
            return _Objection("/".join(path), WRITTEN)
        return None


def _objection(path: Parts, index: int, reason: str) -> _Objection:
    return _Objection("/".join(path[: index + 1]), reason)


def is_environment(folder: Path) -> bool:
    """Whether a folder is a virtual environment."""
    return os.path.lexists(folder / "pyvenv.cfg") or os.path.lexists(folder / "conda-meta")


def _foreign(path: Parts) -> _Objection | None:
    """Object to names that the far side could not write, or the wire not carry."""
    text = "/".join(path)
    if printable(text) != text:
        return _Objection(text, NOT_UTF8)
    return _Objection(text, _DRIVE) if re.match("[A-Za-z]:", text) else None
