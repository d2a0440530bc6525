"""What is installed, read once: pytest looks through all distributions whenever it starts.

The zygote reads them, its forks find them read. A folder of the import path that has changed since
is read anew. Knows the metadata of packages, and nothing of tests.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.metadata
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, EntryPoints, PackagePath
from typing import Any, Final

__all__ = ["files", "kept"]

ENTRY_POINTS: Final = "entry_points.txt"


class _Kept(Distribution):
    """A distribution whose texts are read once.

    :param found: as importlib finds it.
    """

    def __init__(self, found: Distribution) -> None:
        self._found = found
        self._texts: dict[str, str | None] = {}
        self._points: EntryPoints | None = None
        self._files: list[PackagePath] | None = None
        self._listed = False

    @property
    def entry_points(self) -> EntryPoints:
        """Its entry points, which are read once as well."""
        if self._points is None:
            self._points = super().entry_points
        return self._points

    @property
    def files(self) -> list[PackagePath] | None:
        """Its files, as they were listed when it was installed; that list is read once as well."""
        if not self._listed:
            self._files, self._listed = super().files, True
        return self._files

    def read_text(self, filename: str) -> str | None:
        """Read one of its texts."""
        if filename not in self._texts:
            self._texts[filename] = self._found.read_text(filename)
        return self._texts[filename]

    @property
    def path(self) -> str:
        """The file that names its entry points; it need not be there."""
        # importlib has no public name for where a distribution's texts lie. Without it a change of
        # this file is noticed only where the folder around it, or a module, changes as well.
        return f"{getattr(self._found, '_path', '')}/{ENTRY_POINTS}"

    def locate_file(self, path: Any) -> Any:
        """Say where one of its files lies."""
        return self._found.locate_file(path)


_FOLDERS: Final[dict[str, tuple[int, list[_Kept]]]] = {}
"""By folder: when it was changed last, in nanoseconds, and what lies in it."""


def _in(folder: str) -> list[_Kept]:
    try:
        changed = os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 -- for each entry of the path
    except OSError:
        return []
    known = _FOLDERS.get(folder)
    if known is None or known[0] != changed:
        found = importlib.metadata.Distribution.discover(path=[folder])
        known = _FOLDERS[folder] = (changed, [_Kept(distribution) for distribution in found])
    return known[1]


def _all(**context: Any) -> Iterable[Distribution]:
    if context or not _is_usual():
        return Distribution.discover(**context)
    return [distribution for folder in sys.path for distribution in _in(folder)]


def _is_usual() -> bool:
    """Say whether nobody but Python's own finder looks for distributions."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    return finders == [importlib.machinery.PathFinder]


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Let :func:`importlib.metadata.distributions` give what has been read, for a while."""
    original = importlib.metadata.distributions
    importlib.metadata.distributions = _all
    try:
        yield
    finally:
        importlib.metadata.distributions = original


def files() -> list[str]:
    """List the files that say which plugins there are, for whoever keeps watch on changes."""
    return [kept.path for _changed, found in _FOLDERS.values() for kept in found]
