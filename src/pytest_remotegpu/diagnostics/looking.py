"""Whether what was named is there, as far as source text tells: nothing of the user's is run.

For a command line that is wrong, before torch is imported or a machine is rented. What can't be
known from the text is let through.
"""

from __future__ import annotations

import ast
import difflib
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from pytest_remotegpu.diagnostics.faults import NotMeantError, UserCodeError, raised

__all__ = ["BATCHES", "CONVENTIONS", "NO_BATCH", "look", "split"]

BATCHES: Final = (
    *("make_batch", "batch", "BATCH", "sample", "SAMPLE"),
    *("make_dataset", "dataset", "make_loader", "loader"),
)
"""Where a batch is looked for in the factory's module, in this order."""
CONVENTIONS: Final[Mapping[str, Sequence[str]]] = {
    "batch": BATCHES,
    "loss": ("loss", "loss_fn", "compute_loss", "criterion"),
    "optimizer": ("make_optimizer",),
    "train_step": ("train_step",),
    "accumulate": ("accumulate",),
    "count": ("count",),
    "wrap": ("wrap_model",),
    "rank_loss": ("rank_loss",),
}
NO_BATCH: Final = """\
no batch: {module} has none of {names}. Write there, for instance,

    def make_batch():
        return inputs, labels

or a mapping of what the model's forward takes, {{"input_ids": ..., "labels": ...}}; or name one \
with --batch=MODULE:NAME"""


@dataclass(frozen=True, slots=True)
class _Text:
    """What a module's text says.

    :ivar names: of its top level, with the definition where it is one. :ivar open: whether there
        may be more: a star import, or a ``__getattr__``.
    """

    names: Mapping[str, ast.AST]
    open: bool


def split(given: str, what: str, home: str = "") -> tuple[str, str]:
    """Split ``module:name``.

    :param what: the option, for messages. :param home: the module of a name without one.
    :raises NotMeantError: where it is none.

    >>> split("package.model:make_model", "MODULE:FACTORY")
    ('package.model', 'make_model')
    >>> split("loss", "--loss", "package.model")
    ('package.model', 'loss')
    """
    module, colon, name = given.rpartition(":")
    module = module if colon else home
    if (
        not module
        or module.endswith(".py")
        or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")])
    ):
        raise NotMeantError(f"{what} {given!r} can't be meant; write {_meant(given)}")
    return module, name


def _meant(given: str) -> str:
    """Guess what was meant: a file, or a module without a factory."""
    path, _, name = given.partition(":")
    parts = [part for part in path.removesuffix(".py").replace("\\", "/").split("/") if part != "."]
    if path and all(part.isidentifier() for text in parts for part in text.split(".")):
        name = name if name.isidentifier() else "make_model"
        return f"MODULE:NAME, such as {'.'.join(parts)}:{name}"
    return "MODULE:NAME, such as package.model:make_model"


def look(target: str, parts: Mapping[str, str], folder: Path) -> None:
    """See that all that was named is there, and that there is a batch.

    :param parts: what was named besides the factory, by kind. :param folder: the current one.
    :raises NotMeantError: where something is missing. :raises UserCodeError: for a file that is no
        Python.
    """
    module, name = split(target, "MODULE:FACTORY")
    text = _text(module, folder, "the model's module")
    if text is not None:
        _see(text, module, name)
        _see_arguments(text.names.get(name), module, name)
    for kind, given in parts.items():
        other, part = split(given, f"--{kind.replace('_', '-')}", module)
        there = text if other == module else _text(other, folder, f"the module of --{kind}")
        if there is not None:
            _see(there, other, part)
    if text is None or text.open or parts.get("batch"):
        return
    if not any(each in text.names for each in BATCHES):
        raise NotMeantError(NO_BATCH.format(module=module, names=", ".join(BATCHES)))


def _see(text: _Text, module: str, name: str) -> None:
    first = name.partition(".")[0]
    if text.open or first in text.names:
        return
    near = difflib.get_close_matches(first, text.names, 1)
    meant = f"; is {near[0]!r} meant?" if near else ""
    raise NotMeantError(f"module {module!r} has no {first!r}{meant}")


def _see_arguments(definition: ast.AST | None, module: str, name: str) -> None:
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return
    taken = definition.args
    needed = [*taken.posonlyargs, *taken.args]
    needed = needed[: len(needed) - len(taken.defaults)]
    needed += [a for a, d in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if d is None]
    if needed:
        raise NotMeantError(needs_arguments(module, name, [each.arg for each in needed]))


def needs_arguments(module: str, name: str, needed: Sequence[str]) -> str:
    """Say what to write for a factory that takes arguments."""
    return (
        f"{module}:{name} needs arguments ({', '.join(needed)}), and is called without: write a "
        f"function beside it,\n\n    def make_model():\n        return {name}({needed[0]}=...)\n\n"
        f"and give {module}:make_model"
    )


def _text(module: str, folder: Path, what: str) -> _Text | None:
    """Read a module; ``None`` where it has no text, as what is built in.

    :raises NotMeantError: where there is no such module.
    """
    path = _file(module, folder)
    if path is None or path.suffix != ".py":
        if path is None and module not in sys.builtin_module_names:
            raise NotMeantError(
                f"{what}, {module!r}, is neither in this folder ({folder}) nor installed; the "
                "command is to be started where python -c 'import "
                f"{module}' works"
            )
        return None
    try:
        source = path.read_bytes()
        tree = ast.parse(source, str(path))
        tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError as error:
        raise UserCodeError(raised(error)) from error
    names = dict(_named(tree.body))
    return _Text(names, "*" in names or "__getattr__" in names)


def _file(module: str, folder: Path) -> Path | None:
    """Find a module's file without importing what it lies in."""
    places: Sequence[str] | None = [str(folder), *sys.path]
    path: Path | None = None
    parts = module.split(".")
    for place in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: place + 1]), places)
        if spec is None:
            return None
        path = Path(spec.origin) if spec.origin else folder
        places = spec.submodule_search_locations
        if places is None and place < len(parts) - 1:
            return None
    return path


def _named(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Give the names that statements bind, those inside of ``if``, ``try``, ``with`` and loops."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((a.asname or a.name.partition(".")[0], node) for a in node.names)
        else:
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id, node
            for inner in ("body", "orelse", "finalbody"):
                yield from _named(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                yield from _named(handler.body)
