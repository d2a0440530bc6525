"""What a plain run can't show: a far side that breaks alone, crashes, or reports live objects."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .cases import Case
from .compare import differences, explain
from .conftest import Lab
from .legs import HERE
from .running import LOOK, PLAIN, Leg, Observation, Project, Workspace


def outcomes(seen: Observation) -> dict[str, str]:
    """Give the outcome of each test by its name: of its call, else of its set-up."""
    found: dict[str, str] = {}
    for report in seen.session.reports:
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.rpartition("::")[2]
            assert name not in found, f"{name} has two outcomes"
            found[name] = report.outcome
    return found


def test_live_objects_on_reports(lab: Lab, leg: Leg) -> None:
    (seen,) = lab.results(Case("live", Project("live")), leg)
    assert outcomes(seen) == {
        "test_xfail": "skipped",
        "test_passes": "passed",
        "test_fails": "failed",
    }
    reports = [r for r in seen.session.reports if r.when == "call"]
    assert {r.attributes.get("my_number") for r in reports} == {"7"}
    assert {("kept", "'text'"), ("thing", "'a thing'")} <= set(reports[0].user_properties)
    assert seen.output.count("my_lock") == 1, seen.output


@pytest.fixture
def broken_far(lab: Lab, leg: Leg, request: pytest.FixtureRequest) -> Observation:
    """Give a run in which the named part of the project can't be loaded on the far side."""
    project = Project("hostonly", environment={"BREAK": request.param})
    (seen,) = lab.results(Case(f"far {request.param}", project), leg)
    return seen


@pytest.mark.parametrize("broken_far", ["conftest"], indirect=True)
def test_far_conftest_cannot_load(broken_far: Observation) -> None:
    assert broken_far.status == 4
    assert broken_far.session.reports == []
    assert "RuntimeError: host-only breakage of the conftest" in broken_far.output
    assert "conftest.py:9" in broken_far.output


@pytest.mark.parametrize("broken_far", ["file"], indirect=True)
def test_far_file_cannot_be_imported(broken_far: Observation, leg: Leg) -> None:
    """As here: no test runs. Where this side had its tests already, they have errors."""
    assert broken_far.status == 2
    known = {"test_one": "failed", "test_two": "failed", "test_far": "passed"}
    assert outcomes(broken_far) == (known if leg == HERE else {})
    (collected,) = broken_far.session.collected
    assert (collected.nodeid, collected.outcome) == ("test_a.py", "failed")
    assert "RuntimeError: host-only breakage of a file" in collected.longrepr
    errors = [r for r in broken_far.session.reports if r.outcome == "failed"]
    assert all("test_a.py" in r.longrepr and r.when == "setup" for r in errors)


@pytest.fixture(scope="module")
def crashed(
    lab: Lab, leg: Leg, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Observation, Counter[str]]:
    """Give a run with crashing tests, and how often each test really began."""
    workspace = Workspace.make(tmp_path_factory.mktemp("crash") / "0000", Project("crash"))
    seen = workspace.run(lab.equipped(leg))
    return seen, Counter((workspace.folder / "runs.txt").read_text().split())


def test_crashes_are_failures_and_happen_once(crashed: tuple[Observation, Counter[str]]) -> None:
    seen, runs = crashed
    assert outcomes(seen) == {
        "test_before": "passed",
        "test_killed": "failed",
        "test_between": "passed",
        "test_segfault": "failed",
        "test_here": "passed",
        "test_xfail": "skipped",
        "test_exits": "failed",
        "test_after": "passed",
    }
    assert set(runs.values()) == {1}
    assert len(runs) == len(seen.session.items)
    assert seen.junit is not None
    assert seen.junit.suite["testsuite tests"] == str(len(seen.session.items))
    assert seen.junit.suite["testsuite failures"] == "3"
    assert seen.status == 1


def test_crashes_say_what_happened(crashed: tuple[Observation, Counter[str]]) -> None:
    texts = {
        r.nodeid.rpartition("::")[2]: f"{r.longrepr}\n{r.sections}"
        for r in crashed[0].session.reports
        if r.outcome == "failed"
    }
    assert "SIGKILL" in texts["test_killed"]
    assert "memory" in texts["test_killed"]
    assert "SIGSEGV" in texts["test_segfault"]
    assert "in test_segfault" in texts["test_segfault"]
    assert "exit status 0" in texts["test_exits"]
    assert "eating memory" in texts["test_killed"], "the output so far"


def test_a_worker_does_not_become_a_controller(tmp_path: Path) -> None:
    """The project asks for a remote run in its settings, in the environment and in a hook."""
    project = Project("nested", environment={"PYTEST_ADDOPTS": "--remote=local:cpu"})
    workspace = Workspace.make(tmp_path / "0000", project)
    seen = workspace.run(PLAIN)
    assert seen.status == 0, seen.output
    assert len(outcomes(seen)) == 3
    roles = Counter(path.name.partition("-")[0] for path in workspace.folder.glob("*.session"))
    assert roles == {"controller": 1, "worker": 1}
    assert seen.output.count("SESSION controller") == 1
    assert "SESSION worker" not in seen.output


def test_unittest_subtests(lab: Lab, leg: Leg) -> None:
    """A plain run writes their progress into the test's own captured output, which is no model."""
    case = Case("sub-tests of unittest", Project("subunit"))
    (plain,), (other,) = (lab.results(case, one) for one in (PLAIN, leg))
    found = [
        difference
        for difference in differences(plain, other)
        if difference.field not in {"sections", "terminal results"}
        and difference.where not in {"PASSES", "FAILURES"}
    ]
    assert not found, explain(found)
    kinds = Counter(r.outcome for r in other.session.reports if r.kind == "SubtestReport")
    if kinds:
        assert kinds == {"passed": 6, "failed": 2}


def test_a_far_test_ends_the_session(lab: Lab, leg: Leg) -> None:
    """Plainly, the exception cuts the hooks of that item short; far away they are gone through."""
    case = Case("exit", Project("leaves"), order="exact")
    (plain,), (other,) = (lab.results(case, one) for one in (PLAIN, leg))
    found = [d for d in differences(plain, other, case.order) if d.field != "hooks"]
    assert not found, explain(found)
    assert other.status == 7


def test_asyncio_loops(lab: Lab, leg: Leg) -> None:
    pytest.importorskip("pytest_asyncio", reason="needs: pip install pytest-asyncio")
    case = Case("event loops", Project("asyncs"))
    (plain,), (other,) = (lab.results(case, one) for one in (PLAIN, leg))
    assert plain.status == 0, plain.output
    assert differences(plain, other) == []


def test_look_is_complete() -> None:
    """The runs above show all results, else counting lines in their output proves nothing."""
    assert {"-rA", "-v"} <= set(LOOK)
