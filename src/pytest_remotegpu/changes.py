"""What has changed in a project's folder since the last look at it.

Looks at files; knows no watcher, which only says when to look, and nothing of what they mean.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.snapshot import git

__all__ = ["Project", "is_noise"]

FOLDERS: Final = frozenset(
    {"__pycache__", "node_modules", "site-packages", "build", "dist", "htmlcov"}
)
"""Folders that hold what others made; so do those whose names start with a dot."""
ENDINGS: Final = (".pyc", ".pyo", "~", ".swp", ".swo", ".swx", ".tmp", ".orig")
STARTS: Final = (".#", "#", ".coverage", "flycheck_", "flymake_")
PROBE: Final = "4913"
"""A file by which vim tries whether it may write."""


@dataclass(frozen=True)
class Stamp:
    """A file at one moment; of two with the same digest neither has changed."""

    mtime: int
    size: int
    digest: bytes


def is_noise(path: PurePosixPath) -> bool:
    """Say whether nobody means a file when it changes: caches, and what editors keep beside one."""
    folders = any(part.startswith(".") or part in FOLDERS for part in path.parts[:-1])
    name = path.name
    return folders or name == PROBE or name.endswith(ENDINGS) or name.startswith(STARTS)


class Project:
    """A folder, and its files as they were at the last look.

    :param root: the folder. :param left_out: folders and files in it that nobody asks about.
    """

    def __init__(self, root: Path, left_out: Iterable[Path] = ()) -> None:
        self.root = root
        self._left_out = tuple(left_out)
        self._files: dict[PurePosixPath, Stamp] = {}
        self._new: set[PurePosixPath] = set()

    def look(self) -> set[PurePosixPath]:
        """Give the files that have come, gone or got other content since the last look."""
        before, self._files = self._files, {}
        for path in self._listed():
            stamp = self._stamp(path, before.get(path))
            if stamp is not None:
                self._files[path] = stamp
        self._new = {path for path in self._files if path not in before}
        return self._new | {path for path, stamp in before.items() if self._differs(path, stamp)}

    def has(self, path: PurePosixPath) -> bool:
        """Say whether a file was there at the last look."""
        return path in self._files

    def came_by(self, path: PurePosixPath, moment: int) -> bool:
        """Say whether a file was new at the last look, and written until a moment."""
        return path in self._new and self.is_older(path, moment)

    def is_older(self, path: PurePosixPath, moment: int) -> bool:
        """Say whether a file was last written until a moment, in nanoseconds of the clock."""
        stamp = self._files.get(path)
        return stamp is not None and stamp.mtime <= moment

    def sources(self) -> Iterator[tuple[PurePosixPath, bytes]]:
        """Give each Python file with the digest of its content."""
        for path, stamp in self._files.items():
            if path.suffix == ".py":
                yield path, stamp.digest

    def read(self, path: PurePosixPath) -> bytes:
        """Read a file; one that is gone meanwhile reads empty."""
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return b""

    def _differs(self, path: PurePosixPath, stamp: Stamp) -> bool:
        now = self._files.get(path)
        return now is None or now.digest != stamp.digest

    def _listed(self) -> Iterator[PurePosixPath]:
        try:
            names: Iterable[str] = git.list_files(self.root).files
        except (git.NoGitError, UsageError):
            names = self._walked()
        for path in map(PurePosixPath, names):
            place = self.root / path
            if not is_noise(path) and not any(map(place.is_relative_to, self._left_out)):
                yield path

    def _walked(self) -> Iterator[str]:
        for folder, names, files in os.walk(self.root):
            inside = Path(folder).relative_to(self.root)
            names[:] = [
                name
                for name in names
                if not is_noise(PurePosixPath(name, "x"))
                and not Path(folder, name, "pyvenv.cfg").exists()
            ]
            yield from ((inside / name).as_posix() for name in files)

    def _stamp(self, path: PurePosixPath, before: Stamp | None) -> Stamp | None:
        try:
            found = (self.root / path).stat()
            if before and (before.mtime, before.size) == (found.st_mtime_ns, found.st_size):
                return before
            with (self.root / path).open("rb") as file:
                digest = hashlib.file_digest(file, "blake2b").digest()
        except OSError:
            return None
        return Stamp(found.st_mtime_ns, found.st_size, digest)
