"""Which files of a session are to be collected on the far side: found before anything is imported.

Walks the folders that pytest will walk, and has each file judged from its source. Knows pytest's
settings; knows no worker. A file that pytest then leaves out is told in vain; one that is missed
here is collected here.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pytest_remotegpu.classify import Classifier, Judgement
from pytest_remotegpu.config import Settings
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.snapshot import globs

__all__ = ["Candidates", "folders_of"]


def folders_of(config: pytest.Config) -> list[Path]:
    """Give the folders of the project that modules are imported from."""
    root, given = config.rootpath, config.getini("pythonpath")
    return [root, *map(Path, given), root / "src", config.invocation_params.dir]


class Candidates:
    """Finds and judges the files of one session.

    :ivar unsure: files that may have the mark although their source does not show it.
    :ivar plain: files that are collected there only because all tests are shipped.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._root = config.rootpath
        self._ships_all = settings.ship_all
        self._named = globs.parse("remotegpu_files", settings.files)
        self._classifier = Classifier(folders_of(config), settings.aliases)
        self._judged: dict[Path, Judgement] = {}
        self.unsure: list[Path] = []
        self.plain: list[Path] = []
        self._patterns = [str(pattern) for pattern in config.getini("python_files")]
        self._not_into = [str(pattern) for pattern in config.getini("norecursedirs")]
        self._ignored = {
            self._absolute(path) for path in config.getoption("ignore", None) or () if path
        }

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

    def find(self) -> dict[Path, frozenset[Shape]]:
        """Give the files to be collected there by their marks, with the shapes of their sources."""
        found: dict[Path, frozenset[Shape]] = {}
        for argument in map(str, self._config.args):
            path = self._path_of(argument.partition("::")[0])
            given = [path] if path.is_file() else self._walk(path)
            for file in given:
                if file in found:
                    continue  # it is named twice
                if (judged := self.shapes_of(file)) is not None:
                    found[file] = judged
                elif self._ships_all and file.suffix == ".py":
                    self.plain.append(file)
                elif file.suffix == ".py" and not self.is_plain(file):
                    self.unsure.append(file)
        return found

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

    def _walk(self, folder: Path) -> Iterator[Path]:
        for base, folders, files in os.walk(folder):
            here = Path(base)
            folders[:] = sorted(name for name in folders if self._goes_into(here / name))
            for name in sorted(files):
                path = here / name
                if path not in self._ignored and self._is_test_file(path):
                    yield path

    def _goes_into(self, folder: Path) -> bool:
        if folder.name == "__pycache__" or folder in self._ignored:
            return False
        if any((folder / mark).exists() for mark in ("pyvenv.cfg", "conda-meta")):
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
