"""How many words the options take that conftests add, as far as their source says it.

Values in, values out but for the files that it reads: imports none and runs none. Knows how options
are added; knows no pytest and no session.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

__all__ = ["MANY", "widths"]

MANY: Final = 1_000_000
"""Stands for as many words as there are before the next option."""
FLAGS: Final = (
    "store_true", "store_false", "store_const", "append_const", "count", "help", "version",
)  # fmt: skip
"""Actions of options that take no word."""
VALUED: Final = ("store", "append", "extend")
"""Actions of options that take one word, where ``nargs`` does not say otherwise."""
LARGEST: Final = 4 * 2**20
"""Bytes of a source file that is looked at."""


def widths(files: Iterable[Path]) -> dict[str, int | None]:
    """Give how many words each option takes that these files add.

    :return: ``None`` where the source does not say it, or says it in several ways.
    """
    found: dict[str, int | None] = {}
    for file in files:
        for names, width in _added(file):
            for name in names:
                same = name not in found or found[name] == width
                found[name] = width if same else None
    return found


def _added(file: Path) -> Iterator[tuple[list[str], int | None]]:
    """Yield the options that a file adds: their names, and how many words they take."""
    try:
        source = file.read_bytes() if file.stat().st_size <= LARGEST else b""
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="addoption" | "add_argument")):
                texts = [str(a.value) for a in node.args if isinstance(a, ast.Constant)]
                names = [text for text in texts if text.startswith("-")]
                yield names, _width({str(word.arg): word.value for word in node.keywords})


def _width(words: dict[str, ast.expr]) -> int | None:
    if "None" in words:  # more of them come from a dict
        return None
    match words.get("action"):
        case None:
            return _of_nargs(words.get("nargs"))
        case ast.Constant(value=str(action)) if action in FLAGS:
            return 0
        case ast.Constant(value=str(action)) if action in VALUED:
            return _of_nargs(words.get("nargs"))
        case ast.Attribute(attr="BooleanOptionalAction") | ast.Name(id="BooleanOptionalAction"):
            return 0
    return None


def _of_nargs(given: ast.expr | None) -> int | None:
    match given:
        case None | ast.Constant(value=None):
            return 1
        case ast.Constant(value=int(number)):
            return int(number)
        case ast.Constant(value="*" | "+"):
            return MANY
    return None
