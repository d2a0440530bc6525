"""What comes as a benchmark is read, or refused: it may come from far away."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.benchmarks import plain
from pytest_remotegpu.bench.told import MOST, clean, read
from pytest_remotegpu.errors import RemoteGpuError

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=5), parts),
    max_leaves=8,
)


def test_what_a_result_gives_is_read() -> None:
    data = plain(2.0)
    (found,) = read("test_a.py::test", "passed", [data])
    assert (found.test, found.index, found.outcome) == ("test_a.py::test", 0, "passed")
    ((name, mode, timed),) = found.benchmark.timed()
    assert (name, mode, timed.ms) == ("contestant", "eager", 2.0)
    assert timed.estimate.count == 11


@given(ANYTHING)
def test_nothing_else_is(value: Any) -> None:
    if value == []:
        assert read("t", "passed", value) == []
        return
    with pytest.raises(RemoteGpuError, match=r"^t: "):
        read("t", "passed", value)


PARTS = ["format", "version", "environment", "contestants", "notes", "l2", "state", "valid"]


@given(st.sampled_from(PARTS), ANYTHING)
def test_a_part_that_is_of_another_kind_does_no_harm(part: str, value: Any) -> None:
    """It is read as what it is, or refused; no other error comes of it."""
    data = {**plain(), part: value}
    try:
        (found,) = read("t", "passed", [data])
    except RemoteGpuError:
        return
    assert getattr(found.benchmark, part) == value or isinstance(value, float)


@pytest.mark.parametrize("number", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("where", ["ms", "low", "high", "times"])
def test_what_is_no_time_is_refused(where: str, number: float) -> None:
    data = copy.deepcopy(plain())
    data["contestants"][0]["modes"]["eager"][where] = [number] if where == "times" else number
    with pytest.raises(RemoteGpuError, match="its benchmark can't be read"):
        read("t", "passed", [data])


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, object()])
def test_what_json_can_not_hold_is_refused(value: Any) -> None:
    with pytest.raises(RemoteGpuError, match="its benchmark can't be read"):
        read("t", "passed", [plain(note=value)])


def test_what_is_nested_without_an_end_is_refused() -> None:
    data = plain()
    data["environment"]["self"] = data["environment"]
    with pytest.raises(RemoteGpuError, match="its benchmark can't be read"):
        read("t", "passed", [data])


def test_a_median_lies_in_its_interval() -> None:
    data = copy.deepcopy(plain())
    data["contestants"][0]["modes"]["eager"]["low"] = 1.5
    with pytest.raises(RemoteGpuError, match=r"1\.0 is not from 1\.5 to"):
        read("t", "passed", [data])


def test_another_version_is_named() -> None:
    with pytest.raises(RemoteGpuError, match="in version 2, not pytest-remotegpu/benchmark in 1"):
        read("t", "passed", [{**plain(), "version": 2}])


def test_there_are_not_any_number() -> None:
    with pytest.raises(RemoteGpuError, match=f"no list of at most {MOST}"):
        read("t", "passed", [plain()] * (MOST + 1))


@given(st.text())
def test_no_character_moves_a_cursor(text: str) -> None:
    assert clean(text).isprintable()
    assert len(clean(text)) == len(text)
