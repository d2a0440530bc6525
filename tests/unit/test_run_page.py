"""CI's summary of a run: red where nothing was run, and text of tests stays text.

The data are those of the package's own writer, so that both stay in step.
"""

from __future__ import annotations

import html
import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu import record
from pytest_remotegpu.cost import Bill, Rate
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.record import Entry
from pytest_remotegpu.summary import RunSummary

SCRIPT = Path(__file__).parents[2] / ".ci" / "summary.py"
ROOT = "/home/runner/work/house/house"


def load() -> ModuleType:
    """Load the script, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("ci_summary", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load()


def entry(id: str, outcome: str = "passed", message: str = "", *, far: bool = True) -> Entry:
    """Make a test that ran far away, or here."""
    phases = {} if outcome == "not run" else {"call": (outcome, 0.5)}
    properties = {"remotegpu_backend": "modal:T4", "remotegpu_worker": "modal-1"} if far else {}
    return Entry(id, outcome, phases, properties=properties, message=message)


def made(
    *tests: Entry, real: bool = True, backend: str | None = "modal:T4", **session: Any
) -> dict[str, Any]:
    """Make the data of a run on a T4 that cost nine cents."""
    summary = RunSummary(where="modal:T4", worst=2.5, real=real)
    bill = Bill("modal-1", Shape(1, ("T4",)), Rate(0.59, "2026-01-01", "list"), 0.0, since=0.0)
    bill.begin(10.0)
    bill.ended = 540.0
    summary.of(bill.shape).workers = 1
    for test in tests:
        summary.ran(bill.shape, test.id, 0.5)
    summary.workers.append(bill.close(540.0, 0.0))
    told = {"complete": True, "exit_status": 0, "root": ROOT, "python": "3.12.4", "pytest": "9.2.0"}
    data = record.document(summary, tests, session={**told, **session}, backend=backend, limits={})
    return {**data}


@dataclass
class Said:
    """What the script said: its exit status, its log, and the page."""

    status: int
    log: str
    page: str


@pytest.fixture
def summarise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs the script on run data, or on none."""

    def run(data: dict[str, Any] | bytes | None) -> Said:
        path, target = tmp_path / "run.json", tmp_path / "page.md"
        if data is not None:
            path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        told = {"GITHUB_STEP_SUMMARY": str(target), "GITHUB_WORKSPACE": ROOT}
        status = script.main([str(path), "GPU tests, Python 3.12"], told)
        log, trouble = capsys.readouterr()
        assert trouble == ""
        return Said(status, log, html.unescape(target.read_text(encoding="utf-8")))

    return run


def test_good_run_is_green_and_told(summarise: Any) -> None:
    said = summarise(made(entry("test_a.py::test_x"), entry("test_a.py::test_y", far=False)))
    assert (said.status, said.log) == (0, "")
    assert said.page.startswith("## GPU tests, Python 3.12\n")
    assert "| passed |\n| --- |\n| 2 |\n" in said.page
    (row,) = [line for line in said.page.splitlines() if "540" in line]
    assert row.endswith(" | 1 | 2 | 1.00 | 540.00 | $0.09 |")
    assert "modal:T4, Python 3.12.4, pytest 9.2.0" in said.page
    assert "Cost: about $0.09 of at most $2.50" in said.page


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (None, "there are no run data"),
        (b"", "the run data are no JSON"),
        (b'{"format": "pytest-remot', "the run data are no JSON"),
        (b"\xff\xfe", "the run data are no JSON"),
        (b"[]", "the run data are no object"),
        (b"{}", "are of the form (None, None)"),
        ({**made(), "version": 2}, "are of the form ('pytest-remotegpu/run', 2)"),
        ({**made(), "tests": None}, "have no list of tests"),
        ({**made(), "tests": ["x"]}, "have no list of tests"),
        (made(), "no test was selected"),
        (made(entry("a", far=False)), "no test ran on the far side"),
        (made(entry("a", "skipped")), "each test on the far side was skipped"),
        (made(entry("a", far=False), backend=None), "the run had no far side"),
        (made(entry("a"), real=False), "no GPU was used"),
        (made(entry("a"), complete=False), "the run was cut off"),
        (made(entry("a"), complete=None), "the run was cut off"),
        (made(entry("a"), exit_status=2), "pytest ended with exit status 2"),
        (made(entry("a"), exit_status=None), "pytest ended with exit status None"),
        (made(entry("a"), entry("b", "failed")), "1 test failed or could not be run"),
        (made(entry("a"), entry("b", "error"), entry("c", "failed")), "2 tests failed"),
        (made(entry("a"), entry("b", "not run")), "1 test did not run"),
    ],
)
def test_run_that_shows_nothing_good_is_red(
    summarise: Any, data: dict[str, Any] | bytes | None, fault: str
) -> None:
    said = summarise(data)
    assert said.status == 1
    assert f"- **{fault}" in said.page or f" {fault}" in said.page
    assert f"::error::{fault}" in said.log or f" {fault}" in said.log


@pytest.mark.parametrize("outcome", ["passed", "xfailed", "xpassed"])
def test_what_ran_far_away_counts(summarise: Any, outcome: str) -> None:
    assert summarise(made(entry("a", outcome), entry("b", "skipped"))).status == 0


def test_failures_mark_their_files(summarise: Any) -> None:
    bad = entry("tests/test_a.py::test_x[1,2]", "failed", "assert 1 == 2\n+ 50 %")
    said = summarise(made(bad, entry("a")))
    assert said.status == 1
    assert said.log.splitlines()[0] == (
        "::error file=tests/test_a.py,title=tests/test_a.py%3A%3Atest_x[1%2C2]"
        "::assert 1 == 2%0A+ 50 %25"
    )
    assert "<pre>failed: tests/test_a.py::test_x[1,2]\nassert 1 == 2\n+ 50 %</pre>" in said.page


def test_file_outside_the_checkout_is_not_marked(summarise: Any) -> None:
    said = summarise(made(entry("test_a.py::test_x", "failed"), root="/elsewhere"))
    assert "file=" not in said.log
    assert "::error title=test_a.py%3A%3Atest_x::failed" in said.log


def test_many_failures_are_shortened(summarise: Any) -> None:
    said = summarise(made(*(entry(f"t.py::test_{n}", "failed", "no") for n in range(60))))
    assert said.page.count("<pre>") == 50
    assert "and 10 more" in said.page
    assert said.log.count("::error file=") == 10
    assert "60 tests failed" in said.log


def test_half_a_text_does_not_stop_it(summarise: Any) -> None:
    said = summarise(made(entry("t.py::test_\udc80", "failed", "\udcff")))
    assert said.status == 1
    assert "\\udc80" in said.page


@given(st.text())
def test_no_text_is_markup(text: str) -> None:
    written = script.plain(text)
    assert not set(written) & set("<>|`*_[]()!\\@\n\r~")
    assert html.unescape(written) == " ".join(text.split())


@given(st.text(), st.text())
def test_no_text_is_a_command(id: str, message: str) -> None:
    data = made(entry(id, "failed", message))
    lines = list(script.annotate(data, ROOT))
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert "\r" not in lines[0]


@given(st.text(alphabet="</pre>\n &x", max_size=40))
def test_no_message_ends_its_block(message: str) -> None:
    text = "\n".join(script.failures(made(entry("t", "failed", message))))
    assert (text.count("<"), text.count("</pre>"), text.count("\n\n")) == (2, 1, 0)


def test_wrong_call_says_how() -> None:
    command = [sys.executable, "-I", str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: " in done.stderr
