"""What a file's collection gave, as data: its classes and tests, their marks and parameters.

One tree is encoded as one piece, which events carry in parts. Knows nothing of pytest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import plain

__all__ = [
    "LARGEST",
    "Hooked",
    "Left",
    "Mark",
    "Node",
    "Outcome",
    "Parameters",
    "Tree",
    "decode",
    "decode_hooked",
    "encode",
    "merged",
]

PAIR: Final = 2
LARGEST: Final = 64 * 2**20
"""Bytes that one tree may have."""
Index = Annotated[int, msgspec.Meta(ge=0)]


class _Data(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of all parts."""


class Mark(_Data, frozen=True):
    """A mark; what is no plain data in its arguments is text."""

    name: plain.Text
    args: Any
    kwargs: Any


class Outcome(_Data, frozen=True):
    """How a collector's collection ended, where it gave nothing.

    :ivar text: of the error. :ivar crash: path, line and message of an error, where there is one;
        those of a skip.
    """

    outcome: Literal["failed", "skipped"]
    text: plain.Text
    crash: tuple[plain.Text, int, plain.Text] | None = None


class Parameters(_Data, frozen=True):
    """The parameter set of one test.

    :ivar values: by name; what is no plain data is text. :ivar indices: the ordinals of the values,
        by name. :ivar scopes: by name. :ivar marks: places in the tree's list of marks.
    """

    id: plain.Text
    values: Any
    indices: Any
    scopes: Any
    marks: list[Index]


class Node(_Data, frozen=True):
    """A file, a class or a test.

    :ivar parent: the place of the parent in the tree; the first node is the file, its own parent.
    :ivar kind: the name of its class, which people see.
    :ivar marks: its own, as places in the tree's list.
    :ivar keywords: its own, apart from its name and marks. :ivar matches: what else ``-k`` matches.
    :ivar outcome: of a collector that gave nothing; ``None`` for one that gave what follows.
    :ivar location: of a test; ``None`` for a collector.
    :ivar module: the name of the module that a file is there, or that a class is of;
        ``qualname``, the class's own in it. Empty for what is neither.
    """

    parent: Index
    kind: plain.Text
    name: plain.Text
    nodeid: plain.Text
    marks: list[Index]
    keywords: list[plain.Text]
    matches: list[plain.Text]
    outcome: Outcome | None = None
    location: tuple[plain.Text, int | None, plain.Text] | None = None
    originalname: plain.Text | None = None
    fixturenames: list[plain.Text] | None = None
    parameters: Parameters | None = None
    module: plain.Text = b""
    qualname: plain.Text = b""


class Tree(_Data, frozen=True):
    """All that one collector of a file gave; parents come before their children.

    :ivar sources: the Python files of the project that had been read by then and not for an earlier
        tree, seen from its root; none where no files were sent.
    """

    marks: list[Mark]
    nodes: Annotated[list[Node], msgspec.Meta(min_length=1)]
    sources: list[plain.Text] = []


class Left(_Data, frozen=True):
    """A test as hooks of the far side's conftests have left it.

    :ivar path: of its file, :ivar number: of that one's tree, :ivar node: its place in the tree.
    :ivar marks: all its own, as places in a list of all tests' marks.
    :ivar name: which may be another one than in the tree.
    :ivar properties: its user properties.
    """

    path: plain.Text
    number: Index
    node: Index
    name: plain.Text
    nodeid: plain.Text
    marks: list[Index]
    keywords: list[plain.Text]
    matches: list[plain.Text]
    properties: Any


class Hooked(_Data, frozen=True):
    """All tests that hooks have left, in the order in which they have left them.

    :ivar markers: the names of the markers that are registered there.
    """

    marks: list[Mark]
    tests: list[Left]
    markers: list[plain.Text]


_HOOKED: Final = msgspec.msgpack.Decoder(Hooked, ext_hook=plain.read_extension)
_DECODER: Final = msgspec.msgpack.Decoder(Tree, ext_hook=plain.read_extension)


def encode(tree: Tree | Hooked) -> bytes:
    """Encode a tree, or what hooks have left; what is open in it has been packed."""
    return plain.ENCODER.encode(tree)


def decode(data: bytes) -> Tree:
    """Decode a tree, and look whether its places are all there.

    :raises ProtocolError: where the bytes are no tree.
    """
    try:
        tree = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
        raise ProtocolError(f"undecodable tree of a file: {error}") from None
    for place, node in enumerate(tree.nodes):
        if node.parent > max(place - 1, 0):
            raise ProtocolError("a tree of a file has a node before its parent")
        if place and tree.nodes[node.parent].location is not None:
            raise ProtocolError("a tree of a file has a test as a parent")
        own = [*node.marks, *(node.parameters.marks if node.parameters else [])]
        if any(mark >= len(tree.marks) for mark in own):
            raise ProtocolError("a tree of a file refers to a mark that it lacks")
        _check_parameters(node.parameters)
    _check_marks(tree.marks)
    return tree


def decode_hooked(data: bytes) -> Hooked:
    """Decode what hooks have left.

    :raises ProtocolError: where the bytes are no such thing.
    """
    try:
        hooked = _HOOKED.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
        raise ProtocolError(f"undecodable list of tests: {error}") from None
    for test in hooked.tests:
        pairs = test.properties
        if any(mark >= len(hooked.marks) for mark in test.marks):
            raise ProtocolError("a list of tests refers to a mark that it lacks")
        sound = isinstance(pairs, list) and plain.is_shallow(pairs)
        if not sound or not all(map(_is_property, pairs)):
            raise ProtocolError("properties in a list of tests are no pairs")
    _check_marks(hooked.marks)
    return hooked


def _is_property(pair: object) -> bool:
    return isinstance(pair, tuple) and len(pair) == PAIR and isinstance(pair[0], str)


def merged(tree: Tree, left: Mapping[int, Left], marks: list[Mark]) -> Tree:
    """Make of a tree what hooks have left of its tests; one that they dropped stays as it was.

    :param left: by the place of the test. :param marks: of all that is left.
    """
    before = len(tree.marks)
    found = list(tree.nodes)
    for place, test in left.items():
        if place >= len(found) or found[place].location is None:
            raise ProtocolError("a list of tests has one that no tree has")
        found[place] = msgspec.structs.replace(
            found[place],
            nodeid=test.nodeid,
            marks=[before + mark for mark in test.marks],
            keywords=test.keywords,
            matches=test.matches,
        )
    return Tree([*tree.marks, *marks], found)


def _check_marks(marks: list[Mark]) -> None:
    for mark in marks:
        named = isinstance(mark.kwargs, dict) and all(isinstance(k, str) for k in mark.kwargs)
        if not isinstance(mark.args, tuple) or not named or not _is_shallow(mark):
            raise ProtocolError("a mark in a tree of a file has no arguments that one could have")


def _is_shallow(mark: Mark) -> bool:
    return plain.is_shallow(mark.args) and plain.is_shallow(mark.kwargs)


def _check_parameters(given: Parameters | None) -> None:
    if given is None:
        return
    parts = (given.values, given.indices, given.scopes)
    if not all(isinstance(part, dict) and plain.is_shallow(part) for part in parts):
        raise ProtocolError("parameters in a tree of a file are no dicts")
    names = list(given.values)
    same = all(list(part) == names for part in parts)
    counts = all(type(number) is int for number in given.indices.values())
    if not same or not counts or not all(isinstance(name, str) for name in names):
        raise ProtocolError("parameters in a tree of a file do not go together")
