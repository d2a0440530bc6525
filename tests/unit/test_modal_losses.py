"""Containers that are lost in a row: how long the next one waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal.losses import LONGEST, STEADY, Losses

CALL = st.tuples(
    st.floats(0, 1000), st.floats(0, 1000), st.booleans(), st.floats(0, 2 * STEADY)
)  # pause before it, how long it takes, whether it is lost, for how long it worked


def lose(losses: Losses, times: int, at: float = 0.0) -> list[float]:
    """Lose containers one after the other, a second after each was asked for; give the waits."""
    waits = []
    for step in range(times):
        began = at + 1000.0 * step
        losses.ended(began, began + 1.0, lost=True, worked=0.0)
        waits.append(losses.delay)
    return waits


def test_each_wait_is_twice_as_long_up_to_five_minutes() -> None:
    assert Losses().delay == 0.0
    waits = lose(Losses(), 2000)
    assert waits[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert set(waits[10:]) == {LONGEST}


def test_one_that_ends_well_ends_the_row() -> None:
    losses = Losses()
    lose(losses, 5)
    losses.ended(9000.0, 9001.0, lost=False, worked=1.0)
    assert losses.delay == 0.0
    assert lose(losses, 2, at=10_000.0) == [1, 2]


@pytest.mark.parametrize("worked", [0.0, 5.0, STEADY - 1])
def test_one_that_has_hardly_worked_goes_on_with_the_row(worked: float) -> None:
    losses = Losses()
    lose(losses, 2)
    losses.ended(5000.0, 5000.0 + worked, lost=True, worked=worked)
    assert losses.delay == 4


def test_one_that_has_worked_for_long_begins_a_row() -> None:
    losses = Losses()
    lose(losses, 6)
    losses.ended(9000.0, 9100.0, lost=True, worked=STEADY)
    assert losses.delay == 1


def test_those_that_are_lost_together_count_once() -> None:
    losses = Losses()
    for step in range(8):
        losses.ended(float(step), 100.0 + step, lost=True, worked=10.0)
    assert losses.delay == 1
    for step in range(8):
        losses.ended(110.0 + step, 200.0 + step, lost=True, worked=10.0)
    assert losses.delay == 2


@given(st.lists(CALL, max_size=40))
def test_a_wait_is_never_more_than_twice_the_one_before(
    calls: list[tuple[float, float, bool, float]],
) -> None:
    losses, now, before = Losses(), 0.0, 0.0
    for pause, seconds, lost, worked in calls:
        began = now + pause
        now = began + seconds
        losses.ended(began, now, lost=lost, worked=worked)
        assert losses.delay in {0.0, 1.0, before, 2 * before, LONGEST}
        assert losses.delay <= min(max(2 * before, 1.0), LONGEST)
        assert bool(losses.delay) == lost
        before = losses.delay
