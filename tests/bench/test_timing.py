"""What is timed, how often and in which order: with a clock that only work moves."""

from __future__ import annotations

import gc
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.timers import Clock, FakeTimer, Work
from pytest_remotegpu.bench.timing import (
    FEWEST,
    Budget,
    CaptureError,
    Mode,
    measure,
    order,
    rotating,
    timed,
)
from pytest_remotegpu.bench.wall import MOST, WallTimer
from pytest_remotegpu.errors import RemoteGpuError, UsageError


@given(st.integers(1, 6), st.integers(0, 40))
def test_each_call_has_each_place(calls: int, turn: int) -> None:
    """In as many rounds as there are calls each one comes first, and each other place, once."""
    orders = [order(calls, turn + more) for more in range(calls)]
    for each in orders:
        assert sorted(each) == list(range(calls))
    for column in zip(*orders, strict=True):
        assert sorted(column) == list(range(calls))


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=4),
    st.integers(0, 10),
    st.integers(FEWEST, 20),
)
def test_times_are_those_of_the_calls(micros: list[int], warmup: int, rounds: int) -> None:
    """Whatever the order, and however long the first calls take."""
    clock = Clock()
    calls = {str(n): Work(clock, one * 1e-3, start=7.0) for n, one in enumerate(micros)}
    timer = WallTimer(clock)
    budget = Budget(warmup, rounds)
    found = timed(calls, timer, mode=Mode.WALL, budget=budget, clock=clock)
    for n, one in enumerate(micros):
        assert found.times[str(n)] == pytest.approx([one] * rounds)
        assert found.first[str(n)] == pytest.approx(7000 + one)


def test_all_are_warmed_up_alike() -> None:
    clock = Clock()
    calls = {name: Work(clock, 0.001, name=name) for name in "abc"}
    measure(calls, FakeTimer([1], [1], [1]), mode=Mode.EAGER, budget=Budget(3, 5))
    assert Counter(clock.spent) == {"a": 9, "b": 9, "c": 9}
    assert clock.spent[:12] == [*"abc", *"abc", *"bca", *"cab"]


def test_what_is_warmed_up_is_not_counted() -> None:
    timer = FakeTimer([1, 2, 3, 4, 5])
    found = measure({"a": lambda: None}, timer, mode=Mode.GRAPH, budget=Budget(2, 5))
    assert found == {"a": (1, 2, 3, 4, 5)}
    assert timer.asked == [(2, Mode.GRAPH), (5, Mode.GRAPH)]
    assert timer.settled >= 2


def test_no_warm_up_is_allowed() -> None:
    timer = FakeTimer([1])
    measure({"a": lambda: None}, timer, mode=Mode.EAGER, budget=Budget(0, 5))
    assert timer.asked == [(5, Mode.EAGER)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rounds": 0}, "rounds is 0; give a whole number of 5 or more, which an interval needs"),
        ({"rounds": 1}, "rounds is 1;"),
        ({"rounds": 10.0}, "rounds is 10.0;"),
        ({"rounds": True}, "rounds is True;"),
        ({"warmup": -1}, "warmup is -1; give a whole number of 0 or more"),
    ],
)
def test_a_budget_is_whole(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Budget(**arguments)


def test_nothing_is_no_benchmark() -> None:
    with pytest.raises(UsageError, match="there is nothing to time; give one contestant or more"):
        measure({}, FakeTimer(), mode=Mode.EAGER)


def test_a_mode_has_to_be_the_timers() -> None:
    with pytest.raises(UsageError, match="WallTimer can't time in the mode graph; give wall"):
        measure({"a": lambda: None}, WallTimer(), mode=Mode.GRAPH)


@pytest.mark.parametrize("number", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_time_is_refused(number: float) -> None:
    timer = FakeTimer([1, 1, number])
    with pytest.raises(RemoteGpuError, match=rf"a round of 'a' took {number} ms, which is no time"):
        measure({"a": lambda: None}, timer, mode=Mode.EAGER)


def test_a_clock_that_stands_still_is_found_out() -> None:
    clock, calls = Clock(), Work(Clock(), 0)
    with pytest.raises(RemoteGpuError, match=r"took 0\.0 ms, which is no time; look whether"):
        measure({"a": calls}, WallTimer(clock), mode=Mode.WALL, budget=Budget(0, 5))
    assert calls.calls < 8 * MOST


def test_a_timer_that_loses_rounds_is_found_out() -> None:
    class Losing(FakeTimer):
        def rounds(self, *args: Any) -> list[list[float]]:
            return [one[1:] for one in super().rounds(*args)]

    with pytest.raises(RemoteGpuError, match="the timer gave 39 times of 'a' for 40 rounds"):
        measure({"a": lambda: None}, Losing([1]), mode=Mode.EAGER)


def test_who_raises_is_named() -> None:
    def bad() -> None:
        raise LookupError("no such head")

    with pytest.raises(LookupError, match="no such head") as caught:
        measure({"good": lambda: None, "bad": bad}, FakeTimer([1], [1]), mode=Mode.EAGER)
    assert caught.value.__notes__ == ["raised by the contestant 'bad' in its first call"]


def test_who_can_not_be_captured_is_named() -> None:
    def waits() -> None:
        pass

    timer = FakeTimer([1], [1], uncaptured=[waits])
    calls = {"good": lambda: None, "bad": waits}
    assert set(measure(calls, timer, mode=Mode.EAGER)) == {"good", "bad"}
    with pytest.raises(CaptureError, match="bad: it can't be captured: it waits; do not") as caught:
        measure(calls, timer, mode=Mode.GRAPH)
    assert caught.value.contestant == "bad"


def test_no_garbage_is_collected_in_a_round() -> None:
    seen: list[bool] = []
    measure({"a": lambda: seen.append(gc.isenabled())}, FakeTimer([1]), mode=Mode.EAGER)
    assert seen == [True] + [False] * 60
    assert gc.isenabled()


def test_garbage_is_collected_again_after_an_error() -> None:
    calls = Counter[str]()

    def fails_later() -> None:
        calls["a"] += 1
        if calls["a"] > 3:
            raise RuntimeError("now")

    with pytest.raises(RuntimeError, match="now"):
        measure({"a": fails_later}, FakeTimer([1]), mode=Mode.EAGER)
    assert gc.isenabled()


# rotating


@given(st.integers(1, 9), st.integers(0, 40))
def test_copies_take_turns(copies: int, calls: int) -> None:
    seen: list[int] = []
    made = iter(range(100))

    def make() -> Any:
        number = next(made)
        return lambda: seen.append(number)

    call = rotating(make, copies)
    for _ in range(calls):
        call()
    assert seen == [n % copies for n in range(calls)]
    assert next(made) == copies


def test_copies_are_one_or_more() -> None:
    with pytest.raises(UsageError, match="copies is 0; give 1 or more"):
        rotating(lambda: lambda: None, 0)


# the clock on the wall


@pytest.mark.parametrize(
    ("seconds", "repeats"), [(1e-2, 1), (1e-3, 1), (3e-4, 4), (1e-6, 1024), (0.9e-6, 2048)]
)
def test_short_calls_are_repeated(seconds: float, repeats: int) -> None:
    """Until a round lasts a millisecond, beside which reading a clock is nothing."""
    clock = Clock()
    work = Work(clock, seconds)
    timer = WallTimer(clock)
    ready = timer.prepare(work, Mode.WALL)
    work.calls = 0
    assert timer.rounds([ready], 3, Mode.WALL) == [pytest.approx([seconds * 1000] * 3)]
    assert work.calls == 3 * repeats


def test_copies_are_all_in_a_round() -> None:
    clock = Clock()
    works = [Work(clock, 3e-4, name=str(n)) for n in range(3)]
    copies = iter(works)
    timer = WallTimer(clock)
    ready = timer.prepare(rotating(lambda: next(copies), 3), Mode.WALL)
    clock.spent.clear()
    timer.rounds([ready], 2, Mode.WALL)
    assert Counter(clock.spent) == {"0": 4, "1": 4, "2": 4}
