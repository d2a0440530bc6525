"""Tests in another order than that of their collection, one by one, in one worker process.

Speaks to a real worker; what it says of each test is compared with what pytest would.
"""

from __future__ import annotations

import os
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_remotegpu import backends
from pytest_remotegpu.backends.base import Environment, Site
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.testing.project import Project, clean
from pytest_remotegpu.testing.talk import Talk

SITE = Site(sys.executable, sys.executable, sys.platform)
FILES = {
    "pytest.ini": "[pytest]",
    "conftest.py": """
        import pytest

        made = []

        @pytest.fixture(scope="session")
        def whole():
            made.append(1)
            yield len(made)
    """,
    "test_a.py": """
        import pytest

        @pytest.fixture(scope="module")
        def part():
            yield
            raise ValueError("the end of a")

        def test_one(part, whole): pass
        def test_two(part, whole): assert whole == 1
    """,
    "test_b.py": """
        import sys

        def test_three(whole): assert whole == 1
    """,
}
IDS = ("test_a.py::test_one", "test_a.py::test_two", "test_b.py::test_three")


def write(root: Path) -> Project:
    """Write the files of a project whose fixtures tell when they are made and how they end."""
    root.mkdir()
    for name, text in FILES.items():
        root.joinpath(name).write_text(textwrap.dedent(text))
    return Project(root)


def outcomes(said: list[events.Event], item: int) -> list[tuple[str, str]]:
    """Give phase and outcome of each report of one test."""
    return [
        (from_text(event.when or b""), from_text(event.outcome))
        for event in said
        if isinstance(event, events.Report) and event.item == item
    ]


def test_another_than_the_neighbour_may_follow(tmp_path: Path) -> None:
    """What the neighbour would have needed is torn down before the test that comes instead."""
    variables = {**clean(os.environ), "CI": "1"}
    backend = backends.find("local", "cpu", SITE)
    with Talk(backend, Shape(1), Environment(variables), 30.0) as talk:
        talk.begin(write(tmp_path / "project"), IDS, 1)
        talk.until(events.StretchEnded)
        talk.say(orders.Run(2, 3, following=1))
        talk.until(events.StretchEnded)
        talk.say(orders.Run(1, 2, following=len(IDS)), orders.Finish())
        talk.to_the_end()
        assert talk.over is not None
        assert talk.over.why is None, talk.state()
    passed = [("setup", "passed"), ("call", "passed"), ("teardown", "passed")]
    assert outcomes(talk.said, 0) == passed
    assert outcomes(talk.said, 2) == passed
    assert outcomes(talk.said, 1) == [*passed[:2], ("teardown", "failed")]
    (ended,) = [event for event in talk.said if isinstance(event, events.SessionEnded)]
    assert ended.status == 1
    assert from_text(ended.text).startswith(f"after {IDS[0]}:")
    assert "ValueError: the end of a" in from_text(ended.text)


TAKEN = {
    "conftest.py": FILES["conftest.py"],
    "pytest.ini": FILES["pytest.ini"],
    "test_a.py": """
        import pathlib, time
        import pytest

        @pytest.fixture(scope="module")
        def part():
            yield
            print("said at the end of a")
            raise ValueError("the end of a")

        @pytest.fixture
        def own(request):
            yield
            if pathlib.Path("fails").exists():
                raise KeyError("the end of one")

        def test_one(part, whole, own):
            end = time.monotonic() + 20
            while not pathlib.Path("go").exists():
                assert time.monotonic() < end
                time.sleep(0.02)

        def test_two(part, whole): pass
    """,
    "test_b.py": """
        def test_three(whole): assert whole == 1
    """,
}


def taken_back(
    root: Path, running: list[orders.Run], *then: Any, fails: bool = False
) -> list[events.Event]:
    """Let a worker run a test, say something meanwhile, then have it run another file's test.

    :param running: stretches that it is asked for, the first of which begins with that test.
    """
    root.mkdir()
    for name, text in TAKEN.items():
        root.joinpath(name).write_text(textwrap.dedent(text))
    if fails:
        (root / "fails").touch()
    environment = Environment({**clean(os.environ), "CI": "1"})
    with Talk(backends.find("local", "cpu", SITE), Shape(1), environment, 30.0) as talk:
        talk.begin(Project(root), IDS, 0)
        talk.until(events.StretchEnded)
        talk.say(*running)
        talk.until(events.Started)
        talk.say(*then)
        if any(isinstance(message, orders.Withdraw) for message in then) and len(running) > 1:
            talk.until(events.Withdrawn)
        else:
            time.sleep(0.5)  # there is no answer to wait for
        (root / "go").touch()
        talk.until(events.StretchEnded)
        talk.say(orders.Run(2, 3, following=len(IDS)), orders.Finish())
        talk.to_the_end()
        assert talk.over is not None
        assert talk.over.why is None, talk.state()
    return talk.said


def longrepr(said: list[events.Event], item: int) -> str:
    """Give all that the failed reports of a test say, as text."""
    return "".join(
        repr(event)
        for event in said
        if isinstance(event, events.Report)
        and event.item == item
        and from_text(event.outcome) == "failed"
    )


PASSED = [("setup", "passed"), ("call", "passed"), ("teardown", "passed")]


@pytest.mark.parametrize(
    ("running", "then"),
    [
        ([orders.Run(0, 2)], orders.Withdraw(running=True)),
        ([orders.Run(0, 1), orders.Run(1, 2)], orders.Withdraw()),
        ([orders.Run(0, 1, following=1)], orders.Follows(2)),
        ([orders.Run(0, 1, following=1)], orders.Follows(len(IDS))),
    ],
    ids=["in its midst", "behind it", "another follows", "nothing follows"],
)
def test_a_test_that_is_the_last_after_all_tears_its_module_down(
    running: list[orders.Run], then: Any, tmp_path: Path
) -> None:
    """As plain pytest would have it: what fails is an error of that test, not of the session."""
    said = taken_back(tmp_path / "project", running, then)
    assert outcomes(said, 0) == [*PASSED[:2], ("teardown", "failed")]
    assert outcomes(said, 1) == []
    again = then == orders.Follows(len(IDS))  # then even what the whole session has was torn down
    assert outcomes(said, 2)[1] == ("call", "failed" if again else "passed")
    assert "the end of a" in longrepr(said, 0)
    assert not [event for event in said if isinstance(event, events.SessionEnded)]
    output = [
        from_text(event.text)
        for event in said
        if isinstance(event, events.Section) and event.name == b"Captured stdout teardown"
    ]
    assert output == ["said at the end of a\n"]


def test_both_failures_of_its_end_are_told(tmp_path: Path) -> None:
    said = taken_back(
        tmp_path / "project", [orders.Run(0, 2)], orders.Withdraw(running=True), fails=True
    )
    assert outcomes(said, 0) == [*PASSED[:2], ("teardown", "failed")]
    assert "the end of a" in longrepr(said, 0)
    [before] = [
        from_text(event.text)
        for event in said
        if isinstance(event, events.Section) and event.name.startswith(b"This tear-down failed")
    ]
    assert "the end of one" in before


def test_what_goes_on_keeps_its_fixtures(tmp_path: Path) -> None:
    """A stretch whose tests are all to come is none that is taken back."""
    said = taken_back(tmp_path / "project", [orders.Run(0, 2)])
    assert outcomes(said, 0) == PASSED
    assert outcomes(said, 1) == [*PASSED[:2], ("teardown", "failed")]
