"""What a failure says of files that were not there: paths and modules, read from its text.

Text in, names out: whether a name is one of a file here, and why that did not travel, is for
others to say. Knows no pytest, no snapshot and no far side, and imports nothing by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["argument_of", "files_of", "modules_of", "paths_of"]

MOST_TEXT: Final = 200_000
"""Characters at the end of a text that are read."""
MOST_NAMES: Final = 50

_LACKING: Final = re.compile(
    r"no such file|not found|not exist|n't exist|n't open|not open|unable to|n't find|not find"
    r"|failed to|could not|couldn't|error opening|error reading|error loading|missing|not a file"
    r"|FileNotFound|NotADirectory|No module|No file|exists|is_file|is_dir",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"'((?:[^'\\\n]|\\.)+)'|\"((?:[^\"\\\n]|\\.)+)\"|`([^`\n]+)`")
_BARE: Final = re.compile(r"(?<![\w'\"`./\\-])(/?[\w.@+~%#=,-]+(?:/[\w.@+~%#=,-]+)*)")
_MODULE: Final = re.compile(r"No module named ['\"]?([A-Za-z_][\w.]*)")
_NAME: Final = re.compile(
    r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'"
)
_ARGUMENT: Final = re.compile(r"(?:ERROR: )?file or directory not found: (.+)")
_SUFFIX: Final = re.compile(r"\w\.[A-Za-z0-9_]{1,12}$")


def files_of(text: str, root: str, folder: str) -> list[str]:
    """Give the paths of a failure that may name files, relative to the project's root.

    :param text: the report's, of which lines that pytest marks as the error's count, and those
        that speak of something missing. :param root: the project's folder there; may be unknown.
    :param folder: the project's own name, which that folder has as well.
    """
    found: dict[str, None] = {}
    for line in _errors(text):
        lacking = bool(_LACKING.search(line))
        for path in _named(line):
            inside = _inside(path, root, folder)
            if inside is None and (path.startswith("/") or not lacking):
                continue
            name = path if inside is None else inside
            if inside is not None or "/" in name or _SUFFIX.search(name) or f"'{name}'" in line:
                found[name] = None
    return list(found)[:MOST_NAMES]


def modules_of(text: str) -> list[str]:
    """Give the modules that a failure says are not there."""
    found: dict[str, None] = {}
    for line in _errors(text):
        for name in _MODULE.findall(line):
            found[name.rstrip(".")] = None
        for name, package in _NAME.findall(line):
            found[f"{package}.{name}"] = None
    return list(found)[:MOST_NAMES]


def paths_of(module: str, folders: Iterable[str]) -> Iterator[str]:
    """Give where a module may lie, outermost package first.

    :param folders: of the import path, as texts that end in no slash; empty for the root.
    """
    parts = module.split(".")
    for folder in folders:
        for end in range(1, len(parts) + 1):
            base = "/".join((*filter(None, (folder,)), *parts[:end]))
            yield f"{base}.py"
            yield f"{base}/__init__.py"
            yield base


def argument_of(line: str, folder: str) -> str:
    """Give the path, relative to the project's root, that pytest was to begin with and has not.

    :param line: of pytest's usage errors; anything else names no such path.
    :param folder: as for :func:`files_of`.
    """
    match = _ARGUMENT.fullmatch(line.strip())
    return (_inside(match[1], "", folder) or "") if match else ""


def _errors(text: str) -> list[str]:
    """Pick the lines of errors: those that pytest marks; all, where it marks none."""
    lines = text[-MOST_TEXT:].replace("file://", "").splitlines()
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return marked or lines


def _named(line: str) -> Iterator[str]:
    for match in _QUOTED.finditer(line):
        yield re.sub(r"\\(.)", r"\1", next(filter(None, match.groups())))
    for match in _BARE.finditer(line):
        yield match[1].rstrip(".,:;")


def _inside(path: str, root: str, folder: str) -> str | None:
    """Give a path relative to the project's folder there, or ``None`` where it is not below it."""
    if root and path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    before, mark, rest = path.partition(f"/tree/{folder}/")
    return rest if mark and before.startswith("/") and not root else None
