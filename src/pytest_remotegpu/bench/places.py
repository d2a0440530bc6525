"""Where a value stands in a text of YAML, TOML or JSON, and the text with another one there."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pytest_remotegpu.errors import UsageError

__all__ = ["NoPlaceError", "read_yaml", "set_in_json", "set_in_toml", "set_in_yaml"]

SPACE: Final = re.compile(r"[ \t\r\n]*")
ALONE: Final = re.compile(r"(?<!\r)\n")
"""The end of a line that is not Windows'."""


class NoPlaceError(Exception):
    """Raised where a text has no place for a value that could be changed without the rest."""


def _missing(name: str) -> UsageError:
    return UsageError(
        f"{name} is not installed, which such a file needs to keep its comments",
        fix="pip install 'pytest-remotegpu[bench]'",
    )


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _ended(text: str) -> str:
    """Give a text whose last line has its end."""
    return text if not text or text.endswith("\n") else text + _newline(text)


# YAML


def _yaml(kind: str) -> Any:
    try:
        from ruamel.yaml import YAML  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise _missing("ruamel.yaml") from error
    return YAML(typ=kind, pure=True)


def read_yaml(text: str) -> Any:
    """Read one document of YAML 1.2.

    :raises ValueError: where it is broken.
    :raises UsageError: where ruamel.yaml is not installed.
    """
    yaml = _yaml("safe")
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 -- an extra

    try:
        return yaml.load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error


def set_in_yaml(text: str, where: tuple[str, ...], value: int) -> str:
    """Give a document of YAML with a whole number under the keys ``where``.

    :raises NoPlaceError: where there is no place for it.
    """
    node = _yaml("rt").compose(text)
    if node is None:
        return _ended(text) + _block(where, value, 0, _newline(text))
    name = node
    for depth, key in enumerate(where):
        if node.id != "mapping":
            raise NoPlaceError(f"{'.'.join(where[:depth])} is no table of keys")
        pairs = [pair for pair in node.value if pair[0].value == key]
        if not pairs:
            return _into_yaml(text, node, where[depth:], value)
        name, node = pairs[0]
        if depth + 1 < len(where) and node.id == "scalar" and node.value in ("", "~", "null"):
            return _under_yaml(text, name, node, where[depth + 1 :], value)
    if node.id != "scalar":
        raise NoPlaceError(f"there is a {node.id} in its place")
    start, end = node.start_mark.index, node.end_mark.index
    if node.anchor:
        raise NoPlaceError(f"other places refer to it by the anchor &{node.anchor}")
    if start == end:  # nothing stands there: it may be said to stand after a comment
        at = text.index(":", name.end_mark.index) + 1
        return f"{text[:at]} {value}{text[at:]}"
    return f"{text[:start]}{value}{text[end:]}"


def _block(where: tuple[str, ...], value: int, column: int, newline: str) -> str:
    """Write keys of which each lies under the one before, indented."""
    lines = [f"{' ' * (column + 2 * depth)}{key}:" for depth, key in enumerate(where)]
    return newline.join(lines) + f" {value}{newline}"


def _into_yaml(text: str, node: Any, where: tuple[str, ...], value: int) -> str:
    """Put new keys first into a mapping that is there."""
    start = node.start_mark.index
    if node.flow_style:
        inner = f"{': {'.join(where)}: {value}{'}' * (len(where) - 1)}"
        more = ", " if node.value else ""
        return f"{text[: start + 1]}{inner}{more}{text[start + 1 :]}"
    first = node.value[0][0]
    column = first.start_mark.column
    at = first.start_mark.index - column
    if text[at : first.start_mark.index].strip():
        raise NoPlaceError("its table begins in the middle of a line")
    return text[:at] + _block(where, value, column, _newline(text)) + text[at:]


def _under_yaml(text: str, name: Any, node: Any, where: tuple[str, ...], value: int) -> str:
    """Put new keys under one that has nothing under it yet."""
    if node.value:
        start, end = node.start_mark.index, node.end_mark.index
        text = text[:start].rstrip(" ") + text[end:]
    end_of_line = text.find("\n", name.end_mark.index)
    at = len(text) if end_of_line < 0 else end_of_line + 1
    block = _block(where, value, name.start_mark.column + 2, _newline(text))
    return _ended(text[:at]) + block + text[at:]


# TOML


def set_in_toml(text: str, where: tuple[str, ...], value: int) -> str:
    """Give a document of TOML with a whole number under the keys ``where``.

    :raises NoPlaceError: where there is no place for it.
    :raises UsageError: where tomlkit is not installed.
    """
    try:
        import tomlkit  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise _missing("tomlkit") from error
    document = tomlkit.parse(text)
    table: Any = document
    *parents, last = where
    for key in parents:
        if key not in table:
            table[key] = tomlkit.table()
        table = table[key]
    if last in table and isinstance(table[last], dict | list):
        raise NoPlaceError("there is a table or a list in its place")
    table[last] = value
    made = tomlkit.dumps(document)
    alike = "\r\n" in text and not ALONE.search(text)
    return ALONE.sub("\r\n", made) if alike else made  # lines that are new end as all others


# JSON


def set_in_json(text: str, where: tuple[str, ...], value: int) -> str:
    """Give a document of JSON with a whole number under the keys ``where``.

    :raises NoPlaceError: where there is no place for it.
    """
    at = end = _skip(text, 0)
    for depth, key in enumerate(where):
        if text[at : at + 1] != "{":
            raise NoPlaceError(f"{'.'.join(where[:depth]) or 'the document'} is no object")
        members = _members(text, at)
        if key not in members:
            return _into_json(text, at, members, where[depth:], value)
        at, end = members[key]
    if text[at] in "{[":
        raise NoPlaceError("there is an object or an array in its place")
    return f"{text[:at]}{value}{text[end:]}"


def _skip(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _members(text: str, at: int) -> dict[str, tuple[int, int]]:
    """Find the values of an object that begins at a place of a sound document."""
    decoder = json.JSONDecoder()
    found: dict[str, tuple[int, int]] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = decoder.raw_decode(text, start)
        found[key] = start, at
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _into_json(
    text: str,
    at: int,
    members: dict[str, tuple[int, int]],
    where: tuple[str, ...],
    value: int,
) -> str:
    """Put new keys first into an object, with the white space that its first key has."""
    inner = f"{json.dumps(where[0])}: {value}"
    if len(where) > 1:
        inner = f"{json.dumps(where[0])}: {{{json.dumps(where[1])}: {value}}}"
    space = text[at + 1 : _skip(text, at + 1)]
    if not members:
        return f"{text[: at + 1]}{inner}{text[at + 1 :]}"
    between = space if "\n" in space else " "
    return f"{text[: at + 1]}{space}{inner},{between}{text[at + 1 + len(space) :]}"
