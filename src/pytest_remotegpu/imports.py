"""Which files of a project import which, as far as their source says it.

Values in, values out: reads no file by itself and runs none. Where it can't be sure, it says that a
file may depend on more than it does, never on less.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

__all__ = ["Graph", "Needs", "needs_of"]

CONFTEST: Final = "conftest.py"
PACKAGE: Final = "__init__.py"
BY_NAME: Final = frozenset({"import_module", "__import__", "importorskip", "run_module"})
"""Functions that import the module whose name they are given."""
PLUGINS: Final = "pytest_plugins"


@dataclass(frozen=True)
class Needs:
    """What one file says that it needs.

    :ivar names: modules with their dots; one that may be an attribute instead is among them.
    :ivar relative: the same for relative imports: how many folders up, and the name from there.
    :ivar unsure: whether it may import anything else.
    """

    names: frozenset[str] = frozenset()
    relative: frozenset[tuple[int, str]] = frozenset()
    unsure: bool = False


def needs_of(source: str | bytes) -> Needs | None:
    """Read what a source imports; ``None`` for one that is no Python as yet."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    relative: set[tuple[int, str]] = set()
    unsure = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found = {base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)} - {""}
            if node.level:
                relative.update((node.level, name) for name in (found or {""}))
            else:
                names.update(found)
        elif isinstance(node, ast.Call) and _name(node.func) in BY_NAME:
            texts = _texts(node.args[:1])
            names.update(texts)
            unsure = unsure or not texts or any(text.startswith(".") for text in texts)
        elif _assigns_plugins(node):
            texts = _texts([node.value])  # type: ignore[attr-defined]
            names.update(texts)
            unsure = unsure or not texts
    return Needs(frozenset(names), frozenset(relative), unsure)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _assigns_plugins(node: ast.AST) -> bool:
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return _name(node.target) == PLUGINS and node.value is not None
    return isinstance(node, ast.Assign) and PLUGINS in map(_name, node.targets)


def _texts(nodes: Iterable[ast.expr | None]) -> set[str]:
    """Give the literal texts in a value: one, or those of a list; none where one is no literal."""
    texts: set[str] = set()
    for node in nodes:
        parts = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]
        for part in parts:
            if not (isinstance(part, ast.Constant) and isinstance(part.value, str)):
                return set()
            texts.add(part.value)
    return texts


class Graph:
    """The files of a project at one moment, and who needs whom.

    :param files: Python files as paths below the project's root, and what each needs; ``None`` for
        one that can't be read, which may need anything.
    """

    def __init__(self, files: Mapping[PurePosixPath, Needs | None]) -> None:
        self._tails: dict[str, list[PurePosixPath]] = defaultdict(list)
        for path in files:
            self._tails[_dotted(path)[-1:][0] if _dotted(path) else ""].append(path)
        self._users: dict[PurePosixPath, set[PurePosixPath]] = defaultdict(set)
        self._unsure: set[PurePosixPath] = set()
        for path, needs in files.items():
            for needed in {*self._surroundings(path, files), *self._needed(path, needs)}:
                self._users[needed].add(path)
            if needs is None or needs.unsure:
                self._unsure.add(path)

    def affected(self, changed: Iterable[PurePosixPath]) -> set[PurePosixPath]:
        """Give all files that may act otherwise once some have changed, those included."""
        todo = [*changed]
        if any(path.suffix == ".py" for path in todo):
            todo += self._unsure
        found: set[PurePosixPath] = set()
        while todo:
            path = todo.pop()
            if path not in found:
                found.add(path)
                todo += self._users.get(path, ())
        return found

    @staticmethod
    def _surroundings(
        path: PurePosixPath, files: Mapping[PurePosixPath, object]
    ) -> Iterator[PurePosixPath]:
        """Give what is loaded before a file: conftests above it, and the packages that it is in."""
        for folder in path.parents:
            for name in (CONFTEST, PACKAGE):
                above = folder / name
                if above in files and above != path:
                    yield above

    def _needed(self, path: PurePosixPath, needs: Needs | None) -> Iterator[PurePosixPath]:
        if needs is None:
            return
        for name in needs.names:
            parts = name.split(".")
            for length in range(1, len(parts) + 1):
                yield from self._named(parts[:length])
        for level, name in needs.relative:
            base = path.parents[level - 1] if level <= len(path.parents) else None
            if base is not None:
                yield from self._below(base, name.split(".") if name else [])

    def _named(self, parts: list[str]) -> Iterator[PurePosixPath]:
        """Find the files that a name may mean: each whose path ends so, wherever it is in."""
        for path in self._tails.get(parts[-1], ()):
            if _dotted(path)[-len(parts) :] == parts:
                yield path

    def _below(self, base: PurePosixPath, parts: list[str]) -> Iterator[PurePosixPath]:
        yield base / PACKAGE
        for length in range(1, len(parts) + 1):
            place = base.joinpath(*parts[:length])
            yield place / PACKAGE
            yield place.with_name(f"{place.name}.py")


def _dotted(path: PurePosixPath) -> list[str]:
    """Give the parts of the longest name under which a file may be imported."""
    return [*path.parts[:-1]] if path.name == PACKAGE else [*path.parts[:-1], path.stem]
