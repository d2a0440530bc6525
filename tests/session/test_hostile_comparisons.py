"""What a far side says, or does not say, of a failed comparison, where an editor listens for it."""

from __future__ import annotations

from typing import Any

import pytest

import fakes
from fakes import Far, report
from pytest_remotegpu.protocol import events, packing
from stage import FAR, HERE, Played, Stage, each

EDITOR = """
import pathlib

HEARD = pathlib.Path(__file__).parent.parent / "heard"

def pytest_assertrepr_compare(op, left, right):
    with HEARD.open("a") as file:
        file.write(repr((op, left, right)) + "\\n")
"""
"""Bears the name of an editor's reporter, so that comparisons are asked for."""


@pytest.fixture
def listened(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Give a stage on which an editor's reporter listens."""
    (stage.path / "vscode_pytest.py").write_text(EDITOR)
    monkeypatch.syspath_prepend(stage.path)
    return stage


def fails(*said: Any) -> fakes.Script:
    """Make a script whose first test fails, and says this of a comparison: at most one value."""

    def script(far: Far) -> None:
        far.greet()
        changes: dict[str, Any] = {packing.COMPARED: said[0]} if said else {}
        call = report(0, "call", "failed", **changes)
        far.say(events.Started(0), report(0, "setup"), call, report(0, "teardown"))
        far.say(events.Finished(0))
        far.run(1, 2)
        far.end()

    return script


ONES = ("==", (False, "1"), (False, "2"))
ODD: dict[str, Any] = {
    "a number": 5,
    "text": "==",
    "two parts": ONES[:2],
    "four parts": (*ONES, (False, "3")),
    "an operator that is none": (None, *ONES[1:]),
    "a side that is text": (*ONES[:2], "2"),
    "a side of one part": (*ONES[:2], (False,)),
    "a side that is no text": (*ONES[:2], (False, 2)),
    "a flag that is a number": (*ONES[:2], (1, "2")),
    "a dict": {"op": "==", "left": "1", "right": "2"},
}


def heard(stage: Stage) -> list[str]:
    """Give what the editor was told."""
    path = stage.path.parent / "heard"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_none_is_told_where_none_was_sent(listened: Stage) -> None:
    """The test has failed all the same, with the text that was sent; others have passed."""
    scripts = {"none": fails(), "one": fails(ONES), "nothing": fails(None)}

    def check(_name: str, played: Played) -> None:
        assert played.verdicts() == ["failed", "passed", "passed"]
        assert "it failed there" in played.text

    each(listened.run_lanes(scripts, "-p", "vscode_pytest"), check)
    assert heard(listened) == ["('==', 1, 2)"]


@pytest.mark.timeout(60)
def test_odd_ones_are_errors(listened: Stage) -> None:
    """No test passes over one, and the editor is told of none."""

    def check(_name: str, played: Played) -> None:
        assert played.verdict(FAR[0]) == "failed", played.phases
        assert "a comparison that reads" in played.text
        assert played.verdicts(HERE) == ["passed"] * 2

    scripts = {name: fails(value) for name, value in ODD.items()}
    each(listened.run_lanes(scripts, "-p", "vscode_pytest"), check)
    assert heard(listened) == []
