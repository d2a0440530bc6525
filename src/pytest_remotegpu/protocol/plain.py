"""Plain data on the wire: MessagePack that keeps tuples, odd text and large integers exact.

Knows nothing of events or pytest. Everything here is data in, data out; decoding builds only
``None``, bools, numbers, text, bytes, lists, tuples and dicts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from pytest_remotegpu.errors import ProtocolError

__all__ = [
    "DECODER",
    "ENCODER",
    "ESCAPED",
    "MOST_PARTS",
    "Reduction",
    "Text",
    "count",
    "escape",
    "from_text",
    "is_shallow",
    "mapped",
    "pack",
    "read_extension",
    "reduce",
    "text_of",
    "to_text",
    "unescape",
    "unpack",
]

TUPLE: Final = 1
ODD_TEXT: Final = 2
LARGE_INT: Final = 3
PAIRS: Final = 4
MOST_DIGITS: Final = 4000
"""CPython refuses to read integers of more than 4300 digits by default."""

MOST_PARTS: Final = 150_000
"""Parts of one reduction that are walked; what holds itself many times over would never end."""
_END: Final = object()
LONGEST: Final = 2**20
"""Bytes of one text within an object; a longer one is cut."""
MOST_BYTES: Final = 6 * 2**20
"""Bytes that all texts of one reduction may have, so that what is made of it fits into a frame."""
DEEPEST: Final = 100
"""Data nested further becomes text, so that both sides stay far from the recursion limit."""

_ESCAPE: Final = "\0\ufffd"
"""Stands before the number of a lone surrogate; paths, arguments and variables have no NUL."""
ESCAPED: Final = _ESCAPE.encode()
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NUMBER: Final = re.compile(f"{_ESCAPE}(d[89a-f][0-9a-f]{{2}})")

Text = bytes
"""Text that may hold lone surrogates, as UTF-8 that lets them pass."""


def to_text(text: str) -> Text:
    """Make ``text`` fit for the wire; the exact inverse is :func:`from_text`."""
    return text.encode("utf-8", "surrogatepass")


def from_text(text: Text) -> str:
    """Give back the string that :func:`to_text` was given.

    :raises ProtocolError: where the bytes are not such text.
    """
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"text on the wire is not UTF-8: {error}") from None


def escape(text: str) -> str:
    """Write lone surrogates in other characters; the inverse is :func:`unescape`."""
    return _SURROGATE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    """Give back what :func:`escape` was given."""
    return _NUMBER.sub(lambda found: chr(int(found[1], 16)), text)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Change each text in a message: in its fields, lists and dicts."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(mapped(each, change) for each in value)
    if isinstance(value, dict):
        return {mapped(k, change): mapped(v, change) for k, v in value.items()}
    if isinstance(value, msgspec.Struct):
        parts = {name: getattr(value, name) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **mapped(parts, change))
    return value


def read_extension(code: int, data: memoryview) -> Any:
    """Read what stands in for a type that MessagePack has not; a hook for decoders.

    :raises ProtocolError: for an extension of another kind, or one that does not hold what it says.
    """
    if code == TUPLE:
        items = DECODER.decode(data)
        if not isinstance(items, list):
            raise ProtocolError(f"a tuple on the wire holds a {type(items).__name__}")
        return tuple(items)
    if code == ODD_TEXT:
        return from_text(bytes(data))
    if code == PAIRS:
        return _dict(DECODER.decode(data))
    if code == LARGE_INT:
        return _large_int(bytes(data))
    raise ProtocolError(f"unknown extension type {code!r} on the wire")


def _dict(pairs: Any) -> dict[Any, Any]:
    try:
        return {key: item for key, item in pairs}  # noqa: C416 -- dict() would take any mapping
    except (TypeError, ValueError):
        raise ProtocolError("a dict on the wire is not made of pairs") from None


def _large_int(digits: bytes) -> int:
    text = digits.decode("ascii", "replace")
    if len(text) > MOST_DIGITS or not text.removeprefix("-").isdecimal():
        raise ProtocolError(f"not an integer on the wire: {text[:40]!r}")
    return int(text)


ENCODER: Final = msgspec.msgpack.Encoder()
DECODER: Final = msgspec.msgpack.Decoder(ext_hook=read_extension)


def _is_even(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def pack(value: Any) -> Any:
    """Walk plain data and wrap what MessagePack has no type for; the inverse is in the decoder.

    :param value: plain data, as :func:`reduce` gives it.
    """
    kind = type(value)
    if kind is str:
        return value if _is_even(value) else msgspec.msgpack.Ext(ODD_TEXT, to_text(value))
    if kind is int:
        fits = -(2**63) <= value < 2**64
        return value if fits else msgspec.msgpack.Ext(LARGE_INT, b"%d" % value)
    if kind is tuple:
        return msgspec.msgpack.Ext(TUPLE, ENCODER.encode([pack(item) for item in value]))
    if kind is list:
        return [pack(item) for item in value]
    if kind is dict:
        if all(type(key) is str and _is_even(key) for key in value):
            return {key: pack(item) for key, item in value.items()}
        pairs = [[pack(key), pack(item)] for key, item in value.items()]
        return msgspec.msgpack.Ext(PAIRS, ENCODER.encode(pairs))
    return value


def unpack(data: bytes | memoryview) -> Any:
    """Decode one piece of plain data.

    :raises ProtocolError: where the bytes are not that.
    """
    try:
        value = DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
        raise ProtocolError(f"undecodable data on the wire: {error}") from None
    if not is_shallow(value):
        raise ProtocolError("data on the wire is nested too deeply")
    return value


def is_shallow(value: Any, room: int = 2 * DEEPEST) -> bool:
    """Say whether data is nested no deeper than what walks it by recursion can bear."""
    if not isinstance(value, list | tuple | dict):
        return True
    if room <= 0:
        return False
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return all(is_shallow(part, room - 1) for part in parts)


def reduce(value: Any, changed: list[str], where: str = "") -> Any:
    """Make any object plain: subclasses lose their class, what is no data becomes its text.

    Data that is nested too deeply, holds itself, or is too much, becomes text as well.

    :param changed: receives a line for each object that had to be turned to text.
    :param where: the path to ``value``, for those lines.
    """
    return Reduction(changed).of(value, where)


class Reduction:
    """Reduces one object or several, which may have so many parts and bytes together.

    :param changed: as for :func:`reduce`.
    """

    def __init__(self, changed: list[str]) -> None:
        self._changed = changed
        self._room = MOST_PARTS
        self._bytes = MOST_BYTES

    def of(self, value: Any, where: str) -> Any:
        """Do what :func:`reduce` does."""
        return self._of(value, where, 0)

    def _of(self, value: Any, where: str, depth: int) -> Any:
        if value is None or value is True or value is False:
            return value
        self._room -= 1
        if depth > DEEPEST or self._room < 0:
            return self._text("...", value, where)
        match value:
            case str():
                return self._cut(str.__getitem__(value, slice(None)), where)
            case int():
                return self._integer(int.__index__(value), where)
            case float():
                return float.__float__(value)
            case bytes():
                return self._cut_bytes(bytes.__getitem__(value, slice(None)), where)
            case list():
                return self._items(list.__iter__(value), where, depth)
            case tuple():
                return tuple(self._items(tuple.__iter__(value), where, depth))
            case dict():
                return self._dict(dict.items(value), where, depth)
        return self._text(text_of(value), value, where)

    def _integer(self, value: int, where: str) -> Any:
        digits = value.bit_length() // 3
        if digits < MOST_DIGITS and self._pay(digits):
            return value
        return self._text(hex(value), value, where)

    def _items(self, items: Iterable[Any], where: str, depth: int) -> list[Any]:
        found = []
        for at, item in enumerate(items):
            found.append(self._of(item, f"{where}[{at}]", depth + 1))
            if self._room < 0:
                break
        return found

    def _dict(self, items: Iterable[tuple[Any, Any]], where: str, depth: int) -> dict[Any, Any]:
        plain = {}
        for key, item in items:
            name = self._of(key, f"{where} key", depth + 1)
            if not isinstance(name, str | int | float | bytes | tuple | None) or not _is_hashable(
                name
            ):
                name = self._text(text_of(key), key, f"{where} key")
            inner = f"{where}.{name!s}"[:200] if where else str(name)[:200]
            plain[name] = self._of(item, inner, depth + 1)
            if self._room < 0:
                break
        return plain

    def _text(self, text: str, value: Any, where: str) -> str:
        kind = type(value)
        self._changed.append(f"{where} ({kind.__module__}.{kind.__qualname__})")
        return self._cut(text, where)

    def _pay(self, size: int) -> bool:
        """Take so many bytes out of what is left; say whether that much is allowed."""
        paid = size <= min(LONGEST, self._bytes)
        self._bytes -= size if paid else 0
        return paid

    def _cut(self, text: str, where: str) -> str:
        """Cut a text that is too long, or one too many; say how long it was."""
        each = 1 if text.isascii() else 4
        if self._pay(len(text) * each):
            return text
        self._changed.append(f"{where} (a text of {len(text)} characters)")
        room = min(LONGEST, self._bytes) // each
        self._pay(room * each)
        return f"{text[:room]}... [cut here: {len(text)} characters]"

    def _cut_bytes(self, data: bytes, where: str) -> bytes:
        if self._pay(len(data)):
            return data
        self._changed.append(f"{where} ({len(data)} bytes)")
        room = min(LONGEST, self._bytes)
        self._pay(room)
        return data[:room]


def count(value: Any, most: int) -> int:
    """Count the parts of an object, itself included, as far as ``most``."""
    todo: list[Iterator[Any]] = [iter((value,))]
    found = 0
    while todo and found < most:
        part = next(todo[-1], _END)
        if part is _END:
            todo.pop()
            continue
        found += 1
        if isinstance(part, dict):
            todo.append(itertools.chain.from_iterable(dict.items(part)))
        elif isinstance(part, list | tuple):
            todo.append(list.__iter__(part) if isinstance(part, list) else tuple.__iter__(part))
    return found


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def text_of(value: Any) -> str:
    """Give the text of any object, also of one that has none."""
    try:
        text = value if type(value) is str else str(value)
    except Exception as error:  # noqa: BLE001 -- a user's __str__ may raise anything
        return f"<{type(value).__name__} whose text raised {type(error).__name__}>"
    return str.__getitem__(text, slice(None))
