"""Pieces on their way out of a container: few, large, in order, and at once after a pause."""

import itertools
import queue

from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal.gathering import ENOUGH, LINGER, gathered

SILENCE = 10.0


class Script:
    """What comes when, by a clock that moves only while somebody waits."""

    def __init__(self, *coming: tuple[float, bytes | None]) -> None:
        self.now = 100.0
        self._coming = [(100.0 + at, data) for at, data in coming]

    def clock(self) -> float:
        return self.now

    def take(self, wait: float) -> bytes | None:
        at, data = self._coming[0]
        if at > self.now + wait:
            self.now += wait
            raise queue.Empty
        self.now = max(self.now, at)
        del self._coming[0]
        return data

    def pieces(self) -> list[tuple[float, bytes]]:
        found = gathered(self.take, self.clock, SILENCE)
        return [(round(self.now - 100.0, 6), piece) for piece in found]


def test_a_piece_after_a_pause_goes_out_at_once() -> None:
    script = Script((0.0, b"a"), (1.0, b"b"), (2.0, b"c"), (3.0, None))
    assert script.pieces() == [(0.0, b"a"), (1.0, b"b"), (2.0, b"c")]


def test_what_follows_closely_waits_until_it_is_due_and_goes_out_together() -> None:
    close = LINGER / 10
    script = Script((0.0, b"a"), (close, b"b"), (2 * close, b"c"), (1.0, b"d"), (2.0, None))
    assert script.pieces() == [(0.0, b"a"), (round(LINGER, 6), b"bc"), (1.0, b"d")]


def test_the_end_waits_for_nothing() -> None:
    script = Script((0.0, b"a"), (LINGER / 10, b"b"), (LINGER / 5, None))
    assert script.pieces() == [(0.0, b"a"), (round(LINGER / 5, 6), b"b")]


def test_what_is_large_waits_for_nothing() -> None:
    large = b"x" * ENOUGH
    script = Script((0.0, b"a"), (0.001, large), (0.002, b"b"), (5.0, None))
    assert [piece for _, piece in script.pieces()] == [b"a", large, b"b"]


def test_silence_gives_signs_of_life() -> None:
    script = Script((0.0, b"a"), (2.5 * SILENCE, b"b"), (2.5 * SILENCE, None))
    assert script.pieces() == [
        (0.0, b"a"), (SILENCE, b""), (2 * SILENCE, b""), (2.5 * SILENCE, b"b"),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.floats(0, 0.3), st.binary(min_size=1, max_size=9)), max_size=40))
def test_nothing_is_lost_or_changes_places(steps: list[tuple[float, bytes]]) -> None:
    at, coming = 0.0, []
    for pause, data in steps:
        at += pause
        coming.append((at, data))
    pieces = Script(*coming, (at, None)).pieces()
    assert b"".join(piece for _, piece in pieces) == b"".join(data for _, data in steps)
    due = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(pieces)]
    assert all(gap > LINGER - 1e-6 for gap in due[:-1])
