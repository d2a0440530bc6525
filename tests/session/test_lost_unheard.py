"""Tests that end their worker before it is known that they run: found out, and others go on."""

from __future__ import annotations

import sys

import pytest

from fakes import Far, Script
from pytest_remotegpu.protocol import events
from stage import FAR, HERE, PASSED, Played, Stage

from .running import CPU, run, said

WORDS = "the worker was lost {} times as this test was to begin, at last with no other one to run"
TWO = "--remote-workers=2"
MANY = 7


def serves(far: Far) -> None:
    """Be an honest worker."""
    far.greet()
    far.serve()


def dies(asked: list[tuple[int, int]] | None = None) -> Script:
    """Make a script that is lost with tests at hand, of which it has said nothing.

    :param asked: takes the places of its tests: the first, and the one after the last.
    """

    def script(far: Far) -> None:
        far.greet()
        run = far.order.run
        if asked is not None:
            asked.append((run.first, run.last))

    return script


def taken(far: Far) -> None:
    """Be preempted with tests at hand."""
    dies()(far)
    far.preempted = True


def many(stage: Stage) -> list[str]:
    """Give the project more tests than may be found guilty in a row."""
    names = [f"test_{number}" for number in range(MANY)]
    tests = "".join(f"def {name}(): pass\n" for name in names)
    (stage.path / "test_far.py").write_text(f"import pytest\npytestmark = pytest.mark.gpu\n{tests}")
    return [f"test_far.py::{name}" for name in names]


def outcomes(played: Played, ids: list[str]) -> list[str]:
    """Say of each test what it came to: ``crash`` where it was found guilty."""
    return [
        "crash"
        if "as this test was to begin" in played.texts[id]
        else "not run"
        if "not run" in played.texts[id]
        else played.verdict(id)
        for id in ids
    ]


# ---------------------------------------------------------------- workers of all kinds


def test_the_first_test_is_guilty(stage: Stage) -> None:
    """It is handed out alone after the first worker and failed after the fourth; others pass."""
    asked: list[tuple[int, int]] = []
    played = stage.run(*[dies(asked)] * 4, serves)
    played.caught(said=WORDS.format(4), guilty=FAR[:1])
    assert played.phases[FAR[0]] == [
        ("setup", "passed"),
        ("call", "failed"),
        ("teardown", "passed"),
    ]
    assert asked == [(0, 3), (0, 1), (0, 1), (0, 1)]
    assert played.workers == 5
    assert "1 crashed" in played.text
    assert "while idle" not in played.text


def test_a_later_test_is_guilty(stage: Stage) -> None:
    def runs_one(far: Far) -> None:
        far.greet()
        far.run(far.order.run.first)

    played = stage.run(runs_one, *[dies()] * 3, serves)
    played.caught(said=WORDS.format(4), guilty=FAR[1:2])
    assert played.workers == 5


def test_three_workers_make_nobody_guilty(stage: Stage) -> None:
    played = stage.run(*[dies()] * 3, serves)
    assert played.ret == 0, played.text
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5


def test_a_neighbour_of_a_guilty_one_needs_two_workers(stage: Stage) -> None:
    played = stage.run(*[dies()] * 4, *[dies()] * 2, serves)
    played.caught(said=WORDS.format(2), guilty=FAR[:2])
    assert played.workers == 7


def test_no_neighbour_is_guilty_for_one_worker(stage: Stage) -> None:
    played = stage.run(*[dies()] * 4, dies(), serves)
    played.caught(said=WORDS.format(4), guilty=FAR[:1])
    assert played.workers == 6


def test_a_far_side_that_loses_all(stage: Stage) -> None:
    """Three tests in a row are what it costs; all others are errors that say so."""
    ids = many(stage)
    played = stage.run(dies())
    assert outcomes(played, ids) == ["crash"] * 3 + ["not run"] * (MANY - 3)
    assert played.workers == 4 + 2 + 2
    assert (
        "workers were lost again and again as a test was to begin, 3 tests in a row" in played.text
    )
    assert (played.ret, played.verdicts(HERE)) == (1, ["passed"] * 2)


def test_a_verdict_begins_a_new_row(stage: Stage) -> None:
    def runs_one(far: Far) -> None:
        far.greet()
        far.run(far.order.run.first)

    ids = many(stage)
    played = stage.run(*[dies()] * 6, runs_one, *[dies()] * 6, serves)
    assert outcomes(played, ids) == ["crash", "crash", "passed", "crash", "crash", *["passed"] * 2]


def test_started_once_and_unheard_of_then(stage: Stage) -> None:
    """Whether the word that it began came through or not, four workers are enough."""

    def heard(far: Far) -> None:
        far.greet()
        far.say(events.Started(far.order.run.first))

    played = stage.run(dies(), heard, dies(), dies(), serves)
    played.caught(said=WORDS.format(4), guilty=FAR[:1])


def test_machines_that_are_taken_away_make_nobody_guilty(stage: Stage) -> None:
    played = stage.run(dies(), dies(), taken, dies(), serves)
    played.caught(said="workers were lost before a test was known to run 4 times in a row")
    assert played.workers == 4


def test_counts_as_a_failure_for_x(stage: Stage) -> None:
    played = stage.run(*[dies()] * 4, serves, args=("-x",))
    assert played.ret == 1, played.text
    assert played.verdicts((*FAR, *HERE)) == ["failed", "none", "none", "none", "none"]


# ---------------------------------------------------------------- real processes

KILLS = """
    import os, signal, pytest
    pytestmark = pytest.mark.gpu

    def test_before(): pass

    @pytest.mark.parametrize("number", range(2))
    def test_kills(number):
        os.kill(WORKER, signal.SIGKILL)

    @pytest.mark.parametrize("number", range(3))
    def test_after(number): pass

    def parent(pid):
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])

    WORKER = parent(parent(os.getpid()))
"""


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
@pytest.mark.parametrize("more", [[], [TWO], ["-n2"]], ids=str)
def test_real_workers(pytester: pytest.Pytester, more: list[str]) -> None:
    """However much of what it says comes through: the guilty fail, all others pass."""
    if more == ["-n2"]:
        pytest.importorskip("xdist")
    pytester.makepyfile(KILLS)
    result = run(pytester, CPU, "--remote-fresh", *more)
    result.assert_outcomes(passed=4, failed=2)
    assert result.ret == 1
    assert "2 crashed" in said(result)
    assert "not run" not in said(result)
