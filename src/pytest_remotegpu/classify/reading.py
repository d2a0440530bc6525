"""What stands in a source file: its statements, and what its names are bound to.

Knows the language; knows no marks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["Definition", "Function", "Module", "bindings", "statements"]

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One source file: what its names stand for.

    :ivar values: the expressions that names are bound to, at the top of the module.
    :ivar definitions: its functions and classes. :ivar imports: dotted names by local name.
    """

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path = path
        self.body = list(statements(tree.body))
        self.values: dict[str, list[ast.expr]] = {}
        self.definitions: dict[str, Definition] = {}
        self.imports: dict[str, tuple[int, str, str]] = {}
        self.stars: list[tuple[int, str]] = []
        for node in self.body:
            self._read(node)

    def _read(self, node: ast.stmt) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    top = alias.name if alias.asname else alias.name.partition(".")[0]
                    self.imports[alias.asname or top] = (0, top, "")
            case ast.ImportFrom():
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append((node.level, node.module or ""))
                    else:
                        target = (node.level, node.module or "", alias.name)
                        self.imports[alias.asname or alias.name] = target
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definitions[node.name] = node
            case _:
                for name, value in bindings(node):
                    self.values.setdefault(name, []).append(value)


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Give the statements of a module or class, those within its conditions and blocks as well."""
    for node in body:
        yield node
        if isinstance(node, Definition):
            continue
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                yield from statements(inner)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(part.body)


def bindings(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Give the names that a statement binds, each with its expression."""
    match node:
        case ast.Assign():
            for target in node.targets:
                yield from _targets(target, node.value)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield name, value


def _targets(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case (
            (ast.Tuple(elts=names) | ast.List(elts=names)),
            (ast.Tuple(elts=values) | ast.List(elts=values)),
        ) if len(names) == len(values):
            for one, other in zip(names, values, strict=True):
                yield from _targets(one, other)
