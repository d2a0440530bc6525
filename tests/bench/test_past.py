"""Sweeps in the history of benchmarks, and that history as trends."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.sweeps import CARD, grows, made
from pytest_remotegpu.bench import history, trends
from pytest_remotegpu.bench.fa2 import past
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import FA2, MASKED, Problem, Regime
from pytest_remotegpu.errors import UsageError

NAME = "fa2: sliding, S=512 w=64, forward, bfloat16, B=1 G=2 h=2 Dk=64 Dv=64"


def run(day: int, factor: float = 1.0, **more: object) -> Measured:
    """Make a sweep of a day, so many times as slow."""

    def speed(problem: Problem, regime: Regime, reference: str, repetition: int) -> float:
        return factor * grows(problem, regime, reference, repetition)

    environment = {**made().environment, "commit": f"{day:040d}"}
    measured = replace(made(speed), ended=f"2026-05-{day:02}T12:00:00Z", environment=environment)
    return replace(measured, **more)  # type: ignore[arg-type]


def shown(path: Path, only: str = "") -> list[str]:
    entries, bad = history.read(path)
    assert bad == []
    return list(trends.trends(entries, only=only))


def test_a_sweep_becomes_a_benchmark_for_each_problem_and_repetition() -> None:
    found = past.kept(made(repetitions=2))
    assert len(found) == 2 * 20
    assert {one.index for one in found} == {0, 1}
    one = next(each for each in found if each.test == NAME)
    names = [contestant.name for contestant in one.benchmark.contestants]
    assert (names[0], set(names)) == (FA2, {FA2, MASKED, "sdpa-flash"})
    fa2 = one.benchmark.contestants[0]
    assert set(fa2.modes) == {"eager", "graph"}
    speedup = fa2.modes["graph"].over(MASKED)
    assert speedup is not None
    assert speedup.mid == pytest.approx(2)
    assert one.benchmark.environment["driver"] == "580.65.06"
    assert one.benchmark.valid


def test_times_of_a_card_that_was_held_back_are_not_valid() -> None:
    (one, *_) = past.kept(replace(made(), states=({"held_back": ["power cap"]},)))
    assert (one.benchmark.valid, one.benchmark.why) == (
        False,
        "the card was held back: power cap",
    )


def test_what_was_not_timed_is_left_out() -> None:
    rows = tuple(
        replace(row, times=()) if row.column == FA2 else replace(row, times=(0.0,))
        for row in made().rows
    )
    assert past.kept(replace(made(), rows=rows)) == []


def test_runs_become_trends(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert past.add(path, run(1)) == 20
    past.add(path, run(3, 2.0))
    past.add(path, run(2))
    lines = shown(path, "S=512 w=64")
    assert lines[0] == (
        "device NVIDIA H200, driver 580.65.06, cuda 13.0, torch 2.13.0, dtype bfloat16: "
        "2026-05-01 (000000000000) to 2026-05-03 (000000000000)"
    )
    (row,) = [line for line in lines if "masked, graph" in line]
    times = r"0\.5 \(0\.49 to 0\.51\) ms +1 \(0\.98 to 1\.02\) ms"
    wanted = rf"{re.escape(NAME)} +masked, graph +3 +{times} +2\.00 slower +2\.00 slower +▁▁█"
    assert re.fullmatch(wanted, row), row
    (row,) = [line for line in lines if "fa2, graph" in line]
    assert re.search(r" 1\.00 +1\.00 +▁▁▁$", row), row
    assert len(lines) == 2 + 6


def test_environments_stand_apart(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    past.add(path, run(1))
    past.add(path, run(2, device=replace(CARD, device_name="NVIDIA A100")))
    lines = shown(path, "S=512 w=64")
    heads = [line for line in lines if line.startswith("device ")]
    assert [head.split(",")[0] for head in heads] == ["device NVIDIA H200", "device NVIDIA A100"]
    assert not any("slower" in line or "faster" in line for line in lines)


def test_the_same_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    past.add(path, run(1))
    past.add(path, run(1))
    assert len(history.read(path)[0]) == 20


def test_files_are_changed_or_not(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    environment = {**made().environment, "commit": "abc-dirty-123"}
    past.add(path, replace(made(), environment=environment))
    commit = history.read(path)[0][0].commit
    assert (commit.id, commit.changed) == ("abc", True)
    assert "(abc with changes)" in shown(path)[0]


def test_nothing_to_show(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.touch()
    assert shown(path) == ["there is no benchmark"]
    assert shown(path, "x") == ["no benchmark has 'x' in its name"]


def test_what_can_not_be_kept(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nobody knows when it was measured: ''"):
        past.add(tmp_path / "a", replace(made(), began="", ended=""))
    with pytest.raises(UsageError, match="can't be written: Is a directory"):
        past.add(tmp_path, made())
