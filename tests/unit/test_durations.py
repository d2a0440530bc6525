"""What earlier sessions left in the cache of how long tests took, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.durations import MOST, Durations, merged, readable

ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


@given(ANYTHING)
def test_garbage_does_no_harm(data: Any) -> None:
    found = readable(data)
    assert all(type(name) is str and 0 <= seconds < 1e6 for name, seconds in found.items())


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "1", None, [1.0], 1e9])
def test_no_duration(seconds: Any) -> None:
    assert readable({"bad": seconds, "good": 1.5}) == {"good": 1.5}


def test_what_is_new_counts_for_half() -> None:
    assert merged({"a": 1.0, "b": 4.0}, {"a": 3.0, "c": 5.0}) == {"b": 4.0, "a": 2.0, "c": 5.0}


def test_those_that_ran_last_are_kept() -> None:
    many = {f"test_{at}": 1.0 for at in range(MOST)}
    found = merged(many, {"new": 2.0, "test_0": 1.0})
    assert len(found) == MOST
    assert {"new", "test_0"} <= set(found)
    assert "test_1" not in found


def test_endless_ids_are_not_kept() -> None:
    assert merged({}, {"x" * 1001: 1.0, "y": 1.0}) == {"y": 1.0}


def test_without_a_cache() -> None:
    durations = Durations(None)
    durations.note("a", 1.0)
    durations.keep()
    assert durations.of("a") is None
