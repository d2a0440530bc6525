"""The comparison sees every difference that is planted, and none that the table allows.

Most plants change a result that was really observed; one run changes the reports of the process
itself, so that what the observer writes down is tested too.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from . import junit, terminal
from .cases import CHOICES, Case, Step, whole
from .compare import Order, differences, shipping
from .conftest import Lab
from .normal import NORMALISED, Normaliser, Place
from .running import (
    PLAIN,
    Collected,
    Item,
    Observation,
    Report,
    Session,
    Warned,
    Workspace,
)

SABOTEUR = Path(__file__).parent / "saboteur.py"


@pytest.fixture(scope="session")
def plain(lab: Lab) -> Observation:
    """Give what a plain run of the small project reported."""
    (seen,) = lab.results(whole(CHOICES))
    return seen


def fields(plain: Observation, other: Observation, order: Order = "stretches") -> set[str]:
    """Give the names of the fields that differ."""
    return {found.field for found in differences(plain, other, order)}


def changed(value: Any) -> Any:
    """Give another value of the same type."""
    match value:
        case bool():
            return not value
        case str():
            return f"{value} changed"
        case int():
            return value + 1
        case None:
            return "changed"
        case list() if value:
            return value[:-1]
        case list():
            return [("more", "more")]
        case dict():
            return {**value, "more": "more"}
        case _:
            raise TypeError(value)


def with_session(seen: Observation, **changes: Any) -> Observation:
    """Give the observation with another session."""
    return dataclasses.replace(seen, sessions=(msgspec.structs.replace(seen.session, **changes),))


def with_field(struct: Any, name: str) -> Any:
    """Give a struct with one field changed."""
    return msgspec.structs.replace(struct, **{name: changed(getattr(struct, name))})


def test_equal(plain: Observation) -> None:
    assert plain.session.reports
    assert differences(plain, plain, "exact") == []


def test_two_plain_runs_are_equal(lab: Lab, plain: Observation) -> None:
    (again,) = lab.results(Case("again", CHOICES))
    assert differences(plain, again, "exact") == []


@pytest.mark.parametrize("name", Report.__struct_fields__)
@pytest.mark.parametrize("failing", [True, False], ids=["failed report", "passed report"])
def test_report_field(plain: Observation, name: str, *, failing: bool) -> None:
    reports = list(plain.session.reports)
    at = next(n for n, r in enumerate(reports) if (r.outcome == "failed") is failing)
    reports[at] = with_field(reports[at], name)
    expected = {"nodeid": "phases", "when": "phases", "kind": "phases"}.get(name, name)
    assert expected in fields(plain, with_session(plain, reports=reports))


def test_report_missing_and_twice(plain: Observation) -> None:
    reports = plain.session.reports
    assert fields(plain, with_session(plain, reports=reports[1:])) >= {"phases"}
    assert fields(plain, with_session(plain, reports=[*reports, reports[-1]])) == {"phases"}


@pytest.mark.parametrize("name", Item.__struct_fields__)
def test_item_field(plain: Observation, name: str) -> None:
    items = [with_field(plain.session.items[0], name), *plain.session.items[1:]]
    expected = "ids" if name == "nodeid" else f"item {name}"
    assert expected in fields(plain, with_session(plain, items=items))


def test_item_order_and_deselection(plain: Observation) -> None:
    items = plain.session.items
    assert fields(plain, with_session(plain, items=items[::-1])) >= {"ids"}
    assert fields(plain, with_session(plain, deselected=["a"])) == {"deselected ids"}


@pytest.mark.parametrize("name", Warned.__struct_fields__)
def test_warning_field(plain: Observation, name: str) -> None:
    warnings = [with_field(plain.session.warnings[0], name), *plain.session.warnings[1:]]
    assert fields(plain, with_session(plain, warnings=warnings)) == {"warnings"}


def test_warning_twice_and_in_other_order(plain: Observation) -> None:
    warnings = plain.session.warnings
    assert len(warnings) > 1
    assert fields(plain, with_session(plain, warnings=[*warnings, warnings[0]])) == {"warnings"}
    assert fields(plain, with_session(plain, warnings=warnings[::-1])) == set()


@pytest.mark.parametrize("name", Collected.__struct_fields__)
def test_collection_field(plain: Observation, name: str) -> None:
    one = Collected(nodeid="a.py", outcome="failed", longrepr="text")
    first = with_session(plain, collected=[one])
    assert fields(first, with_session(plain, collected=[with_field(one, name)])) == {"collection"}
    assert fields(first, plain) == {"collection"}


MORE: dict[str, Any] = {
    "deselected": ["test_a.py::test_x"],
    "collected": [Collected(nodeid="a.py", outcome="failed", longrepr="text")],
    "exitstatus": 99,
}


def test_every_part_of_a_session_is_compared(plain: Observation) -> None:
    """A part that is added to the session needs a plant here."""
    for name in Session.__struct_fields__:
        value = getattr(plain.session, name)
        other: Any = value[1:] if isinstance(value, list) and value else MORE[name]
        assert fields(plain, with_session(plain, **{name: other})), name


def test_exit_status(plain: Observation) -> None:
    assert fields(plain, dataclasses.replace(plain, status=0)) == {"exit status"}
    assert fields(plain, with_session(plain, exitstatus=0)) == {"exit status"}


def test_two_sessions_and_none(plain: Observation) -> None:
    twice = dataclasses.replace(plain, sessions=(plain.session, plain.session))
    assert fields(plain, twice) == {"sessions"}
    assert "sessions" in fields(plain, dataclasses.replace(plain, sessions=()))


# ---------------------------------------------------------------- order


def reordered(plain: Observation, order: Callable[[list[str]], list[str]]) -> Observation:
    """Give the run as if its items had been reported in another order."""
    by_id: dict[str, list[tuple[str, str]]] = {}
    for event in plain.session.events:
        by_id.setdefault(event[1], []).append(event)
    return with_session(plain, events=[e for nodeid in order(list(by_id)) for e in by_id[nodeid]])


def is_far(nodeid: str) -> bool:
    """Tell whether an item of the small project is marked; its name says so."""
    return "test_far" in nodeid


def test_far_and_local_may_be_mixed_in_stretches_only(plain: Observation) -> None:
    other = reordered(plain, lambda ids: sorted(ids, key=is_far))
    assert fields(plain, other) == set()
    assert fields(plain, other, "exact") == {"order"}
    assert [d.field for d in differences(plain, other, all_far=True)] == ["order"]


@pytest.mark.parametrize("far", [True, False], ids=["far", "local"])
def test_order_among_equals(plain: Observation, *, far: bool) -> None:
    def swap(ids: list[str]) -> list[str]:
        first, second = [n for n, nodeid in enumerate(ids) if is_far(nodeid) is far][:2]
        ids[first], ids[second] = ids[second], ids[first]
        return ids

    assert fields(plain, reordered(plain, swap)) == {"order"}


def test_hooks_of_an_item(plain: Observation) -> None:
    events = plain.session.events
    without = [event for event in events if event != ("leave", events[0][1])]
    assert "hooks" in fields(plain, with_session(plain, events=without))


def test_two_items_mixed(plain: Observation) -> None:
    events = list(plain.session.events)
    at = next(n for n in range(len(events) - 1) if events[n][1] != events[n + 1][1])
    events[at], events[at + 1] = events[at + 1], events[at]
    assert "runs of hooks" in fields(plain, with_session(plain, events=events))


# ---------------------------------------------------------------- junit


XML = """<testsuites name="all"><testsuite name="pytest" tests="1" time="0.5" hostname="h">
<properties><property name="remotegpu_worker" value="1"/><property name="s" value="3"/></properties>
<testcase classname="test_a.TestX" name="test_b[1]" time="0.1">
<properties><property name="remotegpu_gpu" value="none"/><property name="a" value="1"/></properties>
<failure message="m">text in 0.12s</failure><system-out>out</system-out></testcase>
<testcase classname="test_a" name="test_c" time="0.1"/></testsuite></testsuites>"""

JUNIT_PLANTS = {
    "suite attribute": ('tests="1"', 'tests="2"'),
    "name of all": ('name="all"', 'name="some"'),
    "property of all": ('value="3"', 'value="4"'),
    "class name": ("TestX", "TestY"),
    "case name": ("test_b[1]", "test_b[2]"),
    "property": ('value="1"/></p', 'value="2"/></p'),
    "property name": ('name="a"', 'name="b"'),
    "message": ('message="m"', 'message="n"'),
    "text": (">text", ">other text"),
    "kind": ("failure", "error"),
    "output": (">out<", "><"),
    "missing case": ('<testcase classname="test_a" name="test_c" time="0.1"/>', ""),
}


def with_junit(plain: Observation, xml: str, folder: Path) -> Observation:
    """Give the observation with another junit file."""
    path = folder / "junit.xml"
    path.write_text(xml)
    return dataclasses.replace(plain, junit=junit.parse(path, Normaliser(())))


@pytest.mark.parametrize("plant", JUNIT_PLANTS)
def test_junit(plain: Observation, tmp_path: Path, plant: str) -> None:
    changed_xml = XML.replace(*JUNIT_PLANTS[plant])
    assert changed_xml != XML
    one, two = (with_junit(plain, xml, tmp_path) for xml in (XML, changed_xml))
    assert fields(one, two) <= {"junit suite", "junit cases", "junit order"}
    assert fields(one, two) - {"junit order"}


def test_junit_order(plain: Observation, tmp_path: Path) -> None:
    head, first, second, tail = re.split("(?=<testcase|</testsuite>)", XML)
    two = with_junit(plain, head + second + first + tail, tmp_path)
    assert fields(with_junit(plain, XML, tmp_path), two) == {"junit order"}


def test_junit_missing(plain: Observation) -> None:
    assert fields(plain, dataclasses.replace(plain, junit=None)) == {"junit"}


def test_shipping_is_proven_by_our_properties(plain: Observation) -> None:
    assert plain.junit is not None
    assert [d.field for d in shipping(plain, plain)] == ["far items"]
    marked = {
        f"{nodeid[:6]}::{nodeid.rpartition('::')[2]}"
        for nodeid in (report.nodeid for report in plain.session.reports)
        if is_far(nodeid)
    }
    shipped = dataclasses.replace(plain.junit, ours=frozenset(marked))
    assert shipping(plain, dataclasses.replace(plain, junit=shipped)) == []
    assert shipping(plain, dataclasses.replace(plain, junit=shipped), all_far=True) != []


# ---------------------------------------------------------------- terminal


TERMINAL_PLANTS = {
    "terminal header": ("configfile: pytest.ini", "configfile: none"),
    "terminal results": ("test_a.py::test_here_three PASSED", "test_a.py::test_here_three FAILED"),
    "terminal closing": (" 3 failed, ", " 2 failed, "),
    "terminal section of FAILURES": ("E       assert 2 != 2", "E       assert 2 != 3"),
    "terminal section of ERRORS": ('raise RuntimeError("teardown")', "pass"),
    "terminal section of PASSES": ("\nout\n", "\nin\n"),
    "terminal section of warnings summary": ("UserWarning: careful", "UserWarning: careless"),
    "terminal section of short test summary info": ("SKIPPED [1]", "SKIPPED [2]"),
    "terminal section of slowest durations": ("teardown test_b.py::test_far_five", "call test_x"),
}


@pytest.fixture(scope="session")
def screen(lab: Lab) -> Observation:
    """Give a plain run of the small project that shows all sections."""
    options = ("-rA", "-vv", "--durations=0", "--color=no")
    (seen,) = lab.results(Case("all sections", CHOICES, (Step(options),)))
    return seen


def with_output(seen: Observation, output: str) -> Observation:
    """Give the observation with other terminal output."""
    text = Normaliser(()).text(output)
    return dataclasses.replace(seen, output=output, terminal=terminal.parse(text))


@pytest.mark.parametrize("plant", TERMINAL_PLANTS)
def test_terminal(screen: Observation, plant: str) -> None:
    other = screen.output.replace(*TERMINAL_PLANTS[plant])
    assert other != screen.output
    before = with_output(screen, screen.output)
    found = differences(before, with_output(screen, other))
    field, _, section = plant.partition(" of ")
    assert {(d.field, d.where) for d in found} == {(field, section or "session")}


def test_terminal_letters(plain: Observation) -> None:
    head = f"{'test session starts':=^{terminal.FULL_WIDTH}}".replace("=t", "= t").replace(
        "s=", "s ="
    )
    one = with_output(plain, f"{head}\ncollected 3 items\n\ntest_a.py .F.   [ 50%]\n")
    two = with_output(plain, f"{head}\ncollected 3 items\n\ntest_a.py ..   [ 10%]\ntest_a.py F\n")
    three = with_output(plain, f"{head}\ncollected 3 items\n\ntest_a.py ...   [ 50%]\n")
    assert one.terminal.letters == {"test_a.py": "..F"}
    assert fields(one, two) == set()
    assert fields(one, three) == {"terminal letters"}


def test_extra_line_and_section_on_the_terminal(screen: Observation) -> None:
    before = with_output(screen, screen.output)
    line = screen.output.replace(
        "test_a.py::test_here_three", "noise\ntest_a.py::test_here_three", 1
    )
    assert fields(before, with_output(screen, line)) == {"terminal results"}
    section = f"{screen.output}{'= noise ':=<{terminal.FULL_WIDTH - 2}} =\nmore\n".replace(
        "==\n", " =\n"
    )
    assert fields(before, with_output(screen, section)) >= {"terminal section"}


# ---------------------------------------------------------------- what may differ


EXAMPLES: dict[str, tuple[str, str]] = {
    "the copy's folder": ("in /r/one/a.py", "in /r/two/a.py"),
    "temporary paths": ("/t/pytest-of-me/pytest-0/x0", "/far/pytest-of-you/pytest-12/x0"),
    "a process of pytest-xdist may have far ones": (
        "/t/pytest-of-me/pytest-0/popen-gw0/x0",
        "/t/pytest-of-me/pytest-0/popen-gw0-local-gw0-2/x0",
    ),
    "addresses": ("<A at 0x7f21e011d810>", "<A at 0x55aa12345678>"),
    "durations in a line": ("0.12s call     test_a", "12.00s call     test_a"),
    "total duration": ("3 passed in 0.10s", "3 passed in 61.00s (0:01:01)"),
    "timestamps": ("at 2024-05-06T07:08:09.123456+00:00", "at 2025-01-01T00:00:00Z"),
    "age of the cache": ("(cache from 0:00:03 ago,", "(cache from 1:00:00 ago,"),
    "pids": ("This process (pid=12)", "This process (pid=99)"),
    "our line within another": ("1 worker [15 items]remote: 4 here", "1 worker [15 items]"),
    "collection goes on": (
        "> \x1b[1mcollecting ... \x1b[0mcollected 3 items",
        "> collected 3 items",
    ),
    "what another host lacks": (
        "E   No module named 'a'\nhost lacks: a (/bin/python)\nadd PACKAGE to the requirements",
        "E   No module named 'a'",
    ),
    "progress": (
        "test_a.py::test_b PASSED   [  1%]",
        "test_a.py::test_b PASSED \x1b[32m [100%]\x1b[0m",
    ),
}
KEPT = {
    "the copy's folder": ("in /r/one/a.py", "in /r/one/b.py"),
    "temporary paths": ("/t/pytest-of-me/pytest-0/x0", "/t/pytest-of-me/pytest-0/y0"),
    "a process of pytest-xdist may have far ones": (
        "/t/pytest-of-me/pytest-0/popen-gw0/x0",
        "/t/pytest-of-me/pytest-0/popen-gw1/x0",
    ),
    "addresses": ("0x10", "0x11"),
    "durations in a line": ("it took 0.12s to fail", "it took 0.13s to fail"),
    "total duration": ("in 3 days", "in 4 days"),
    "timestamps": ("2024-05-06", "2024-05-07"),
    "age of the cache": ("0:00:03 ago", "0:00:04 ago"),
    "pids": ("pid_file 12", "pid_file 13"),
    "our line within another": ("[15 items] remote: 4 here", "[15 items]"),
    "collection goes on": ("> collecting ... failed", "> failed"),
    "what another host lacks": ("E   host lacks: a (/bin/python)\nadd PACKAGE", "E   "),
    "progress": ("loss [ 10]", "loss [ 20]"),
}
NAMES = {
    "collection begins": "\x1b[1mcollecting ... \x1b[0m",
    "junit durations": "time",
    "junit timestamps": "timestamp",
    "junit hostname": "hostname",
    "our junit properties": "remotegpu_backend",
    "our user properties": "remotegpu_gpu",
    "our lines": "remote: local:cpu, 2 pretended GPUs",
    "our summary": "remote summary",
    "pytest's own report attributes": "$report_type",
    "our report attributes": "node",
}


def test_each_rule_has_an_example() -> None:
    assert {rule.name for rule in NORMALISED} == EXAMPLES.keys() | NAMES.keys()
    assert EXAMPLES.keys() == KEPT.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_rule(name: str) -> None:
    left, right = (shown(text) for text in EXAMPLES[name])
    assert left == right
    assert shown(KEPT[name][0]) != shown(KEPT[name][1])


def shown(text: str) -> Counter[str]:
    """Put a text through the table and the terminal's parser."""
    normal = Normaliser((re.escape("/r/one"), re.escape("/r/two")))
    return terminal.parse(f"collected 1 item\n{normal.text(text)}\n").progress


def test_the_line_of_collection_is_left_out() -> None:
    """Coloured or not; one that says more is not."""
    counts = "collected 1 item"
    for line in ("collecting ... ", NAMES["collection begins"]):
        assert terminal.parse(f"{line}\n{counts}\n").header == Counter([counts])
    more = "collecting ... more"
    assert terminal.parse(f"{more}\n{counts}\n").header == Counter([more, counts])


def test_junit_rules(plain: Observation, tmp_path: Path) -> None:
    for old, new in (
        ('time="0.1"', 'time="7"'),
        ('hostname="h"', 'hostname="i" timestamp="1"'),
        ('name="remotegpu_gpu" value="none"', 'name="remotegpu_gpu" value="A100"'),
        ('<property name="remotegpu_gpu" value="none"/>', ""),
        ('<property name="remotegpu_worker" value="1"/>', ""),
    ):
        one, two = (with_junit(plain, xml, tmp_path) for xml in (XML, XML.replace(old, new)))
        assert XML.replace(old, new) != XML
        assert fields(one, two) == set()


def test_report_rules(plain: Observation) -> None:
    first = plain.session.reports[0]
    ours = msgspec.structs.replace(
        first,
        user_properties=[("remotegpu_gpu", "'none'")],
        attributes={"node": "worker", "remotegpu": "x", "$report_type": "x"},
    )
    other = with_session(plain, reports=[ours, *plain.session.reports[1:]])
    assert fields(plain, other) == set()


def test_terminal_rules(screen: Observation) -> None:
    before = with_output(screen, screen.output)
    header = screen.output.replace("rootdir:", f"{NAMES['our lines']}\nrootdir:", 1)
    title = f"{' remote summary ':=^{terminal.FULL_WIDTH}}"
    ours = header.replace("short test summary", "short test summary", 1) + f"{title}\n1 worker\n"
    assert ours != screen.output
    assert fields(before, with_output(screen, ours)) == set()


def test_no_rule_is_without_a_place() -> None:
    assert {rule.place for rule in NORMALISED} == set(Place)


# ---------------------------------------------------------------- the observer


def test_observer_sees_what_a_run_changes(plain: Observation, tmp_path: Path) -> None:
    """The run's own reports are changed, each kind of change on another test."""
    workspace = Workspace.make(tmp_path / "0000", CHOICES)
    (workspace.root / "plugin" / "saboteur.py").write_text(SABOTEUR.read_text())
    other = workspace.run(PLAIN, ["-p", "saboteur", "-rA", "-v", "--color=no"])
    found = differences(plain, other)
    phase = {"nodeid", "when", "kind"}
    assert {d.field for d in found} >= set(Report.__struct_fields__) - phase
    assert {d.field for d in found} >= {"phases", "warnings", "ids"}
    assert {d.field for d in found} >= {"junit cases", "terminal section", "terminal closing"}
