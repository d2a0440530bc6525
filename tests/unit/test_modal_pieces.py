"""Numbered pieces: whatever is sent again, what was sent arrives once, in order, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal import pieces
from pytest_remotegpu.backends.modal.pieces import NUMBER, PIECE, GapError, Joiner, Splitter


@given(st.lists(st.binary(max_size=40)), st.data())
def test_doubles_are_left_out(sent: list[bytes], data: st.DataObject) -> None:
    splitter, joiner = Splitter(), Joiner()
    made = [piece for each in sent for piece in splitter.split(each)]
    came = []
    for place in range(len(made)):
        again = data.draw(st.integers(0, 2)) if place else 0
        came += made[max(place - again, 0) : place + 1]
    assert b"".join(map(joiner.take, came)) == b"".join(sent)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=2), st.data())
def test_a_gap_is_seen(sent: list[bytes], data: st.DataObject) -> None:
    splitter, joiner = Splitter(), Joiner()
    made = [piece for each in sent for piece in splitter.split(each)]
    lost = data.draw(st.integers(0, len(made) - 2))
    for piece in made[:lost]:
        joiner.take(piece)
    with pytest.raises(GapError, match=f"piece {lost + 2} came where {lost + 1} was due"):
        joiner.take(made[lost + 1])


def test_each_piece_fits_into_a_message() -> None:
    made = list(Splitter().split(bytes(2 * PIECE + 1)))
    assert [len(piece) - NUMBER.size for piece in made] == [PIECE, PIECE, 1]
    assert max(map(len, made)) < 2**20


def test_what_is_no_piece() -> None:
    with pytest.raises(pieces.GapError, match="3 bytes has no number"):
        Joiner().take(b"abc")
