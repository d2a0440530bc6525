"""Results as values: medians, quotients, verdicts and their words."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.bench.estimates import Estimate, median
from pytest_remotegpu.bench.measured import Entrant, Rate, Result, text_of, time_of
from pytest_remotegpu.bench.timing import Mode
from pytest_remotegpu.errors import UsageError

TEN = tuple(1.0 + n / 100 for n in range(10))
TWICE = tuple(2 * number for number in TEN)


def result(**more: Any) -> Result:
    """Give two contestants in two modes; in a graph the reference is as fast."""
    entrants = {
        "contestant": Entrant(5.0, {Mode.EAGER: TEN, Mode.GRAPH: TEN}),
        "reference": Entrant(6.0, {Mode.EAGER: TWICE, Mode.GRAPH: TEN}),
    }
    return Result(entrants, {Mode.EAGER: "cold", Mode.GRAPH: "warm"}, {"device": "X1"}, **more)


def test_the_first_one_is_on_trial_in_the_first_mode() -> None:
    assert result().trial == "contestant"
    assert result().mode is Mode.EAGER
    assert result().ms() == median(TEN)
    assert result().ms("reference", mode="graph") == median(TEN)
    assert result().speedup("reference") == Estimate(2, 2, 2, 10)
    assert result().speedup("contestant", of="reference") == Estimate(0.5, 0.5, 0.5, 10)


@pytest.mark.parametrize(
    ("by", "mode", "holds"),
    [(1.0, None, True), (2.0, None, True), (2.01, None, False), (1.01, "graph", False)],
)
def test_a_margin_is_kept_or_not(by: float, mode: str | None, holds: bool) -> None:
    verdict = result().faster_than("reference", by=by, mode=mode)
    assert bool(verdict) is verdict.holds is holds


@given(
    st.lists(st.floats(0.1, 10), min_size=5, max_size=30),
    st.floats(0.5, 2.0),
    st.floats(0.5, 2.0),
)
def test_it_is_the_interval_that_is_judged(noise: list[float], truth: float, by: float) -> None:
    """No margin above the interval's lower end is ever kept, and a larger one never sooner."""
    steady = tuple(1.0 for _ in noise)
    found = Result(
        {
            "a": Entrant(1, {Mode.WALL: tuple(noise)}),
            "b": Entrant(1, {Mode.WALL: tuple(truth * one for one in steady)}),
        },
        {},
        {},
    )
    low = found.speedup("b").low
    assert bool(found.faster_than("b", by=by)) is (low >= by)
    if found.faster_than("b", by=by):
        assert found.faster_than("b", by=by / 2)


def test_a_verdict_says_both_numbers() -> None:
    assert repr(result().faster_than("reference", by=2.5)) == (
        "<contestant is x2 (2 to 2) as fast as reference, 2.5 is needed for certain: "
        "1.045 (1.01 to 1.08) ms against 2.09 (2.02 to 2.16) ms, eager>"
    )
    assert "x0.5 (0.5 to 0.5) as fast as contestant, 0.4 is kept" in repr(
        result().faster_than("contestant", of="reference", by=0.4)
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"reference": "old"}, "there is no contestant 'old'; there is contestant, reference"),
        (
            {"reference": "contestant"},
            "contestant is compared with itself; give one of reference",
        ),
        (
            {"reference": "reference", "mode": "wall"},
            "was not timed in the mode 'wall'; there is eager, graph",
        ),
        ({"reference": "reference", "by": 0}, "by is 0; give a factor: 1.2 asks for 20 % faster"),
        ({"reference": "reference", "by": math.nan}, "by is nan;"),
        ({"reference": "reference", "by": "1.2"}, "by is '1.2';"),
        ({"reference": "reference", "of": "x"}, "there is no contestant 'x'"),
    ],
)
def test_what_can_not_be_meant(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        result().faster_than(**arguments)


def test_one_alone_has_nothing_to_be_compared_with() -> None:
    alone = Result({"contestant": Entrant(1, {Mode.WALL: TEN})}, {}, {})
    with pytest.raises(UsageError, match="compared with itself; hand in a reference as well"):
        alone.faster_than("contestant")


def test_a_graph_that_there_is_not_says_why() -> None:
    entrants = {"a": Entrant(1, {Mode.EAGER: TEN}, uncaptured="it waits")}
    with pytest.raises(UsageError, match="a was not timed in the mode 'graph': it waits; there is"):
        Result(entrants, {}, {}).ms("a", mode="graph")


def test_an_invalid_one_is_refused_before_it_is_judged() -> None:
    told: list[str] = []
    valid, invalid = result(refuse=told.append), result(refuse=told.append, why="too hot")
    assert valid.valid
    assert not invalid.valid
    assert valid.faster_than("reference")
    assert told == []
    invalid.faster_than("reference")
    assert told == ["too hot"]


@pytest.mark.parametrize(
    ("eager", "graph", "host", "bound"),
    [
        (12.0, 3.0, 12.0, "host-bound"),
        (12.0, 3.0, 5.0, "host-bound"),
        (12.0, 11.5, 12.0, "device-bound"),  # as close as that says nothing
        (12.0, 8.0, 5.0, "device-bound"),  # a cold cache, and the host is done earlier
        (12.0, None, 12.0, "host-bound"),
        (12.0, None, 5.0, "device-bound"),
        (12.0, None, None, ""),
    ],
)
def test_who_keeps_whom_waiting(
    eager: float, graph: float | None, host: float | None, bound: str
) -> None:
    times = {Mode.EAGER: (eager,) * 5}
    if graph is not None:
        times[Mode.GRAPH] = (graph,) * 5
    assert Entrant(1, times, host).bound() == bound


def test_a_share_needs_a_ceiling() -> None:
    assert Rate(3e12, 4e12).share == 0.75
    assert Rate(3e12, None).share is None


def test_data_is_what_json_holds() -> None:
    data = result(notes=("so",), group="g").plain()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    one = data["contestants"][0]["modes"]["eager"]
    assert one["times"] == list(TEN)
    assert one["speedup"] == {"reference": [2, 2, 2]}
    assert data["contestants"][1]["first_ms"] == 6.0


@pytest.mark.parametrize(
    ("mid", "text"),
    [
        (1234.5678, "1235 (617.3 to 2469) ms"),
        (1.0, "1 (0.5 to 2) ms"),
        (0.1, "0.1 (0.05 to 0.2) ms"),
        (0.0123456, "12.35 (6.173 to 24.69) us"),
    ],
)
def test_times_in_words(mid: float, text: str) -> None:
    assert time_of(Estimate(mid, mid / 2, mid * 2)) == text
    assert text_of(Estimate(2, 1, 3)) == "2 (1 to 3)"
