"""The stretches of one worker: which one runs, which wait, what is left where a process ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.worker.stretches import Stretches

Run = orders.Run


def begun(run: orders.Run) -> Stretches:
    stretches = Stretches()
    stretches.begin(run)
    return stretches


def test_one_after_the_other() -> None:
    stretches = begun(Run(0, 2))
    assert stretches.change(Run(4, 6)) == ([], orders.Follows(4))
    assert stretches.change(Run(2, 3)) == ([], None)
    assert stretches.run == Run(0, 2, following=4)
    following = stretches.end()
    assert following == Run(4, 6, following=2)
    stretches.begin(following)
    assert stretches.end() == Run(2, 3)
    assert stretches.end() is None
    assert not stretches.open


def test_what_follows_concerns_the_last() -> None:
    stretches = begun(Run(0, 2))
    assert stretches.change(orders.Follows(9)) == ([], orders.Follows(9))
    stretches.change(Run(4, 6))
    assert stretches.change(orders.Follows(7)) == ([], None)
    assert stretches.end() == Run(4, 6, following=7)


@pytest.mark.parametrize("running", [True, False])
def test_those_that_wait_are_given_back(running: bool) -> None:
    stretches = begun(Run(0, 2))
    stretches.change(Run(4, 6))
    stretches.change(Run(8, 9))
    withdraw = orders.Withdraw(running)
    taken, told = stretches.change(withdraw)
    assert taken == [events.Withdrawn(4, 6), events.Withdrawn(8, 9)]
    assert told == withdraw  # the one that runs has been told that they follow it
    assert stretches.run == Run(0, 2)
    assert stretches.end() is None
    assert stretches.change(withdraw) == ([], None)


@pytest.mark.parametrize(
    ("following", "left"),
    [(5, Run(5, 8)), (6, Run(6, 8)), (8, None), (2, Run(5, 8)), (20, Run(5, 8))],
    ids=["at its start", "within", "at its end", "of an earlier one", "of another earlier one"],
)
def test_what_is_left_when_its_process_ends(following: int, left: orders.Run | None) -> None:
    stretches = begun(Run(5, 8))
    why = stretches.go_on(following, 0)
    assert (why, stretches.run) == ((None, left) if left else ("", Run(5, 8)))


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_failures_are_counted_from_its_start(before: int, meanwhile: int, allowed: int) -> None:
    stretches = begun(Run(0, 9, allowed))
    stretches.count_from(before)
    why = stretches.go_on(3, before + meanwhile)
    if allowed and meanwhile >= allowed:
        assert why == "stopping after failures"
    else:
        assert why is None
        assert stretches.run == Run(3, 9, allowed and allowed - meanwhile)
