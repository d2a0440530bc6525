"""A list of files has one form, one digest, and differences that lead from one to another."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.manifest import Delta, Line, Manifest

DIGESTS = st.sampled_from([hashlib.sha256(bytes([number])).hexdigest() for number in range(5)])
FILES = st.builds(Line, st.text("ab/λ", min_size=1, max_size=5), DIGESTS, st.integers(0, 99),
                  st.sampled_from([0o644, 0o755]), st.none())  # fmt: skip
LINKS = st.builds(
    Line, st.text("ab/", min_size=1, max_size=5), st.just(""), st.just(0), st.just(0o644),
    st.text("xy", max_size=3),
)  # fmt: skip
LISTS = st.lists(st.one_of(FILES, LINKS), unique_by=lambda line: line.path, max_size=12)
ONE = Line("a", "1" * 64, 3, 0o644, None)


@given(LISTS)
def test_a_list_has_one_form(lines: list[Line]) -> None:
    whole = Manifest.of(lines)
    assert sorted(whole) == sorted(lines, key=lambda line: line.path)
    assert list(Manifest.decode(whole.encoded)) == list(whole)
    assert Manifest.of(reversed(lines)).digest == whole.digest
    assert whole.digest == hashlib.sha256(whole.encoded).hexdigest()
    assert (len(whole), whole.size) == (len(lines), sum(line.size for line in lines))


@given(LISTS, LISTS)
def test_a_difference_leads_from_one_to_the_other(one: list[Line], other: list[Line]) -> None:
    before, after = Manifest.of(one), Manifest.of(other)
    delta = Delta.decode(after.since(before).encode())
    assert before.with_changes(delta).digest == after.digest
    assert (before.digest == after.digest) == (list(before) == list(after))


@given(LISTS, st.data())
def test_edits_of_few_files_are_found(lines: list[Line], data: st.DataObject) -> None:
    """The same paths, some with other contents: the quick way through."""
    changed = [
        line._replace(digest=data.draw(DIGESTS), size=data.draw(st.integers(0, 99)))
        if line.link is None and data.draw(st.booleans())
        else line
        for line in lines
    ]
    before, after = Manifest.of(lines), Manifest.of(changed)
    delta = after.since(before)
    assert set(delta.lines()) == set(after) - set(before)
    assert before.with_changes(delta).digest == after.digest


@given(LISTS)
def test_contents_are_found_by_their_digest(lines: list[Line]) -> None:
    whole = Manifest.of(lines)
    for _ in range(2):
        for line in [*lines, *[Line("", "f" * 64, 0, 0, None)] * 40]:
            place = whole.find(line.digest)
            if line.link is None and line.path:
                assert place is not None
                assert whole.line(place).digest == line.digest
            elif line.digest:
                assert place is None
    assert whole.find("0" * 64) is None
    assert whole.find("../x") is None


def test_a_digest_within_others_is_none() -> None:
    """Half of one digest and half of the next is not the digest of a file."""
    whole = Manifest.of([ONE._replace(digest="12" * 32), ONE._replace(path="b", digest="34" * 32)])
    assert whole.find("12" * 16 + "34" * 16) is None
    assert whole.find("34" * 32) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([["a"], b"", [1], b"\0", {}]),
        msgspec.msgpack.encode([["a"], bytes(32), [1], b"\0", {}, 1]),
        msgspec.msgpack.encode([["b", "a"], bytes(64), [1, 1], b"\0\0", {}]),
        msgspec.msgpack.encode([["a", "a"], bytes(64), [1, 1], b"\0\0", {}]),
        msgspec.msgpack.encode([[1], bytes(32), [1], b"\0", {}]),
    ],
)
def test_what_is_no_list_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Manifest.decode(data)


def test_a_difference_to_another_list_is_refused() -> None:
    delta = Manifest.of([]).since(Manifest.of([ONE]))
    with pytest.raises(ProtocolError, match="lacks it"):
        Manifest.of([]).with_changes(delta)
    with pytest.raises(ProtocolError, match="no difference"):
        Delta.decode(b"\x01")
