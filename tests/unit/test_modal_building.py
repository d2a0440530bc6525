"""What is shown of an image's build, and how often a silent one is heard of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal.building import EVERY, VARIABLE, Building, interval
from pytest_remotegpu.errors import UsageError


def made(*, every: float = 30.0, quiet: bool = False) -> tuple[Building, list[str]]:
    said: list[str] = []
    return Building(said.append, every=every, quiet=quiet), said


def test_a_silent_step_is_heard_of_at_intervals() -> None:
    build, said = made()
    build.begin("a", "builds x, since y", 100.0)
    for second in range(100, 191):
        build.look(float(second))
    assert said == ["builds x, since y", *(f"builds the image ({n} s)" for n in (30, 60, 90))]


def test_what_a_build_says_puts_it_off_and_the_time_is_that_of_the_whole() -> None:
    build, said = made()
    build.begin("a", "why", 0.0)
    build.line("=> RUN x", 20.0)
    build.look(49.0)
    assert said == ["why", "  => RUN x"]
    build.look(50.0)
    assert said[2:] == ["builds the image (50 s)"]


def test_nothing_is_said_once_it_has_ended() -> None:
    build, said = made()
    build.begin("a", "why", 0.0)
    build.begin("b", "why", 10.0)
    build.end("a")
    build.look(45.0)
    build.end("b")
    build.end("b")
    build.look(500.0)
    assert said == ["why", "builds the image (35 s)"]


def test_who_wants_it_quiet_gets_the_reason_alone() -> None:
    build, said = made(quiet=True)
    build.begin("a", "why", 0.0)
    build.line("=> RUN x", 1.0)
    build.look(1000.0)
    build.end("a")
    build.line("a warning", 1001.0)
    assert said == ["why", "  a warning"]


@given(st.lists(st.floats(0, 1000)), st.floats(0.5, 100))
def test_never_more_often_than_asked_for(moments: list[float], every: float) -> None:
    build, said = made(every=every)
    build.begin("a", "why", 0.0)
    for moment in sorted(moments):
        build.look(moment)
    assert len(said) - 1 <= 1000 / every


def test_the_interval_is_read_from_a_variable() -> None:
    assert interval({}) == interval({VARIABLE: ""}) == EVERY
    assert interval({VARIABLE: "0"}) == 0


@pytest.mark.parametrize("given", ["often", "-1", "nan", "inf"])
def test_what_is_no_number_of_seconds_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match=VARIABLE) as caught:
        interval({VARIABLE: given})
    assert repr(given) in str(caught.value)
