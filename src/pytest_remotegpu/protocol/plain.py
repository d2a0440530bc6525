"""Plain data on the wire: MessagePack that keeps tuples, odd text and large integers exact.

Knows nothing of events or pytest. Everything here is data in, data out; decoding builds only
``None``, bools, numbers, text, bytes, lists, tuples and dicts.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pytest_remotegpu.errors import ProtocolError

__all__ = ["DECODER", "ENCODER", "Text", "from_text", "pack", "reduce", "to_text", "unpack"]

TUPLE: Final = 1
ODD_TEXT: Final = 2
LARGE_INT: Final = 3
MOST_DIGITS: Final = 4000
"""CPython refuses to read integers of more than 4300 digits by default."""

DEEPEST: Final = 100
"""Nested further than this, data is turned to text; both sides stay far from the recursion limit."""

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


def _extension(code: int, data: memoryview) -> Any:
    if code == TUPLE:
        items = DECODER.decode(data)
        if not isinstance(items, list):
            raise ProtocolError(f"a tuple on the wire holds a {type(items).__name__}")
        return tuple(items)
    if code == ODD_TEXT:
        return from_text(bytes(data))
    if code == LARGE_INT:
        return _large_int(bytes(data))
    raise ProtocolError(f"unknown extension type {code!r} on the wire")


def _large_int(digits: bytes) -> int:
    text = digits.decode("ascii", "replace")
    if len(text) > MOST_DIGITS or not text.removeprefix("-").isdecimal():
        raise ProtocolError(f"not an integer on the wire: {text[:40]!r}")
    return int(text)


ENCODER: Final = msgspec.msgpack.Encoder()
DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_extension)


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
        return {pack(key): pack(item) for key, item in value.items()}
    return value


def unpack(data: bytes | memoryview) -> Any:
    """Decode one piece of plain data.

    :raises ProtocolError: where the bytes are not that.
    """
    try:
        return DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
        raise ProtocolError(f"undecodable data on the wire: {error}") from None


def reduce(value: Any, changed: list[str], where: str = "", depth: int = 0) -> Any:
    """Make any object plain: subclasses lose their class, what is no data becomes its text.

    :param changed: receives a line for each object that had to be turned to text.
    :param where: the path to ``value``, for those lines.
    """
    if value is None or value is True or value is False:
        return value
    if depth > DEEPEST:
        return _as_text(value, changed, where)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        plain = int.__index__(value)
        return (
            plain if plain.bit_length() < MOST_DIGITS * 3 else _as_text(hex(plain), changed, where)
        )
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, list | tuple):
        items = [reduce(item, changed, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return _reduce_dict(value, changed, where, depth)
    return _as_text(value, changed, where)


def _reduce_dict(value: dict[Any, Any], changed: list[str], where: str, depth: int) -> Any:
    plain = {}
    for key, item in value.items():
        name = key if type(key) is str else reduce(key, changed, f"{where} key", depth + 1)
        if not isinstance(name, str | int | float | bytes | None):
            name = _as_text(key, changed, f"{where} key")
        plain[name] = reduce(item, changed, f"{where}.{name}" if where else str(name), depth + 1)
    return plain


def _as_text(value: Any, changed: list[str], where: str) -> str:
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001  a user's __str__ may raise anything
        text = f"<{type(value).__name__} whose text raised {type(error).__name__}>"
    changed.append(f"{where} ({type(value).__module__}.{type(value).__qualname__})")
    return text
