"""Parameters that are not the same in two processes still meet the test that the user selected.

They can't be compared with a plain run, in which the parameters are others again.
"""

from __future__ import annotations

import pytest

from .cases import Case
from .conftest import Lab
from .legs import FAULT_LEGS, HERE
from .running import Leg, Observation, Project, Report

VALUE = "test_value_of_the_far_side"
MOVING = Case("moving", Project("moving", environment={"PYTHONHASHSEED": "random"}))


@pytest.fixture(scope="module")
def seen(lab: Lab, leg: Leg) -> Observation:
    """Give what the run of moving parameters reported."""
    (seen,) = lab.results(MOVING, leg)
    return seen


def calls(seen: Observation, function: str) -> list[Report]:
    """Give the call reports of a test function, in the order of the selection."""
    by_id = {r.nodeid: r for r in seen.session.reports if r.when == "call"}
    ids = [i.nodeid for i in seen.session.items if f"::{function}[" in i.nodeid]
    return [by_id[nodeid] for nodeid in ids]


def test_each_selected_id_is_reported_once(seen: Observation) -> None:
    finals = [r.nodeid for r in seen.session.reports if r.when == "teardown"]
    ids = [item.nodeid for item in seen.session.items]
    assert sorted(finals) == sorted(ids)


@pytest.mark.parametrize(
    ("function", "number"),
    [
        ("test_set", 5),
        ("test_address", 2),
        ("test_uuid", 3),
        ("test_random", 2),
        ("test_lambda", 2),
        ("test_unpicklable", 2),
        ("test_fixture_parameter", 2),
        ("test_id_of_the_call", 1),
        ("test_method", 1),
    ],
)
def test_rebuilt(seen: Observation, function: str, number: int) -> None:
    reports = calls(seen, function)
    assert [(r.nodeid, r.outcome, r.longrepr) for r in reports] == [
        (r.nodeid, "passed", "None") for r in reports
    ]
    assert len(reports) == number


def test_marks_of_rebuilt_items(seen: Observation) -> None:
    outcomes = [(r.nodeid[-2], r.outcome, r.wasxfail) for r in calls(seen, "test_stacked")]
    assert outcomes == [("1", "passed", "None"), ("2", "skipped", "'known'")] * 2


@pytest.mark.parametrize("leg", [HERE], indirect=True, ids=["here"])
def test_the_far_value_is_shown(seen: Observation) -> None:
    for report in calls(seen, "test_value_of_the_far_side"):
        assert "the value is second" in report.longrepr
        assert "side = 'second'" in report.longrepr


@pytest.mark.parametrize("leg", [HERE], indirect=True, ids=["here"])
def test_lost_items_are_errors_that_say_why(seen: Observation) -> None:
    lost = [item.nodeid for item in seen.session.items if "::test_lost[" in item.nodeid]
    by_id = {r.nodeid: r for r in seen.session.reports if r.outcome == "failed"}
    assert len(lost) == 3
    for nodeid in lost:
        assert by_id[nodeid].when == "setup"
        assert nodeid in by_id[nodeid].longrepr
        assert "ids=" in by_id[nodeid].longrepr
    assert "test_only_here" in by_id["test_lost.py::test_only_here"].longrepr
    assert seen.status == 1


FAR = [leg for leg in FAULT_LEGS if leg != HERE]


@pytest.mark.parametrize("leg", FAR, indirect=True, ids=[leg.name for leg in FAR])
def test_none_is_lost_of_what_its_own_process_has_collected(seen: Observation) -> None:
    found = {r.nodeid.partition("[")[0]: r.outcome for r in seen.session.reports}
    assert found["test_lost.py::test_lost"] == "passed"
    assert found["test_lost.py::test_only_here"] == "passed"
    assert {"the value is first" in r.longrepr for r in calls(seen, VALUE)} == {True}


def test_its_neighbours_run(seen: Observation) -> None:
    outcomes = {r.when: r.outcome for r in seen.session.reports if "test_found" in r.nodeid}
    assert outcomes == {"setup": "passed", "call": "passed", "teardown": "passed"}
