"""Plain data on the wire: what goes in comes out exactly, and anything can be made plain."""

from __future__ import annotations

import collections
import enum
import math
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import plain

QUICK = settings(max_examples=150, deadline=None)

# Text with lone surrogates; integers far beyond 64 bits; every float there is.
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
WHOLE = st.integers() | st.integers(-(10**3000), 10**3000) | st.sampled_from([-(2**63), 2**64])
ATOMS = (
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | TEXT | st.binary(max_size=9)
)
KEYS = ATOMS | st.tuples(ATOMS, ATOMS)
LEAVES = ATOMS | st.floats()
DATA = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def exact(value: Any) -> Any:
    """Give what two values share only if they are the same down to types, signs and bits."""
    if isinstance(value, float):
        return float, struct.pack(">d", value) if not math.isnan(value) else "nan"
    if isinstance(value, list | tuple):
        return type(value), [exact(item) for item in value]
    if isinstance(value, dict):
        return dict, [(exact(key), exact(item)) for key, item in value.items()]
    return type(value), value


def over_the_wire(value: Any) -> Any:
    return plain.unpack(plain.ENCODER.encode(plain.pack(value)))


@QUICK
@given(DATA)
def test_plain_data_comes_out_exactly(value: Any) -> None:
    assert exact(over_the_wire(value)) == exact(value)


@QUICK
@given(TEXT)
def test_text_comes_out_exactly(text: str) -> None:
    assert plain.from_text(plain.to_text(text)) == text


@pytest.mark.parametrize("data", [b"\xff", b"\xc0\x80", b"\xed\xa0", b"a\xf5"])
def test_text_that_is_none(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        plain.from_text(data)


@QUICK
@given(st.binary(max_size=60))
def test_bytes_are_data_or_an_error_of_ours(data: bytes) -> None:
    try:
        value = plain.unpack(data)
    except ProtocolError:
        return
    changed: list[str] = []
    plain.reduce(value, changed)
    assert changed == [] or "datetime" in changed[0]


@pytest.mark.parametrize(
    ("code", "data"),
    [(0, b""), (1, b"\x01"), (1, b""), (2, b"\xff"), (3, b"1e5"), (3, b""), (3, b"9" * 4001)],
)
def test_extension_that_is_none(code: int, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        plain.unpack(msgspec.msgpack.encode(msgspec.msgpack.Ext(code, data)))


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_depth_is_an_error_of_ours(depth: int) -> None:
    for data in (b"\x91" * depth + b"\x90", b"\x81\xa1a" * depth + b"\x90"):
        with pytest.raises(ProtocolError):
            plain.unpack(data)


# ---------------------------------------------------------------- anything made plain


class Text(str):
    """Text of a class of its own."""

    __slots__ = ()


class Level(enum.IntEnum):
    """A number of a class of its own."""

    HIGH = 3


class Fraction(float):
    """A float that says something else of itself."""

    def __repr__(self) -> str:
        return "a fraction"


class Sulky:
    """An object that won't say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Murky:
    """An object whose text is of a class of its own."""

    def __repr__(self) -> str:
        return Text("murky")


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024  the untyped one is a plain tuple too


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Text("a"), "a"),
        (Level.HIGH, 3),
        (Fraction(0.5), 0.5),
        (Pair(1, [2]), (1, [2])),
        (collections.OrderedDict(a=1), {"a": 1}),
        (bytearray(b"x"), "bytearray(b'x')"),
        (b"x", b"x"),
        ({1 }, "{1}"),
        ({(1, 2): 3, ("a", Level.HIGH): 4}, {(1, 2): 3, ("a", 3): 4}),
        ({None: 1, 2: 3, 0.5: 4, b"x": 5}, {None: 1, 2: 3, 0.5: 4, b"x": 5}),
        (10**5000, hex(10**5000)),
        (-(10**3000), -(10**3000)),
        (True, True),
        (Murky(), "murky"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_reduce(value: Any, expected: Any) -> None:
    changed: list[str] = []
    reduced = plain.reduce(value, changed, "x")
    assert exact(reduced) == exact(expected)
    assert exact(over_the_wire(reduced)) == exact(reduced)


def test_reduce_survives_a_repr_that_raises() -> None:
    changed: list[str] = []
    reduced = plain.reduce(Sulky(), changed)
    assert "Sulky" in reduced
    assert "RuntimeError" in reduced
    assert len(changed) == 1


def test_reduce_names_what_it_changed() -> None:
    changed: list[str] = []
    plain.reduce({"a": [1, Sulky()], "b": {Sulky: 2}}, changed, "report")
    assert [line.partition(" (")[0] for line in changed] == ["report.a[1]", "report.b key"]
    assert changed[0].endswith("Sulky)")


ODD = st.sampled_from([object(), {1, 2}, Level.HIGH, Text("\ud800"), range(3), Sulky])
ANYTHING = st.recursive(
    LEAVES | ODD,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(LEAVES | ODD.filter(lambda odd: type(odd) is not set), inner, max_size=4)
    ),
    max_leaves=12,
)


@QUICK
@given(ANYTHING)
def test_anything_can_be_made_plain(value: Any) -> None:
    changed: list[str] = []
    reduced = plain.reduce(value, changed)
    assert exact(over_the_wire(reduced)) == exact(reduced)
    again: list[str] = []
    assert exact(plain.reduce(reduced, again)) == exact(reduced)
    assert again == []


@QUICK
@given(DATA)
def test_plain_data_is_left_alone(value: Any) -> None:
    changed: list[str] = []
    assert exact(plain.reduce(value, changed)) == exact(value)
    assert changed == []


@pytest.mark.timeout(10)
@pytest.mark.parametrize("branches", [1, 2])
def test_what_holds_itself_comes_to_an_end(branches: int) -> None:
    ring: list[Any] = []
    ring += [ring] * branches
    changed: list[str] = []
    over_the_wire(plain.reduce({"ring": ring}, changed))
    assert changed


def test_deep_data_comes_to_an_end() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    changed: list[str] = []
    over_the_wire(plain.reduce(deep, changed))
    assert len(changed) == 1
