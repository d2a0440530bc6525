"""How the end of a courier is told that a signal has ended."""

from __future__ import annotations

import pytest

from pytest_remotegpu.backends.modal.course import Course


@pytest.mark.parametrize(
    ("said", "at", "began"),
    [
        ([], "it signed in", False),
        ([{"ready": True}], "the app was made ready", False),
        ([{"ready": True}, {"builds": "why"}], "the image was built", False),
        ([{"builds": "why"}, {"say": "a line"}, {"builds": ""}], "the app was made ready", False),
        ([{"builds": ""}, {"asked": True}, {"call": "fc-1"}], "a container was started", False),
        ([{"asked": True}, {"container": "ta-1"}], "container ta-1 was at work", True),
    ],
)
def test_it_says_what_it_was_at(said: list[dict[str, object]], at: str, *, began: bool) -> None:
    course = Course()
    for each in said:
        course.hear(each)
    assert course.began == began
    who = "the process that talks to Modal (courier, process 7)"
    assert course.killed(9, 7) == f"{who} was killed by SIGKILL while {at}"


@pytest.mark.parametrize(("number", "name"), [(15, "SIGTERM"), (11, "SIGSEGV"), (99, "signal 99")])
def test_signals_have_names_where_there_are_any(number: int, name: str) -> None:
    assert f" was killed by {name} while " in Course().killed(number, 7)
