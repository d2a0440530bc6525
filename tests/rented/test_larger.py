"""Tests that lack GPU memory on one type of card are run again on another one that has more.

The containers have no card: what a test "has" is the number of its attempt.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from loopback import LoopbackModal
from session.running import Started, run, said, until

TESTS = """
    import os, pathlib, pytest

    class OutOfMemoryError(RuntimeError):
        "As torch names it."

    def attempt(name):
        "Say how often a test has been here before this time."
        log = pathlib.Path(os.environ["LOG"], name)
        before = len(log.read_text()) if log.exists() else 0
        log.write_text("." * (before + 1))
        print("attempt", before + 1)
        return before

    @pytest.mark.gpu
    def test_needs_more():
        if not attempt("more"):
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 30.00 GiB.")

    @pytest.mark.gpu
    def test_is_small():
        assert attempt("small") == 0

    @pytest.mark.gpu
    def test_never_fits():
        attempt("never")
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 900.00 GiB.")

    @pytest.mark.gpu
    def test_is_wrong():
        assert attempt("wrong") == 1
"""
L4 = "--remote=modal:L4"
AUTO = "--remote-oom-retry=auto"


@pytest.fixture
def log(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder in which tests count their attempts, which is none of the project's."""
    folder = pytester.path.parent / f"{pytester.path.name}-log"
    folder.mkdir()
    monkeypatch.setenv("LOG", str(folder))
    pytester.makeini("[pytest]\nremotegpu_env = LOG\n")
    pytester.makepyfile(test_it=TESTS)
    return folder


def counted(log: Path) -> dict[str, int]:
    return {path.name: len(path.read_text()) for path in sorted(log.iterdir())}


def rented(service: LoopbackModal) -> list[str]:
    return sorted(str(container.gpu) for container in service.containers)


def test_once_more_on_a_larger_card(
    pytester: pytest.Pytester, service: LoopbackModal, log: Path
) -> None:
    """The first attempt is a rerun, not a pass; all else has one."""
    result = run(pytester, L4, AUTO, "--junitxml=out.xml", "--remote-json=run.json", "-v")
    result.assert_outcomes(passed=2, failed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert counted(log) == {"more": 2, "never": 2, "small": 1, "wrong": 1}
    assert rented(service) == ["L40S:1", "L4:1"]
    text = said(result)
    assert "2 rerun" in result.stdout.lines[-1]
    assert re.search(r"test_needs_more RERUN .*\n.*test_needs_more PASSED", text)
    assert re.search(
        r"note: run again on a larger card: test_it.py::test_needs_more: out of memory on "
        r"1 GPU \(pretend\), then 1 GPU \(L40S, at least 48 GiB\) \(pretend\): passed",
        text,
    )
    assert re.search(r"test_never_fits: out of memory on .*, then .*: failed", text)
    junit = (pytester.path / "out.xml").read_text()
    assert 'tests="4"' in junit
    assert len(re.findall('name="remotegpu_oom_retry" value="1 GPU', junit)) >= 2
    data = json.loads((pytester.path / "run.json").read_text())
    costs = [worker["cost_usd"] for worker in data["workers"]]
    assert len(costs) == 2
    assert all(costs)


def test_without_the_option_nothing_runs_again(
    pytester: pytest.Pytester, service: LoopbackModal, log: Path
) -> None:
    run(pytester, L4).assert_outcomes(passed=1, failed=3)
    assert set(counted(log).values()) == {1}
    assert rented(service) == ["L4:1"]


def test_the_named_card(pytester: pytest.Pytester, service: LoopbackModal, log: Path) -> None:
    """Several workers, and types in the order of preference."""
    words = [L4, "--remote-oom-retry=H200,A100-80GB", "--remote-workers=2"]
    run(pytester, *words).assert_outcomes(passed=2, failed=2)
    assert counted(log)["more"] == 2
    assert "H200:1" in rented(service)


def test_a_mark_stands_above_it(
    pytester: pytest.Pytester, service: LoopbackModal, log: Path
) -> None:
    """Who has named a card gets no other one, but a larger one of its name."""
    pytester.makepyfile(
        test_it=TESTS.replace("@pytest.mark.gpu", "@pytest.mark.gpu(type='L4')", 1).replace(
            "@pytest.mark.gpu\n    def test_never",
            "@pytest.mark.gpu(type='A100')\n    def test_never",
        )
    )
    result = run(pytester, L4, AUTO)
    result.assert_outcomes(passed=1, failed=3)
    assert counted(log) == {"more": 1, "never": 2, "small": 1, "wrong": 1}
    assert rented(service) == ["A100-40GB:1", "A100-80GB:1", "L4:1", "L4:1"]
    why = "no type of Modal's has more than 24 GiB and is what the mark asks for, L4"
    assert f"test_it.py::test_needs_more was not run again: {why}" in said(result)


@pytest.mark.parametrize("words", [["-x"], ["--maxfail=9"], ["--stepwise"]])
def test_where_a_failure_may_end_the_session_it_counts_at_once(
    pytester: pytest.Pytester, service: LoopbackModal, log: Path, words: list[str]
) -> None:
    result = run(pytester, L4, AUTO, *words)
    assert counted(log)["more"] == 1
    assert "its failure counts at once" in said(result)
    assert rented(service) == ["L4:1"]


def test_a_larger_card_that_may_not_be_had(
    pytester: pytest.Pytester, service: LoopbackModal, log: Path
) -> None:
    """What the run may cost does not reach for it: the first attempt's failure stands."""
    words = ["--remote-max-cost=0.07", "--remote-run-timeout=200"]
    result = run(pytester, L4, "--remote-oom-retry=B200", *words)
    result.assert_outcomes(passed=1, failed=3)
    assert counted(log)["more"] == 1
    assert rented(service) == ["L4:1"]
    text = said(result)
    assert "test_it.py::test_needs_more was not run again: " in text
    assert text.count("CUDA out of memory. Tried to allocate 30.00 GiB.") >= 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([L4, "--remote-oom-retry=H1000"], "--remote-oom-retry=H1000: 'H1000' names a card, "),
        ([L4, "--remote-oom-retry=T4"], "--remote-oom-retry=T4: no T4 has more than 24 GiB"),
        ([L4, "--remote-oom-retry=,"], "--remote-oom-retry=, names no card"),
        (["--remote=local:cpu", AUTO], "is for backends with several types of card"),
    ],
)
def test_what_is_refused_before_anything_is_rented(
    pytester: pytest.Pytester, service: LoopbackModal, log: Path, words: list[str], told: str
) -> None:
    result = run(pytester, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in said(result)
    assert (service.containers, counted(log)) == ([], {})


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("last", "status"),
    [
        ("pytest.exit('enough', returncode=0)", 0),
        ("SESSION[0].shouldstop = 'enough'", pytest.ExitCode.INTERRUPTED),
    ],
)
def test_a_failure_is_shown_whatever_ends_the_session(
    pytester: pytest.Pytester, log: Path, last: str, status: int
) -> None:
    """It was kept back for a second attempt, which does not come."""
    pytester.makeconftest(f"""
        import pytest
        SESSION = []

        def pytest_sessionstart(session):
            SESSION.append(session)

        def pytest_runtest_logreport(report):
            if "wrong" in report.nodeid and report.when == "teardown":
                {last}
    """)
    result = run(pytester, L4, AUTO)
    assert result.ret == status
    assert counted(log)["more"] == 1
    assert re.search(r"^E .*OutOfMemoryError: CUDA out of memory", said(result), re.MULTILINE)


@pytest.mark.usefixtures("service")
def test_an_interrupt_meanwhile(pytester: pytest.Pytester, log: Path) -> None:
    """The failure that is known already is shown, and counted once."""
    pytester.makepyfile(
        test_it=TESTS.replace('if not attempt("more")', 'if attempt("more") == 0').replace(
            "@pytest.mark.gpu\n    def test_is_small",
            "@pytest.mark.gpu\n    def test_waits():\n        if attempt('waits'):\n"
            "            import time; time.sleep(600)\n"
            "        raise OutOfMemoryError('CUDA out of memory')\n\n"
            "    @pytest.mark.gpu\n    def test_is_small",
        )
    )
    with Started(pytester, L4, AUTO, "-v", "-k", "waits or small") as session:
        assert until(lambda: counted(log).get("waits") == 2)
        session.process.send_signal(signal.SIGINT)
        assert session.end() == pytest.ExitCode.INTERRUPTED
    assert session.text.count("test_waits FAILED") == 1
    assert "1 failed, 1 passed" in session.text
