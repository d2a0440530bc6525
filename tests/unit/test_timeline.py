"""The phases of a worker's start, from what is said of its machine and by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_remotegpu.backends.base import Rental
from pytest_remotegpu.controller import Lost, Said, Worker
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.summary import RunSummary
from pytest_remotegpu.timeline import Timeline

BEGAN = 100.0


def worker(rental: Rental | None) -> Worker:
    channel: Any = SimpleNamespace(rental=rental)
    return Worker("modal-1", Shape(1), channel, BEGAN + 1)


def phases(summary: RunSummary) -> dict[str, tuple[float, float]]:
    found = {each.name: (each.start, each.seconds) for each in summary.phases}
    assert len(found) == len(summary.phases), summary.phases
    return found


def greeted(rental: Rental | None) -> tuple[Timeline, Worker, RunSummary]:
    summary = RunSummary()
    timeline, made = Timeline(summary, BEGAN), worker(rental)
    timeline.take(Said(made, Hello.here(), at=BEGAN + 60))
    return timeline, made, summary


def test_a_cold_start_in_its_parts() -> None:
    rental = Rental(builds=BEGAN + 2, asked=BEGAN + 40, began=BEGAN + 55)
    _timeline, _worker, summary = greeted(rental)
    assert phases(summary) == {
        "service": (1, 1), "image and app": (2, 38), "container start": (40, 15), "hello": (55, 5),
    }  # fmt: skip


def test_what_was_there_has_taken_no_time_and_what_was_not_built_is_left_out() -> None:
    _timeline, _worker, summary = greeted(Rental(asked=BEGAN + 2, began=BEGAN + 2))
    assert phases(summary) == {"service": (1, 1), "container start": (2, 0), "hello": (2, 58)}


def test_a_worker_of_nobodys_machine_has_a_hello_only() -> None:
    _timeline, _worker, summary = greeted(None)
    assert phases(summary) == {"hello": (1, 59)}


@pytest.mark.parametrize("last", [[events.StretchEnded()], Lost("gone")])
def test_a_machine_that_says_late_when_it_began(last: Any) -> None:
    """It comes by another way than the hello; where it never comes, the start ends with that."""
    rental = Rental(asked=BEGAN + 2)
    timeline, made, summary = greeted(rental)
    assert not summary.phases
    if not isinstance(last, Lost):
        rental.began = BEGAN + 50
    timeline.take(Said(made, last, at=BEGAN + 61))
    timeline.take(Said(made, last, at=BEGAN + 62))
    start = 48 if rental.began else 0
    assert phases(summary)["container start"] == (2, start)
    assert phases(summary)["hello"] == (2 + start, 58 - start)


def test_files_are_sent_between_the_first_need_and_the_start_of_the_runner() -> None:
    timeline, made, summary = greeted(None)
    timeline.take(Said(made, [events.Need(["a"])], at=BEGAN + 61))
    timeline.take(Said(made, [events.Need(["b"])], at=BEGAN + 63))
    timeline.take(Said(made, [events.Phases([("process", 2.0)])], at=BEGAN + 70))
    timeline.take(Said(made, [events.Phases([("imports", 1.0)])], at=BEGAN + 72))
    found = phases(summary)
    assert found["files"] == (61, 7)
    assert found["process"] == (68, 2)


def test_where_nothing_is_needed_no_files_are_sent() -> None:
    timeline, made, summary = greeted(None)
    timeline.take(Said(made, [events.Phases([("process", 2.0)])], at=BEGAN + 70))
    assert "files" not in phases(summary)


def test_the_tests_from_the_first_to_the_last() -> None:
    timeline, made, summary = greeted(None)
    for place, at in enumerate((70, 80)):
        timeline.take(Said(made, [events.Started(place)], at=BEGAN + at))
        timeline.take(Said(made, [events.Finished(place)], at=BEGAN + at + 4))
    timeline.take(Said(made, Lost(""), at=BEGAN + 90))
    found = phases(summary)
    assert found["first test"] == (70, 4)
    assert found["last test"] == (80, 4)
    assert found["tests"] == (70, 14)
    assert found["end"] == (84, 6)
