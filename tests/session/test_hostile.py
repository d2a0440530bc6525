"""A hostile worker speaks well-formed frames that lie about tests, and is caught.

Whatever it says, its tests fail with a reason, the local ones are reported, and nothing runs here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import fakes
from fakes import Far, report
from pytest_remotegpu.protocol import events
from stage import FAR, HERE, PASSED, Played, Stage, each

FINISHED = events.Finished(0)
BYE = b"bye"


def honest(place: int) -> list[events.Event]:
    """Give the reports of a test that passed."""
    return [report(place, when) for when in ("setup", "call", "teardown")]


def says(*said: events.Event, ran: tuple[int, ...] = ()) -> fakes.Script:
    """Make a script that says this at some time, and all else as an honest worker would."""
    begun = {event.item for event in said if isinstance(event, events.Started)} - {*ran}

    def script(far: Far) -> None:
        far.greet()
        far.run(*ran)
        far.say(*said)
        for place in sorted(begun & set(range(far.order.run.last))):
            far.say(*honest(place), events.Finished(place))
        far.run(*(place for place in range(far.order.run.last) if place not in {*ran, *begun}))
        far.end()

    return script


def encodes(*said: list[Any]) -> fakes.Script:
    """Make a script that says what no honest encoder would while its first test runs."""

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0), report(0, "setup"))
        far.encoded(msgspec.msgpack.encode(said), len(said))
        far.say(*honest(0)[1:], FINISHED)
        far.run(1, 2)
        far.end()

    return script


# ---------------------------------------------------------------- which tests the news is about

PLACES: dict[str, tuple[fakes.Script, str, tuple[str, ...]]] = {
    "too large": (says(events.Started(3)), "was not handed out", FAR),
    "huge": (encodes([3, 2**64 - 1]), "was not handed out", FAR),
    "larger than any": (encodes([3, msgspec.msgpack.Ext(3, b"1" * 30)]), "undecodable", FAR),
    "negative": (encodes([3, -1]), "undecodable", FAR),
    "no number": (encodes([3, "0"]), "undecodable", FAR),
    "report before the start": (says(report(0, "setup")), "has not begun", FAR),
    "report of another": (says(events.Started(0), report(1, "call")), "has not begun", FAR),
    "end before the start": (says(FINISHED), "has not begun", FAR),
    "crash before the start": (says(events.Crashed(0, "x", b"", b"", b"")), "has not begun", FAR),
    "section before the start": (says(events.Section(0, 0, b"x", b"y")), "has not begun", FAR),
    "start twice": (says(events.Started(0), events.Started(0)), "begins a second time", FAR),
    "report after the verdict": (says(report(0, "call"), ran=(0,)), "has its verdict", FAR[1:]),
    "end twice": (says(FINISHED, ran=(0,)), "has its verdict", FAR[1:]),
    "start after the verdict": (says(events.Started(0), ran=(0,)), "a second time", FAR[1:]),
    "file skipped after the start": (
        says(events.Started(0), events.SkippedThere(0, b"x", 1, b"y")), "can't be skipped", FAR,
    ),
    "artifact of another": (
        says(events.Started(0), events.Artifact(1, b"x", b"y")), "has not begun", FAR,
    ),
    "warning of another": (
        says(events.Started(0), events.Warned(2, "runtest", "x", b"", b"", 1, None, None)),
        "has not begun", FAR,
    ),
    "values of what was not asked": (says(events.Wants([7])), "was not handed out", FAR),
    "contents of a tree not sent": (says(events.Need(["0" * 64])), "no tree was sent", FAR),
    "stretch ended twice": (
        says(events.StretchEnded(), events.StretchEnded()), "without having run", FAR,
    ),
}  # fmt: skip


@pytest.mark.timeout(60)
def test_places_that_lie(stage: Stage) -> None:
    def check(name: str, played: Played) -> None:
        _, said, guilty = PLACES[name]
        played.caught(said=said, guilty=guilty)

    each(stage.run_lanes({name: script for name, (script, _, _) in PLACES.items()}), check)


# ---------------------------------------------------------------- tests that claim to have passed

CLAIMS: dict[str, list[events.Event]] = {
    "nothing": [],
    "no teardown": [report(0, "setup"), report(0, "call")],
    "no setup": [report(0, "call"), report(0, "teardown")],
    "no call": [report(0, "setup"), report(0, "teardown")],
    "call alone": [report(0, "call")],
    "backwards": [report(0, "teardown"), report(0, "call"), report(0, "setup")],
    "call twice": [report(0, "setup"), report(0, "call"), report(0, "call"), report(0, "teardown")],
    "all twice": [*honest(0), *honest(0)],
    "call after a failed setup": [
        report(0, "setup", "failed"), report(0, "call"), report(0, "teardown"),
    ],
    "teardown before the call": [
        report(0, "setup"), report(0, "teardown"), report(0, "call"), report(0, "teardown"),
    ],
    "rerun without an end": [
        report(0, "setup"), report(0, "call", "rerun"), report(0, "teardown"),
    ],
}  # fmt: skip


def claims(*said: events.Event) -> fakes.Script:
    """Make a script that says this of its first test and calls it finished."""

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0), *said, FINISHED)
        far.run(1, 2)
        far.end()

    return script


@pytest.mark.timeout(60)
def test_claims_to_have_passed(stage: Stage) -> None:
    def check(_name: str, played: Played) -> None:
        phases = played.phases.get(FAR[0], [])
        assert "failed" in {outcome for _, outcome in phases}, phases
        assert played.verdicts(HERE) == ["passed"] * 2
        assert played.text

    each(stage.run_lanes({name: claims(*said) for name, said in CLAIMS.items()}), check)


SILENCES: dict[str, list[events.Event]] = {
    "stretch": [events.StretchEnded()],
    "stretch with a reason": [events.StretchEnded(b"stopping after 1 failures")],
    "exit": [events.Exited(BYE, 0), events.StretchEnded()],
    "interrupt": [events.Exited(BYE, None, interrupt=True)],
    "failed start": [events.StartFailed(BYE)],
    "usage": [events.StartFailed(BYE, usage=True)],
    "not found": [events.NotFound(place, BYE) for place in range(3)],
    "one not found": [events.NotFound(2, BYE), events.StretchEnded()],
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("said", SILENCES.values(), ids=SILENCES)
def test_end_of_it_all_before_any_test_ran(said: list[events.Event], stage: Stage) -> None:
    def script(far: Far) -> None:
        far.greet()
        far.say(*said, events.Ended())

    played = stage.run(script)
    assert played.ret not in (0, 3, 5), played.text
    assert "passed" not in played.verdicts(), played.text


def test_exit_of_a_test_leaves_no_test_green(stage: Stage) -> None:
    """As in a plain session its status is the test's own choice; but nothing is called passed."""

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0), report(0, "setup"), events.Exited(BYE, 0), FINISHED)
        far.say(events.StretchEnded(b"exit"), events.Ended())

    played = stage.run(script)
    assert [played.phases.get(id, []) for id in FAR[1:]] == [[], []]
    assert ("call", "passed") not in played.phases.get(FAR[0], [])
    assert "bye" in played.text


# ---------------------------------------------------------------- reports that are none


KIND = {"$report_type": "TestReport"}


def of_kind(kind: object) -> dict[str, Any]:
    """Give the data that says of which kind a report is."""
    return {"$report_type": kind}


def with_report(when: str = "call", outcome: str = "failed", **changes: Any) -> fakes.Script:
    """Make a script whose first test has an odd report; but for that, the test failed."""
    odd = report(0, when, outcome, **changes)
    return says_call(lambda far: far.say(odd))


def with_raw(**changes: Any) -> fakes.Script:
    """Make a script whose first test has a call report with fields of whatever type."""
    fields: dict[str, Any] = {
        "item": 0,
        "when": b"call",
        "outcome": b"passed",
        "duration": 0.1,
        "start": 1.0,
        "stop": 1.1,
        "keywords": None,
        "sections": [],
        "open": KIND,
    }
    encoded = msgspec.msgpack.encode([[5, *{**fields, **changes}.values()]])
    return says_call(lambda far: far.encoded(encoded, 1))


def says_call(say: Callable[[Far], None]) -> fakes.Script:
    """Make a script in which the call report of the first test is left to ``say``."""

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0), report(0, "setup"))
        say(far)
        far.say(report(0, "teardown"), FINISHED)
        far.run(1, 2)
        far.end()

    return script


def nested(depth: int) -> msgspec.Raw:
    """Encode a list in a list, and so on."""
    return msgspec.Raw(b"\x91" * depth + b"\x90")


def tuples(depth: int) -> msgspec.Raw:
    """Encode a tuple in a tuple, and so on, as the wire does."""
    encoded = b"\x90"
    for _ in range(depth):
        encoded = b"\x91" + msgspec.msgpack.encode(msgspec.msgpack.Ext(1, encoded))
    return msgspec.Raw(msgspec.msgpack.encode(msgspec.msgpack.Ext(1, encoded)))


ODD_ENTRY: dict[str, Any] = {
    "reprcrash": None,
    "sections": [],
    "chain": None,
    "reprtraceback": {
        "reprentries": [{"type": "os.system", "data": {}}],
        "style": "long",
        "extraline": None,
    },
}
REPORTS: dict[str, fakes.Script] = {
    "phase that is a number": with_raw(when=5),
    "phase that is not known": with_report(when="call2"),
    "phase that is missing": with_raw(when=None),
    "outcome that is a number": with_raw(outcome=1),
    "outcome that is not known": with_report(outcome="green"),
    "outcome that is no text": with_raw(outcome=b"\xff\xfe"),
    "duration that is text": with_raw(duration="long"),
    "start that is text": with_raw(start="now"),
    "keywords that are text": with_raw(keywords="gpu"),
    "sections that were not sent": with_raw(sections=[0]),
    "sections before the first": with_raw(sections=[-1]),
    "more fields": with_raw(more=1),
    "open data that is a list": with_raw(open=[]),
    "kind that is a class": with_report(**of_kind("subprocess.Popen")),
    "kind of a collection": with_report(**of_kind("CollectReport"), result=None),
    "kind that is a number": with_report(**of_kind(5)),
    "kind that is missing": with_raw(open={}),
    "kind of a sub-test without its parts": with_report(_report_type="SubTestReport"),
    "longrepr without its parts": with_report(longrepr={"reprcrash": {}, "reprtraceback": {}}),
    "longrepr of unknown entries": with_report(longrepr=ODD_ENTRY),
    "longrepr of numbers": with_report(longrepr={"reprcrash": 5, "reprtraceback": 5}),
    "longrepr that is missing": with_report(longrepr=None),
    "longrepr that is a number": with_report(longrepr=5),
    "longrepr that is a list": with_report(longrepr=["x"]),
    "longrepr that is a pair": with_report(longrepr=("x", 1)),
    "skip whose reason is a pair": with_report(outcome="skipped", longrepr=("x", 1)),
    "skip whose reason is a number": with_report(outcome="skipped", longrepr=7),
    "skip whose reason is a dict": with_report(outcome="skipped", longrepr={"a": 1}),
    "xfail whose reason is a number": with_report(outcome="skipped", wasxfail=7),
    "properties that are a number": with_report(user_properties=5),
    "properties that are a dict": with_report(user_properties={"a": 1}),
    "properties of three": with_report(user_properties=[("a", 1, 2)]),
    "properties without a name": with_report(user_properties=[(1, 2)]),
    "properties nested deeply": with_raw(open={**KIND, "user_properties": [["x", nested(950)]]}),
    "data nested too deeply": with_raw(open={**KIND, "x": nested(100_000)}),
    "tuples nested too deeply": with_raw(open={**KIND, "x": tuples(3_000)}),
    "longrepr nested deeply": with_raw(outcome=b"failed", open={**KIND, "longrepr": nested(950)}),
    "unknown extension": with_raw(open={**KIND, "x": msgspec.msgpack.Ext(99, b"cos")}),
    "time stamp": with_raw(open={**KIND, "x": msgspec.msgpack.Ext(-1, b"x")}),
    "tuple that is none": with_raw(open={**KIND, "x": msgspec.msgpack.Ext(1, b"\x01")}),
    "number that is none": with_raw(open={**KIND, "x": msgspec.msgpack.Ext(3, b"1e5")}),
    "number of many digits": with_raw(open={**KIND, "x": msgspec.msgpack.Ext(3, b"9" * 10**6)}),
    "key that is a list": with_raw(open=msgspec.Raw(b"\x81\x90\x01")),
    "an attribute in place of a method": with_report(toterminal=5),
    "an attribute in place of another method": with_report(get_sections="x"),
    "an attribute that xdist reads": with_report(node="gateway"),
    "keywords that are a number": with_report(keywords={"a": 2}, keywords_=5),
}


def looks(stage: Stage) -> tuple[str, ...]:
    """Have everything written that pytest can write of a report."""
    return "-v", "-rA", "--durations=0", f"--junitxml={stage.path / '.pytest_cache' / 'junit.xml'}"


@pytest.mark.timeout(60)
def test_reports_that_are_none(stage: Stage) -> None:
    """Caught, or shown as the failure that it says it is; all who read reports survive it."""

    def check(_name: str, played: Played) -> None:
        assert played.verdict(FAR[0]) == "failed", played.phases
        assert played.verdicts(HERE) == ["passed"] * 2
        assert played.made == []

    each(stage.run_lanes(REPORTS, *looks(stage)), check)


ODD_BUT_FINE: dict[str, dict[str, Any]] = {
    "endless duration": {"duration": float("inf")},
    "no duration": {"duration": float("nan")},
    "negative duration": {"duration": -1e300},
    "another id": {"nodeid": HERE[0], "location": ("/etc/passwd", 1, "x")},
    "another outcome in the open data": {"passed": False, "failed": True, "skipped": True},
    "attributes of Python": {"__class__": "os.system", "__dict__": {}, "__reduce__": "x"},
    "control characters": {"longrepr": None, "user_properties": [("a\x00\x1b[2J", "b\x00\ud800")]},
}  # fmt: skip


@pytest.mark.timeout(60)
def test_reports_that_are_odd(stage: Stage) -> None:
    """Nobody here stumbles over them, and each is about the test that it is about."""

    def check(_name: str, played: Played) -> None:
        assert [played.phases.get(id) for id in (*FAR, *HERE)] == [PASSED] * 5

    scripts = {
        name: with_report(outcome="passed", **changes) for name, changes in ODD_BUT_FINE.items()
    }
    each(stage.run_lanes(scripts, *looks(stage), status=0), check)
