"""The run as data: what goes in comes out of the file, and parts are as much as the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu import record
from pytest_remotegpu.cost import Bill, Rate, WorkerCost
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.outputs import folder_name
from pytest_remotegpu.record import Entry
from pytest_remotegpu.summary import RunSummary

shapes = st.builds(Shape, st.integers(0, 8), st.just(("H100",)) | st.just(()))
rates = st.none() | st.builds(
    Rate, st.floats(0, 100), st.sampled_from(["", "2026-01-01"]), st.text(), st.floats(0, 300)
)
texts = st.text(st.characters(), max_size=30)


@st.composite
def runs(draw: st.DrawFn) -> tuple[RunSummary, list[Entry]]:
    """Draw workers with their tests, billed as in a session."""
    summary = RunSummary(where=draw(texts), worst=draw(st.none() | st.floats(0, 1e6)))
    tests = []
    for number in range(draw(st.integers(0, 4))):
        shape, rate = draw(shapes), draw(rates)
        opened = draw(st.floats(0, 100))
        bill = Bill(f"w-{number}", shape, rate, opened, since=opened)
        bill.ended = bill.opened + draw(st.floats(0, 1e5))
        bill.begin(bill.opened + draw(st.floats(0, 1e5)))
        for place in range(draw(st.integers(0, 4))):
            seconds = bill.take(draw(st.floats(0, 1e5)), bill.ended)
            charged = {
                "seconds": seconds,
                "gpus": shape.count,
                "usd": None if rate is None else rate.usd(seconds),
            }
            id = f"t{number}.py::{draw(texts)}{place}"
            tests.append(Entry(id, "passed", {"call": ("passed", seconds)}, charged=charged))
            summary.ran(shape, id, seconds)
        summary.workers.append(bill.close(bill.ended, 0.0))
    return summary, tests


def made(summary: RunSummary, tests: list[Entry]) -> dict[str, Any]:
    """Make the document of a session about which there is nothing else to say."""
    return record.document(summary, tests, session={"root": "\udc80"}, backend="b", limits={})


@given(runs())
def test_what_is_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, run: tuple[RunSummary, list[Entry]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "run.json"
    data = made(*run)
    record.write(path, data)
    assert json.loads(path.read_text("ascii")) == data
    carried = RunSummary.from_plain(json.loads(json.dumps(run[0].to_plain())))
    assert made(carried, run[1]) == data


@given(runs())
def test_tests_start_and_idle_come_to_the_total(run: tuple[RunSummary, list[Entry]]) -> None:
    data = made(*run)
    money = data["cost"]
    if money is None:
        assert all(worker["cost_usd"] is None for worker in data["workers"])
        return
    parts = money["tests"] + money["start"] + money["idle"]
    assert parts == pytest.approx(money["total"], rel=1e-9, abs=1e-6)
    tests = sum(test["cost_usd"] or 0.0 for test in data["tests"])
    assert tests == pytest.approx(money["tests"], rel=1e-9, abs=1e-6)
    for part in ("workers", "shapes"):
        known = [each["cost_usd"] for each in data[part] if each["cost_usd"] is not None]
        listed = {worker.shape for worker in run[0].workers} <= set(run[0].shapes)
        if part == "workers" or listed:
            assert sum(known) == pytest.approx(money["total"], rel=1e-9, abs=1e-6)


def test_a_test_says_what_it_had() -> None:
    test = Entry(
        "a.py::t",
        "failed",
        {"setup": ("passed", 0.5), "call": ("failed", 1.5)},
        properties={
            "remotegpu_backend": "b",
            "remotegpu_worker": "w-1",
            "remotegpu_gpu": "2 x A (1)",
            "remotegpu_peak_allocated": 2**30,
            "remotegpu_leaked": "forged",
            "mine": object(),
        },
        message="why",
        charged={"seconds": 2.0, "gpus": 2, "usd": 0.25},
        benchmarks=[{"valid": True}],
    )
    summary = RunSummary(artifact_names=[f"{folder_name('a.py::t')}/x", "other/y"])
    [found] = made(summary, [test])["tests"]
    assert found == {
        "id": "a.py::t",
        "outcome": "failed",
        "where": "far",
        "seconds": 2.0,
        "phases": {
            "setup": {"outcome": "passed", "seconds": 0.5},
            "call": {"outcome": "failed", "seconds": 1.5},
        },
        "reruns": 0,
        "message": "why",
        "verdict": None,
        "worker": "w-1",
        "gpu": "2 x A (1)",
        "gpus": 2,
        "gpu_seconds": 4.0,
        "cost_usd": 0.25,
        "peak_allocated_bytes": 2**30,
        "peak_reserved_bytes": None,
        "leaked_bytes": None,
        "artifacts": [f"{folder_name('a.py::t')}/x"],
        "benchmarks": [{"valid": True}],
    }


def test_others_can_add_to_it() -> None:
    summary = RunSummary(more={"snapshot": {"commit": "abc"}})
    whole = RunSummary()
    whole.add(RunSummary.from_plain(json.loads(json.dumps(summary.to_plain()))))
    assert made(whole, [])["snapshot"] == {"commit": "abc"}


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    record.write(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.write(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_is_made_and_found(tmp_path: Path) -> None:
    assert record.place(tmp_path, "new/folder/run.json") == tmp_path / "new/folder/run.json"
    assert (tmp_path / "new/folder").is_dir()
    assert list((tmp_path / "new/folder").iterdir()) == []
    for wrong in ("new", "/dev/null", "/proc/run.json", "~no-such-user-here/run.json", "a\0b"):
        with pytest.raises(UsageError, match=r"--remote-json=.* can't be written: "):
            record.place(tmp_path, wrong)


def test_a_worker_without_a_price_has_times() -> None:
    summary = RunSummary(workers=[WorkerCost("w", Shape(2), "", 0, 1.0, 2.0, 3.0, 4.0)])
    [worker] = made(summary, [])["workers"]
    assert worker["gpu_seconds"] == 18
    assert (worker["cost_usd"], worker["price"], worker["gpu"]) == (None, None, None)
