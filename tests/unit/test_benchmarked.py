"""What comes back as a benchmark is one, or is refused."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from pytest_remotegpu import benchmarked
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.worker.restarts import Restarts

GOOD = {
    "name": "test_x",
    "group": None,
    "param": "1",
    "params": {"n": 1},
    "extra_info": {},
    "options": {"timer": "perf_counter"},
    "iterations": 2,
    "data": array("d", [0.5, 0.25]).tobytes(),
}


def test_a_benchmark_is_taken() -> None:
    assert benchmarked.check([GOOD]) == [GOOD]


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": b""},
        {"data": b"1234567"},
        {"data": [1.0]},
        {"data": array("d", [float("nan")]).tobytes()},
        {"data": array("d", [float("inf")]).tobytes()},
        {"iterations": 0},
        {"iterations": True},
        {"iterations": "2"},
        {"group": 1},
        {"extra_info": []},
        {"options": {1: 2}},
        {"machine": "mine"},
    ],
    ids=str,
)
def test_what_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        benchmarked.check([{**GOOD, **wrong}])


@pytest.mark.parametrize(
    "wrong", [None, {}, ["x"], [GOOD] * 101], ids=["none", "dict", "text", "many"]
)
def test_no_list_of_them_is_refused(wrong: Any) -> None:
    with pytest.raises(ProtocolError):
        benchmarked.check(wrong)


def test_a_test_that_ends_its_process_is_tried_as_often_as_was_asked_for() -> None:
    restarts, limits = Restarts(), orders.Limits(again={3: 2})
    crash = events.Crashed(3, "killed", b"", b"", b"")
    assert restarts.tried(crash, 0, limits.again).again  # before anything was said of it
    assert restarts.attempts == {3: 1}
    assert restarts.tried(crash, 1, limits.again).again
    assert not restarts.tried(crash, 1, limits.again).again
    other = events.Crashed(4, "killed", b"", b"", b"")
    assert not restarts.tried(other, 1, limits.again).again


def test_attempts_within_a_process_count_as_well() -> None:
    crash = events.Crashed(0, "killed", b"", b"", b"")
    assert not Restarts().tried(crash, 3, {0: 2}).again
    assert Restarts().tried(crash, 2, {0: 2}).again
