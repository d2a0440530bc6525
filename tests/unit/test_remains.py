"""What is said of rented machines that are still there after a session."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu import remains
from pytest_remotegpu.backends.modal.container import LEASE
from pytest_remotegpu.backends.modal.stays import Stay, left, window

NOW = time.mktime((2026, 11, 28, 12, 0, 30, 0, 0, -1))
ENDED = {"cancelled": True, "app": True, "containers": None}


def stay(*said: dict[str, object], keeps: bool = True, app: str = "rgpu-1") -> Stay:
    """Make what is known after a courier has said these things, a second apart each."""
    found = Stay(keeps=keeps, app=app)
    for number, each in enumerate(said):
        found.hear(each, 100.0 + number, NOW + number)
    found.close()
    return found


ASKED: dict[str, object] = {"asked": True}


def greeted(machine: str = "ta-1") -> dict[str, object]:
    return {"container": machine, "age": 0.0, "call": "fc-1"}


def over(**more: object) -> dict[str, object]:
    return {"left": {**ENDED, **more}}


@pytest.mark.parametrize(
    ("said", "keeps", "there", "paid"),
    [
        ((), True, None, False),
        ((ASKED, greeted(), over()), True, True, True),
        ((ASKED, greeted(), over()), False, None, True),
        ((ASKED, greeted(), over(app=False)), False, False, True),
        ((ASKED, greeted(), over(cancelled=False)), True, False, True),
        ((ASKED, greeted()), True, False, True),
        ((ASKED, greeted(), {"gone": True}, over()), True, None, True),
        ((ASKED, {"gone": True}, over()), True, None, True),
        ((ASKED, greeted(), {"moved": "ta-2"}, over()), True, True, True),
        ((ASKED, {"moved": "ta-2"}, over()), True, True, True),
        ((ASKED, over(containers=0)), True, None, False),
        ((ASKED, over(containers=0)), False, None, False),
        ((ASKED, over(containers=2)), True, False, True),
        ((ASKED, over()), True, False, False),
        ((ASKED, over(containers=0, withdrawn=True)), True, False, True),
        ((ASKED, over(containers=0, withdrawn=True)), False, None, False),
        ((ASKED, over(cancelled=False)), True, False, True),
        ((ASKED, over(cancelled=False, app=False)), False, False, True),
        ((ASKED,), True, False, True),
    ],
)
def test_what_is_left_of_a_call_and_whether_it_is_paid_for(
    said: tuple[dict[str, object], ...], *, keeps: bool, there: bool | None, paid: bool
) -> None:
    """Nothing is said to have ended that is not known to; what may be there is paid for."""
    found = stay(*said, keeps=keeps)
    remains_of_it = found.left(60.0, NOW + 5)
    if remains_of_it is not None and remains_of_it.until == remains.GONE:
        remains_of_it = None
    assert (None if remains_of_it is None else remains_of_it.sure) == there
    assert (found.rental.since(ended=True) is not None) == paid
    if remains_of_it is not None and not remains_of_it.sure and found.end is None:
        assert remains_of_it.until == NOW + 5 + LEASE + 60


def test_a_machine_is_left_once_and_as_its_last_call_has_left_it() -> None:
    first, second = (stay(ASKED, greeted(), over()) for _ in range(2))
    second.ended += 100
    assert [each.until for each in left([first, second], 60.0, NOW + 110)] == [NOW + 2 + 160]
    assert left([first], 60.0, NOW + 110) == []  # it has ended by itself
    third = stay(ASKED, greeted(), {"gone": True}, over())
    (gone,) = left([first, third], 60.0, NOW + 5)
    assert (gone.machine, gone.until) == ("ta-1", remains.GONE)


@given(st.floats(0, 1e6))
def test_a_window_is_one_that_the_service_takes(idle: float) -> None:
    assert 2 <= window(idle) <= 3600
    assert abs(window(idle) - idle) <= 0.5 or not 2 <= idle <= 3600


def test_a_container_that_follows_a_preempted_one_is_paid_for_until_it_ends() -> None:
    """It was given the call, could not begin it, and stays as any other without work."""
    found = stay(ASKED, greeted("ta-1"), {"moved": "ta-2"}, over())
    assert (found.rental.machine, found.rental.stays) == ("ta-2", True)
    after = stay(ASKED, greeted("ta-2"), over())
    after.ended += 30
    assert [each.machine for each in left([found, after], 60.0, NOW + 40)] == ["ta-2"]


def test_the_words() -> None:
    assert list(remains.words([])) == ["left running: nothing"]
    one = ("modal:a", "ta-1", NOW, True)
    assert list(remains.words(remains.settle([one, (*one[:2], NOW + 60, True)], NOW - 1))) == [
        (
            "left running: 1 machine without work, paid for until 12:02; to end it now: "
            "remotegpu stop modal:a"
        )
    ]
    several = list(
        remains.words([one, ("modal:a", "ta-2", NOW, True), ("modal:b", "", NOW, False)])
    )
    assert several[0].startswith("left running: 2 machines without work, paid for until 12:01; to")
    assert several[1].endswith("ends by itself by 12:01; to end it now: remotegpu stop modal:b")
    unsure = ("modal:b", "ta-3", NOW, False)
    (two,) = remains.words([unsure, ("modal:b", "", NOW + 60, False)])
    assert two == (
        "left running: 2 machines may still start or be at work, since the end of that was not "
        "confirmed; they end by themselves by 12:02; to end them now: remotegpu stop modal:b"
    )
    (unknown,) = remains.words(remains.UNKNOWN)
    assert unknown.endswith(
        "confirmed; it ends by itself; to end it now: remotegpu ps names what is up"
    )


A = ("modal:a", "ta-1", NOW, True)
MACHINES = st.tuples(
    st.just("modal:a"),
    st.sampled_from(["", "ta-1", "ta-2"]),
    st.sampled_from([remains.GONE, NOW - 5, NOW + 5, NOW + 9, math.inf]),
    st.booleans(),
)


def test_what_processes_have_told_is_as_of_the_end_of_all_of_them() -> None:
    """One that used it first may have thought that it was there, and one that it would stay."""
    other = ("modal:a", "ta-2", NOW, True)
    assert remains.settle([A, other], NOW - 1) == [A, other]
    assert remains.settle([A, other], NOW) == []
    assert remains.settle([A, (*A[:2], NOW + 60, False)], NOW) == [(*A[:2], NOW + 60, False)]
    assert remains.settle([A, other, (*A[:2], remains.GONE, True)], NOW - 1) == [other]
    nameless = ("modal:a", "", NOW, False)
    assert remains.settle([nameless, nameless], NOW - 1) == [nameless, nameless]


def test_what_a_dead_process_was_at_lasts_until_its_death() -> None:
    unsure = ("modal:a", "ta-2", NOW, False)
    assert remains.later([A, unsure], 7.0) == [A, ("modal:a", "ta-2", NOW + 7, False)]


@given(st.lists(MACHINES))
def test_nothing_that_may_be_there_is_left_out_and_nothing_counted_twice(
    told: list[remains.Left],
) -> None:
    found = remains.settle(told, NOW)
    named = [each[1] for each in found if each[1]]
    assert len(named) == len(set(named))
    assert all(until > NOW for _, _, until, _ in found)
    for each in told:
        gone = any(other[:2] == each[:2] and other[2] == remains.GONE for other in told)
        if each[2] > NOW and not gone:
            assert any(other[:2] == each[:2] and other[2] >= each[2] for other in found)
    assert remains.settle(found, NOW) == found
