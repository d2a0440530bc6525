"""Which test must run in another process, because of itself or of what ran before."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.worker.alone import Alone


def test_the_first_of_a_process_may_be_alone() -> None:
    assert not Alone([3]).bars(3)


@given(st.sets(st.integers(0, 9)), st.lists(st.integers(0, 9), unique=True))
def test_no_test_that_is_alone_shares_a_process(alone: set[int], order: list[int]) -> None:
    processes: list[list[int]] = []
    now: Alone | None = None
    for place in order:
        if now is None or now.bars(place):
            now = Alone(alone)
            processes.append([])
        assert not now.bars(place)
        now.begin(place)
        processes[-1].append(place)
    assert [place for process in processes for place in process] == order
    assert all(len(process) == 1 for process in processes if alone & set(process))
    borders = sum(1 for a, b in itertools.pairwise(order) if {a, b} & alone)
    assert len(processes) == borders + bool(order)
