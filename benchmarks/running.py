"""One run of one runner: a process, seen from outside, with the notes that it leaves.

Knows the three command lines and what the observer writes; draws no conclusions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import machine

__all__ = ["PLAIN", "PRODUCT", "RUNNERS", "XDIST", "Failure", "Run", "run"]

PRODUCT: Final = "remote"
PLAIN: Final = "plain"
XDIST: Final = "xdist"
RUNNERS: Final = {
    PRODUCT: (
        *("-p", "pytest_remotegpu.plugin", "--remote=local:cpu"),
        *("-o", "remotegpu_collect=here"),  # as its peers do, so that the same is counted
    ),
    PLAIN: (),
    XDIST: ("-p", "xdist", "-n1"),
}
"""Arguments of each, in the order in which they take turns."""
LONGEST: Final = 300.0
"""Seconds after which a run is ended."""
SHOWN: Final = 2000
"""Characters of output to show of a run that went wrong."""
PHASES: Final = 3


class Failure(Exception):  # noqa: N818  it is what the script calls it
    """Raised when a run has not run what it should."""


@dataclass(frozen=True)
class Run:
    """What was seen of one run; times in seconds.

    :ivar window: from the moment at which the tests are known where they run, to the last report.
    :ivar here: the same from the end of collection here; pytest-xdist collects nothing here.
    :ivar whole: the whole process; :ivar cpu: processor time of it and all that it started.
    :ivar peak: KiB of memory of the process that the user sees.
    :ivar others: how many processors others used meanwhile.
    :ivar reports: those of one test, as pytest serialises them.
    """

    window: float
    here: float
    whole: float
    cpu: float
    peak: float
    others: float
    reports: list[dict[str, Any]]


def run(runner: str, root: Path, tests: int) -> Run:
    """Run one of :data:`RUNNERS` on the project in ``root``.

    :param tests: how many must pass.
    :raises Failure: where it ends otherwise.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        with (folder / "output").open("wb") as output:
            seen = _watch(runner, root, folder, output.fileno())
        status, whole, cpu, others = seen
        text = (folder / "output").read_text(encoding="utf-8", errors="replace")[-SHOWN:]
        if status != 0:
            late = f" (it is ended after {LONGEST:.0f} s)" if whole >= LONGEST else ""
            raise Failure(f"{runner} ended with status {status} instead of 0{late}:\n{text}")
        main, far = _notes(folder, runner)
    if main["passed"] != tests * PHASES:
        raise Failure(f"{runner} gave {main['passed']} passed reports of {tests} tests:\n{text}")
    end: float = main["last_report"]
    return Run(
        end - far,
        end - main.get("collected", far),
        whole,
        cpu,
        main["peak_kib"],
        others,
        main["reports"],
    )


def _watch(runner: str, root: Path, folder: Path, output: int) -> tuple[int, float, float, float]:
    """Run it and give exit status, seconds, processor seconds, and what others used."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "observer", *RUNNERS[runner]]
    busy, start = machine.busy_seconds(), time.perf_counter()
    process = subprocess.Popen(
        command, cwd=root, env=_environment(folder), stdin=subprocess.DEVNULL,
        stdout=output, stderr=subprocess.STDOUT,
    )  # fmt: skip
    timer = threading.Timer(LONGEST, process.kill)
    timer.start()
    _, status, used = os.wait4(process.pid, 0)
    whole = time.perf_counter() - start
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = used.ru_utime + used.ru_stime
    now = machine.busy_seconds()
    others = 0.0 if busy is None or now is None else max(now - busy - cpu, 0.0) / whole
    return process.returncode, whole, cpu, others


def _environment(folder: Path) -> dict[str, str]:
    """Give a user's environment: nothing set for pytest, bytecode written and read."""
    ours = ("PYTEST", "PYTHON", "COV_", "COVERAGE", "REMOTEGPU")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(Path(__file__).parent),
        "BENCHMARK_NOTES": str(folder),
    }


def _notes(folder: Path, runner: str) -> tuple[dict[str, Any], float]:
    """Give the main process's notes, and when the tests were known where they run.

    The worker of pytest-xdist tells its tests to the session before it is sent any, which is what
    counts; ours works on at once.

    :raises Failure: where a process is missing or is one too many.
    """
    found = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    mains = [notes for notes in found if notes["role"] == "main"]
    workers = [notes for notes in found if notes["role"] == "worker"]
    if len(mains) != 1 or len(workers) != (runner != PLAIN):
        raise Failure(f"{runner} left notes of {len(mains)} sessions and {len(workers)} workers")
    known = {PLAIN: mains[0], PRODUCT: workers[0] if workers else {}, XDIST: mains[0]}[runner]
    key = "far_collected" if runner == XDIST else "collected"
    return mains[0], known[key]
