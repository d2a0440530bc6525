"""Which files of a session are to be collected on the far side: found before anything is imported.

Walks the folders that pytest will walk, and has each file judged from its source. Knows pytest's
settings; knows no worker. A file that pytest then leaves out is told in vain; one that is missed
here is collected here.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu.classify import Classifier, Judgement
from pytest_remotegpu.config import Settings
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.snapshot import globs

__all__ = ["Candidates", "folders_of", "ini"]

MOST_AGAIN: Final = 1_000
"""Links to folders walked already that are followed, which two loops in one folder multiply."""


def ini(config: pytest.Config, name: str) -> Any:
    """Read an ini option of one of pytest's plugins; ``None`` where that is left out by ``-p``."""
    try:
        return config.getini(name)
    except ValueError:
        return None


def folders_of(config: pytest.Config) -> list[Path]:
    """Give the folders of the project that modules are imported from."""
    root, given = config.rootpath, ini(config, "pythonpath") or ()
    return [root, *map(Path, given), root / "src", config.invocation_params.dir]


class Candidates:
    """Finds and judges the files of one session.

    :ivar unsure: files that may have the mark although their source does not show it.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._root = config.rootpath
        self._ships_all = settings.ship_all
        self._named = globs.parse("remotegpu_files", settings.files)
        self._classifier = Classifier(folders_of(config), settings.aliases)
        self._judged: dict[Path, Judgement] = {}
        self.unsure: list[Path] = []
        self._patterns = [str(pattern) for pattern in config.getini("python_files")]
        self._not_into = [str(pattern) for pattern in config.getini("norecursedirs")]
        option = config.getoption
        self._ignored = {self._absolute(path) for path in option("ignore", None) or () if path}
        globbed = option("ignore_glob", None) or ()
        self._ignored_globs = [str(self._absolute(path)) for path in globbed if path]
        self._into_venvs = bool(option("collect_in_virtualenv", default=False))

    def _absolute(self, path: object) -> Path:
        return Path(os.path.normpath(self._config.invocation_params.dir / str(path)))

    def _path_of(self, argument: str) -> Path:
        """Give the path of an argument, which with ``--pyargs`` may be the name of a module.

        It is looked for where modules are, and not imported, as its package would be.
        """
        path = self._absolute(argument)
        if not self._config.option.pyargs or path.exists():
            return path
        parts = argument.split(".")
        for folder in (*folders_of(self._config), *map(Path, sys.path)):
            found = Path(folder, *parts)
            for place in (found, found.with_name(f"{found.name}.py")):
                if place.is_dir() or place.is_file():
                    return place
        return path

    def find(self) -> dict[Path, frozenset[Shape] | None]:
        """Give the files to be collected there, each with the shapes that its source shows.

        They are in the order in which pytest comes upon them.

        :return: ``None`` for a file that is collected there only because all tests are shipped.
        """
        found: dict[Path, frozenset[Shape] | None] = {}
        for file in self._given():
            if file in found:
                continue  # it is named twice
            if (judged := self.shapes_of(file)) is not None:
                found[file] = judged
            elif self._ships_all and file.suffix == ".py":
                found[file] = None
            elif file.suffix == ".py" and not self.is_plain(file):
                self.unsure.append(file)
        return found

    def _given(self) -> Iterator[Path]:
        """Give the files of all arguments, in the order in which pytest comes upon them.

        From pytest 9 on, an argument that lies within another one adds nothing to that.
        """
        named = dict.fromkeys(str(each).partition("::")[0] for each in self._config.args)
        paths = dict.fromkeys(map(self._path_of, named))  # there may be thousands of ids
        within: list[Path] = []
        if pytest.version_tuple >= (9,) and not self._config.getoption("keepduplicates"):
            within = [path for path in paths if not paths.keys().isdisjoint(path.parents)]
        for path in within:
            paths[path] = paths.pop(path)  # they come last
        for path in paths:
            yield from [path] if path.is_file() else self._walk(path)

    def shapes_of(self, file: Path) -> frozenset[Shape] | None:
        """Judge one file: the shapes that it asks for, none where these can't be seen.

        :return: ``None`` where it is to be collected here.
        """
        named = self.is_named(file)
        judged = self._judge(file) if file.suffix == ".py" else None
        if judged is not None and judged.verdict == "gpu":
            return judged.shapes or frozenset()
        return frozenset() if named else None

    def is_plain(self, file: Path) -> bool:
        """Say whether a file certainly has no mark of its own."""
        return not self.is_named(file) and self._judge(file).verdict == "plain"

    def _judge(self, file: Path) -> Judgement:
        if file not in self._judged:
            self._judged[file] = self._classifier.judge(file)
        return self._judged[file]

    def is_named(self, file: Path) -> bool:
        """Say whether the user has named a file, as one that is collected there."""
        if not file.is_relative_to(self._root):
            return False
        parts = file.relative_to(self._root).parts
        return any(globs.covers(pattern, parts) for pattern in self._named)

    def _walk(self, top: Path) -> Iterator[Path]:
        """Give the test files of a folder in the order in which pytest comes upon them.

        That is the order of their imports. Folders and files are sorted together, and links to
        folders are followed as there, loops until the system refuses them.
        """
        walked = {_identity(top)}
        links = 0
        open_folders = [iter(_entries(top))]
        while open_folders:
            entry = next(open_folders[-1], None)
            if entry is None:
                open_folders.pop()
                continue
            path = Path(entry.path)
            if not entry.is_dir():
                if not self._is_ignored(path) and self._is_test_file(path):
                    yield path
                continue
            identity = _identity(path)
            links += entry.is_symlink() and identity in walked
            if self._goes_into(path) and not (entry.is_symlink() and links > MOST_AGAIN):
                walked.add(identity)
                open_folders.append(iter(_entries(path)))

    def _is_ignored(self, path: Path) -> bool:
        """Say whether an option leaves out a file or folder; conftests may leave out more."""
        globbed = any(fnmatch.fnmatch(str(path), each) for each in self._ignored_globs)
        return globbed or path in self._ignored

    def _goes_into(self, folder: Path) -> bool:
        if folder.name == "__pycache__" or self._is_ignored(folder):
            return False
        marks = ("pyvenv.cfg", "conda-meta/history")
        if not self._into_venvs and any(os.path.isfile(folder / mark) for mark in marks):  # noqa: PTH113 -- it may be unreadable
            return False
        return not _fits(folder, self._not_into)

    def _is_test_file(self, path: Path) -> bool:
        if self._named and self.is_named(path):
            return True
        return path.suffix == ".py" and _fits(path, self._patterns)


def _fits(path: Path, patterns: Iterable[str]) -> bool:
    """Match as pytest does: the name, or the path where the pattern has a slash."""
    return any(
        fnmatch.fnmatch(str(path), f"*/{pattern}" if not pattern.startswith("/") else pattern)
        if "/" in pattern
        else fnmatch.fnmatch(path.name, pattern)
        for pattern in patterns
    )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """List a folder as pytest does: by name, but the ``__init__.py`` of a package comes first.

    What can't be read has nothing; pytest will say so.
    """
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # a loop of links
                if entry.is_dir() or entry.is_file():
                    found.append(entry)
    return sorted(found, key=lambda entry: (entry.name != "__init__.py", entry.name))


def _identity(folder: Path) -> tuple[int, int]:
    """Tell a folder from others, by whatever path it is reached."""
    with contextlib.suppress(OSError):
        status = folder.stat()
        return status.st_dev, status.st_ino
    return 0, 0
