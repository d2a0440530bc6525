"""Trees of files on the wire: exact both ways, and nothing that could not be is believed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import nodes, plain
from pytest_remotegpu.protocol.plain import to_text

FILE = nodes.Node(0, b"Module", b"test_it.py", b"test_it.py", [], [], [])
MARK = nodes.Mark(b"gpu", plain.pack((2,)), {"type": "A100"})
PARAMETERS = nodes.Parameters(b"1-x", {"n": 1}, {"n": 0}, {"n": "function"}, [0])
TEST = nodes.Node(
    0,
    b"Function",
    b"test",
    b"test_it.py::test",
    [0],
    [b"extra"],
    [],
    location=(b"test_it.py", 3, b"test"),
)


def roundtrip(marks: list[nodes.Mark], found: list[nodes.Node]) -> nodes.Tree:
    return nodes.decode(nodes.encode(nodes.Tree(marks, found)))


def test_a_tree_comes_back_as_it_was() -> None:
    test = replace(TEST, parameters=PARAMETERS, originalname=b"test", fixturenames=[b"n"])
    tree = roundtrip([MARK], [FILE, test])
    assert tree.nodes == [FILE, test]
    assert tree.marks == [nodes.Mark(b"gpu", (2,), {"type": "A100"})]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.tuples(VALUES, VALUES), st.dictionaries(st.text(), VALUES, max_size=3), st.text())
def test_arguments_are_exact(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
    mark = nodes.Mark(to_text(name), plain.pack(args), plain.pack(kwargs))
    assert roundtrip([mark], [FILE]).marks == [nodes.Mark(to_text(name), args, kwargs)]


@settings(max_examples=100)
@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_are_a_tree(data: bytes) -> None:
    try:
        tree = nodes.decode(data)
    except ProtocolError:
        return
    assert tree.nodes


WRONG: dict[str, tuple[list[nodes.Mark], list[nodes.Node]]] = {
    "no node": ([], []),
    "a node before its parent": ([MARK], [FILE, replace(TEST, parent=2), TEST]),
    "a test as a parent": ([MARK], [FILE, TEST, replace(TEST, parent=1)]),
    "a mark that is not there": ([], [FILE, TEST]),
    "arguments that are a list": ([nodes.Mark(b"gpu", [2], {})], [FILE]),
    "words that are no text": ([nodes.Mark(b"gpu", plain.pack(()), {1: 2})], [FILE]),
    "parameters of a mark that is not there": (
        [],
        [FILE, replace(TEST, marks=[], parameters=PARAMETERS)],
    ),
    "parameters that differ": (
        [MARK],
        [FILE, replace(TEST, parameters=replace(PARAMETERS, indices={}))],
    ),
    "an ordinal that is none": (
        [MARK],
        [FILE, replace(TEST, parameters=replace(PARAMETERS, indices={"n": "0"}))],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ProtocolError):
        roundtrip(*WRONG[name])
