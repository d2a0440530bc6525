"""A static look at a test file: whether it has the gpu mark, and for which shapes.

Reads source, imports nothing and runs nothing, so that either side can ask about a file that it
could never import. Knows how marks are written; knows no pytest, no session and no wire.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, field

from pytest_remotegpu import gpu
from pytest_remotegpu.classify.reading import Definition, Function, Module, bindings, statements
from pytest_remotegpu.errors import MarkerError
from pytest_remotegpu.gpu import Shape

__all__ = ["Classifier", "Judgement"]

DEEPEST: Final = 8
"""Files that are followed from one to the next for a name."""
LARGEST: Final = 4 * 2**20
"""Bytes of a source file that is looked at."""
PYTEST: Final = "pytest"
MARK: Final = "pytest.mark"
PARAM: Final = "pytest.param"


class Judgement(Struct, frozen=True):
    """What a file's source says of it.

    :ivar verdict: ``gpu`` where it has the mark, ``unclear`` where a decorator or an import can't
        be followed, else ``plain``.
    :ivar shapes: those that its marks ask for; ``None`` where that does not stand in the source.
    """

    verdict: Literal["gpu", "plain", "unclear"]
    shapes: frozenset[Shape] | None = frozenset()


class _Mark(Struct, frozen=True):
    """One mark that means gpu; ``given`` is ``None`` where its arguments are no literals."""

    given: tuple[tuple[Any, ...], Mapping[str, Any]] | None


class _Marks(Struct):
    """The gpu marks of an expression; ``unclear`` where a part of it can't be followed."""

    found: list[_Mark] = field(default_factory=list)
    unclear: bool = False

    def add(self, other: _Marks) -> None:
        self.found += other.found
        self.unclear = self.unclear or other.unclear


class Classifier:
    """Judges files; each is read once.

    :param folders: where modules of the project are looked for, beside the file that imports them.
    :param aliases: names of markers, and the arguments of ``gpu`` that they stand for.
    """

    def __init__(
        self, folders: Sequence[Path], aliases: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self._folders = list(folders)
        self._aliases = dict(aliases or {})
        self._modules: dict[Path, Module | None] = {}

    def judge(self, path: Path) -> Judgement:
        """Look at one file; one that can't be read or parsed is ``unclear``."""
        module = self._module(path)
        if module is None:
            return Judgement("unclear", None)
        look = _Look(self, module)
        look.run()
        if look.marked:
            return Judgement("gpu", None if look.vague else frozenset(look.shapes) or None)
        return Judgement("unclear" if look.unclear else "plain")

    def mark(self, name: str, call: ast.Call | None) -> _Mark | None:
        """Give what a marker of this name means, where that is gpu."""
        if name in self._aliases:
            own = _Mark(((), {})) if call is None else _literal(call)
            args, words = own.given or ((), {})
            try:
                return _Mark(((), gpu.bind(self._aliases[name], args, words)))
            except MarkerError:  # its argument is not known, or is missing
                return _Mark(None)
        if name != gpu.MARK:
            return None
        return _Mark(((), {})) if call is None else _literal(call)

    def _module(self, path: Path) -> Module | None:
        if path not in self._modules:
            self._modules[path] = None  # a file that imports itself is no news
            try:
                if path.stat().st_size <= LARGEST:
                    self._modules[path] = Module(path, ast.parse(path.read_bytes()))
            except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
                pass
        return self._modules[path]

    def find(self, importer: Path, level: int, name: str) -> Module | None:
        """Find a module of the project.

        :param level: how many dots stand before the name.
        """
        folders = [*importer.parents][level - 1 : level] if level else self._folders
        folders = folders if level else [importer.parent, *folders]
        parts = name.split(".") if name else []
        for folder in folders:
            base = Path(folder, *parts)
            for path in (base.with_suffix(".py") if parts else base, base / "__init__.py"):
                if path.suffix == ".py" and path.is_file():
                    return self._module(path)
        return None


class _Look:
    """The look at one file: goes through all that may carry a mark."""

    def __init__(self, classifier: Classifier, module: Module) -> None:
        self._classifier = classifier
        self._module = module
        self.marked = self.vague = self.unclear = False
        self.shapes: set[Shape] = set()

    def run(self) -> None:
        resolver = _Resolver(self._classifier)
        outer = _Marks()
        for value in self._module.values.get("pytestmark", ()):
            outer.add(resolver.marks(self._module, value))
        self._note(outer)
        scopes = [outer.found] if outer.found else []
        for node in self._module.definitions.values():
            self._definition(resolver, self._module, node, scopes)
        self._imported(resolver, scopes)
        for values in self._module.values.values():
            for value in values:
                self._note(resolver.parameters(self._module, value))

    def _note(self, marks: _Marks) -> None:
        self.marked = self.marked or bool(marks.found)
        self.unclear = self.unclear or marks.unclear
        self.vague = self.vague or any(mark.given is None for mark in marks.found)

    def _imported(self, resolver: _Resolver, scopes: list[list[_Mark]]) -> None:
        """Look at tests that are collected here although another file defines them."""
        for name in self._module.imports:
            found = resolver.definition(self._module, name)
            if found is not None and name.lower().startswith("test"):
                self._definition(resolver, found[0], found[1], scopes)
        for level, name in self._module.stars:
            other = self._classifier.find(self._module.path, level, name)
            self.unclear = self.unclear or other is None
            if other is not None and other is not self._module:
                for node in other.definitions.values():
                    self._definition(resolver, other, node, scopes)

    def _definition(
        self, resolver: _Resolver, module: Module, node: Definition, scopes: list[list[_Mark]]
    ) -> None:
        own = resolver.own(module, node)
        self._note(own)
        chain = [own.found, *scopes] if own.found else scopes
        if isinstance(node, ast.ClassDef):
            inner = [n for n in statements(node.body) if isinstance(n, Definition)]
            for child in inner:
                self._definition(resolver, module, child, chain)
            if not any(_is_test(child) for child in inner) and own.found:
                self._shape(chain)  # its tests are inherited
            return
        parameters = resolver.of_parameters(module, node)
        self._note(parameters)
        for mark in parameters.found:
            self._shape([[mark], *chain])
        if node.name == "pytest_generate_tests" and resolver.mentions(module, node).found:
            self.marked = self.vague = True
        if chain and (_is_test(node) or own.found):
            self._shape(chain)

    def _shape(self, chain: list[list[_Mark]]) -> None:
        marks = [mark.given for level in chain for mark in level]
        given = [mark for mark in marks if mark is not None]
        if len(given) < len(marks):
            self.vague = True
            return
        try:
            self.shapes.add(gpu.merge_marks(given))
        except MarkerError:
            self.vague = True  # the test says so, once it is collected


class _Resolver:
    """Follows names, within a file and from one to the next."""

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._open: list[tuple[Path, str]] = []

    # what a name stands for

    def dotted(self, module: Module, node: ast.expr) -> str:
        """Give what an expression names, such as ``pytest.mark.gpu``; empty where it names none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        level, base, name = module.imports.get(node.id, (1, "", ""))
        if level:
            return ""
        return ".".join([*filter(None, (base, name)), *reversed(parts)])

    def definition(self, module: Module, name: str) -> tuple[Module, Definition] | None:
        """Find the function or class that a name stands for, in this file or in another one."""
        for _ in range(DEEPEST):
            if name in module.definitions:
                return module, module.definitions[name]
            level, base, imported = module.imports.get(name, (0, "", ""))
            other = self._classifier.find(module.path, level, base) if imported else None
            if other is None:
                return None
            module, name = other, imported
        return None

    def _named(self, module: Module, name: str) -> _Marks | None:
        """Give the marks that a name stands for; ``None`` where nobody knows the name."""
        key = (module.path, name)
        if key in self._open or len(self._open) > DEEPEST:
            return None
        self._open.append(key)
        try:
            return self._look_up(module, name)
        finally:
            self._open.pop()

    def _look_up(self, module: Module, name: str) -> _Marks | None:
        if name in module.values:
            total = _Marks()
            for value in module.values[name]:
                total.add(self.marks(module, value))
            return total
        if name in module.definitions:
            node = module.definitions[name]
            return self.mentions(module, node) if isinstance(node, Function) else _Marks()
        if name in module.imports:
            level, base, imported = module.imports[name]
            other = self._classifier.find(module.path, level, base) if imported else None
            return None if other is None else self._named(other, imported)
        for level, base in module.stars:
            other = self._classifier.find(module.path, level, base)
            found = None if other is None else self._named(other, name)
            if found is not None:
                return found
        return None

    def _attribute(self, module: Module, node: ast.Attribute) -> _Marks | None:
        """Follow ``helpers.needs_gpu``, where ``helpers`` is a module of the project."""
        path = [node.attr]
        value: ast.expr = node.value
        while isinstance(value, ast.Attribute):
            path.append(value.attr)
            value = value.value
        if not isinstance(value, ast.Name) or value.id not in module.imports:
            return None
        level, base, name = module.imports[value.id]
        whole = ".".join(filter(None, (base, name, *reversed(path[1:]))))
        other = self._classifier.find(module.path, level, whole)
        return None if other is None else self._named(other, path[0])

    # marks

    def marks(self, module: Module, node: ast.expr) -> _Marks:
        """Give the gpu marks that an expression stands for, as a decorator or in a list."""
        match node:
            case ast.List() | ast.Tuple() | ast.Set():
                return self._all(module, node.elts)
            case ast.Starred():
                return self.marks(module, node.value)
            case ast.BinOp(op=ast.Add()):
                return self._all(module, [node.left, node.right])
            case ast.IfExp():
                return self._all(module, [node.body, node.orelse])
            case ast.Call():
                return self._called(module, node)
            case ast.Name() | ast.Attribute():
                return self._plain(module, node)
        return _Marks(unclear=not isinstance(node, ast.Constant))

    def _all(self, module: Module, nodes: Iterable[ast.expr]) -> _Marks:
        total = _Marks()
        for node in nodes:
            total.add(self.marks(module, node))
        return total

    def _plain(self, module: Module, node: ast.Name | ast.Attribute) -> _Marks:
        name = self.dotted(module, node)
        if name.startswith(f"{MARK}."):
            mark = self._classifier.mark(name.removeprefix(f"{MARK}."), None)
            return _Marks([mark] if mark else [])
        if isinstance(node, ast.Name):
            found = self._named(module, node.id)
        else:
            found = self._attribute(module, node)
        known = name.partition(".")[0] in {PYTEST, "functools", "contextlib", "unittest"}
        builtin = isinstance(node, ast.Name) and node.id in {"staticmethod", "classmethod"}
        return _Marks(unclear=not (known or builtin)) if found is None else found

    def _called(self, module: Module, node: ast.Call) -> _Marks:
        name = self.dotted(module, node.func)
        if name.startswith(f"{MARK}."):
            marker = name.removeprefix(f"{MARK}.").removesuffix(".with_args")
            mark = self._classifier.mark(marker, node)
            return _Marks([mark] if mark else [])
        base = self.marks(module, node.func)
        if not base.found:
            return base
        # the name of a mark that gets further arguments, or a function that makes one
        return _Marks([_Mark(None) for _ in base.found], base.unclear)

    def own(self, module: Module, node: Definition) -> _Marks:
        """Give the marks of a function or class itself, those of a class's bases with it."""
        total = self._all(module, node.decorator_list)
        if not isinstance(node, ast.ClassDef):
            return total
        for statement in statements(node.body):
            for name, value in bindings(statement):
                if name == "pytestmark":
                    total.add(self.marks(module, value))
        for base in node.bases:
            total.add(self._base(module, base))
        return total

    def _base(self, module: Module, node: ast.expr) -> _Marks:
        name = node.id if isinstance(node, ast.Name) else ""
        found = self.definition(module, name) if name else None
        if found is None or not isinstance(found[1], ast.ClassDef):
            return _Marks()
        key = (found[0].path, found[1].name)
        if key in self._open or len(self._open) > DEEPEST:
            return _Marks()
        self._open.append(key)
        try:
            return self.own(*found)
        finally:
            self._open.pop()

    def of_parameters(self, module: Module, node: Function) -> _Marks:
        """Give the marks of a function's parameters."""
        total = _Marks()
        for decorator in node.decorator_list:
            total.add(self.parameters(module, decorator))
        return total

    def parameters(self, module: Module, node: ast.expr) -> _Marks:
        """Give the marks of all ``pytest.param`` in an expression, and in lists that it names."""
        total = _Marks()
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and self.dotted(module, part.func) == PARAM:
                for word in part.keywords:
                    if word.arg == "marks":
                        total.add(self.marks(module, word.value))
            elif isinstance(part, ast.Name):
                total.add(self._listed(module, part.id))
        return total

    def _listed(self, module: Module, name: str) -> _Marks:
        """Give the marks in a list of parameters that has a name."""
        key = (module.path, f"[{name}]")
        total = _Marks()
        if key in self._open or len(self._open) > DEEPEST:
            return total
        self._open.append(key)
        try:
            for value in module.values.get(name, ()):
                total.add(self.parameters(module, value))
            level, base, imported = module.imports.get(name, (0, "", ""))
            other = self._classifier.find(module.path, level, base) if imported else None
            if other is not None:
                total.add(self._listed(other, imported))
        finally:
            self._open.pop()
        return total

    def mentions(self, module: Module, node: Function) -> _Marks:
        """Give the marks that stand in a function's body: what it returns may carry them."""
        found: list[_Mark] = []
        called: set[int] = set()
        for part in ast.walk(node):
            if id(part) in called or not isinstance(part, ast.Call | ast.Attribute):
                continue
            name = self.dotted(module, part.func if isinstance(part, ast.Call) else part)
            if name.startswith(f"{MARK}."):
                if isinstance(part, ast.Call):
                    called.add(id(part.func))
                if self._classifier.mark(name.removeprefix(f"{MARK}."), None):
                    found.append(_Mark(None))
        return _Marks(found)


def _literal(call: ast.Call) -> _Mark:
    """Read a mark's arguments, where they are literals."""
    try:
        args = tuple(ast.literal_eval(argument) for argument in call.args)
        words = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return _Mark(None)
    known = all(word.arg for word in call.keywords)
    return _Mark((args, words) if known else None)


def _is_test(node: Definition) -> bool:
    return node.name.lower().startswith("test")
