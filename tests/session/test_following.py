"""Tests in another order than that of their collection, one by one, in one worker process.

Speaks to a real worker; what it says of each test is compared with what pytest would.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

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
