"""Which test files need one package, by their source and that of what they import of the project.

Reads source, imports nothing and runs nothing. Knows how imports are written; knows neither marks
nor cards.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_remotegpu.imports import needs_of

__all__ = ["Need", "Needing"]

MOST_FILES: Final = 500
"""Files that are followed from one test file."""
CONFTEST: Final = "conftest.py"
SKIPS: Final = "importorskip"
IMPORT: Final = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n#;]*))"
    rb"|import[ \t]+([^\n#;]*))",
    re.MULTILINE,
)
"""One import; the groups are the dots, the name after them, and what is taken from there."""
NAME: Final = re.compile(rb"\s*([\w.]+)")


class Need(Struct, frozen=True):
    """That a test file has to do with the package.

    :ivar file: which names it: itself, a conftest above it, or a module that it imports.
    :ivar sure: whether none of its tests can run where the package can't be used.
    """

    file: Path
    sure: bool


class Needing:
    """Looks for one package; each file is read once.

    :param root: of the project; conftests above it are none of its own.
    :param folders: where modules are looked for, beside the file that imports them.
    """

    def __init__(self, package: str, root: Path, folders: Sequence[Path]) -> None:
        self._package = package
        self._root = root
        self._folders = list(folders)
        self._sources: dict[Path, bytes] = {}
        self._imports: dict[Path, list[Path]] = {}
        self._found: dict[tuple[Path, tuple[str, ...]], list[Path]] = {}

    def of(self, path: Path) -> Need | None:
        """Look at one test file; ``None`` where nothing that it loads names the package."""
        if self._names(path):
            return Need(path, self._is_sure(path))
        file = next(filter(self._names, self.loaded_by(path)), None)
        return None if file is None else Need(file, sure=False)

    def _source(self, path: Path) -> bytes:
        if path not in self._sources:
            try:
                self._sources[path] = path.read_bytes()
            except OSError:
                self._sources[path] = b""
        return self._sources[path]

    def _names(self, path: Path) -> bool:
        """Say whether a file imports the package, be it under conditions or in a function."""
        source = self._source(path)
        needs = needs_of(source) if self._package.encode() in source else None
        return needs is not None and any(map(self._is_it, needs.names))

    def _is_it(self, name: str) -> bool:
        return name.partition(".")[0] == self._package

    def _is_sure(self, path: Path) -> bool:
        """Say whether a file imports it at its top, where no condition stands before it."""
        for node in ast.parse(self._source(path)).body:
            match node:
                case ast.Import():
                    names = [alias.name for alias in node.names]
                case ast.ImportFrom(level=0):
                    names = [node.module or ""]
                case ast.Expr() | ast.Assign() | ast.AnnAssign():
                    names = list(_skipped(node))
                case _:
                    continue
            if any(map(self._is_it, names)):
                return True
        return False

    def loaded_by(self, path: Path) -> Iterator[Path]:
        """Give the files of the project that are loaded with a test file, the nearest first.

        Of what lies in the other folders that modules are looked for in, too.
        """
        above = [folder / CONFTEST for folder in path.parents if self._is_inside(folder)]
        todo = [path, *filter(Path.is_file, above)]
        seen = set(todo)
        yield from todo[1:]
        while todo and len(seen) < MOST_FILES:
            for other in self._imported_by(todo.pop(0)):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
                    yield other

    def _is_inside(self, folder: Path) -> bool:
        return folder == self._root or folder.is_relative_to(self._root)

    def _imported_by(self, path: Path) -> list[Path]:
        if path not in self._imports:
            found: dict[Path, None] = {}
            for match in IMPORT.finditer(self._source(path)):
                for level, parts in _imported(match):
                    found.update(dict.fromkeys(self._find(path, level, parts)))
            self._imports[path] = list(found)
        return self._imports[path]

    def _find(self, importer: Path, level: int, parts: tuple[str, ...]) -> list[Path]:
        """Give the files of a module and of the packages that it is in; none if not the project's.

        :param level: how many dots stand before the name.
        """
        near = [*importer.parents][level - 1 : level] if level else [importer.parent]
        for folder in near if level else [*near, *self._folders]:
            key = (folder, parts)
            if key not in self._found:
                self._found[key] = list(_files(folder, parts))
            if self._found[key]:
                return self._found[key]
        return []


def _skipped(node: ast.AST) -> Iterator[str]:
    """Give the modules without which a statement skips the whole file."""
    for part in ast.walk(node):
        match part:
            case ast.Call(
                func=ast.Attribute(attr=name) | ast.Name(id=name),
                args=[ast.Constant(value=str(module)), *_],
            ) if name == SKIPS:
                yield module


def _imported(match: re.Match[bytes]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Give the modules that an import may mean: dots before the name, and its parts."""
    dots, base, listed, plain, modules = match.groups()
    if modules is not None:
        for name in _cut(modules):
            yield 0, name
        return
    below = tuple(filter(None, base.decode().split(".")))
    yield len(dots), below
    for name in _cut(listed or plain or b""):
        yield len(dots), (*below, *name)


def _cut(listed: bytes) -> Iterator[tuple[str, ...]]:
    for each in listed.split(b","):
        if found := NAME.match(each):
            yield tuple(filter(None, found[1].decode().split(".")))


def _files(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """Give what Python would load for a name below a folder, as far as it is there."""
    for length in range(len(parts) + 1):
        base = Path(folder, *parts[:length])
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if length and path.is_file():
                yield path
