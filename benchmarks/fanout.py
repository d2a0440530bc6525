"""Measure how evenly several workers share tests: ``benchmarks/fanout.py [WORKERS ...]``.

Uneven tests that sleep, so that a few processors are enough for many workers, run once to learn how
long they take, and then for the number. What is printed is the time from the first test's start to
the last one's end, divided by what no schedule can beat: the longest test, or an even share of them
all. Times are read from the reports, as the host of the workers gave them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bar import Bar

MUST: Final = 1.15
ROUNDS: Final = 3
MODULES: Final = 12
TESTS: Final = 6
LONGEST: Final = 600.0

CONFTEST: Final = """
import json

def pytest_runtest_logreport(report):
    with open("times.txt", "a") as file:
        print(json.dumps([report.nodeid, report.start, report.stop]), file=file)
"""
MODULE: Final = """
import time
import pytest
pytestmark = pytest.mark.gpu

@pytest.mark.parametrize("seconds", {seconds})
def test_it(seconds):
    time.sleep(seconds)
"""


def durations(number: int) -> list[float]:
    """Give seconds of one module's tests: most are short, some are long, the same in each run."""
    return [
        round(0.05 + 0.5 * ((number * TESTS + at) * 7919 % 101 / 101) ** 3, 3)
        for at in range(TESTS)
    ]


def write(folder: Path) -> None:
    """Write the project."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for number in range(MODULES):
        text = MODULE.format(seconds=durations(number))
        (folder / f"test_{number:02}.py").write_text(text)


def run(folder: Path, workers: int) -> tuple[float, float]:
    """Run the project; give its makespan and the least that it could have been, in seconds.

    :raises SystemExit: where not every test has passed.
    """
    times = folder / "times.txt"
    times.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_remotegpu.plugin"]
    command += [f"--remote=local:cpu:{workers}", f"--remote-workers={workers}"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    if f"{MODULES * TESTS} passed" not in done.stdout:
        raise SystemExit(f"not every test has passed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    spans: dict[str, list[float]] = {}
    for nodeid, start, stop in map(json.loads, times.read_text().splitlines()):
        spans.setdefault(nodeid, []).extend((start, stop))
    took = [max(span) - min(span) for span in spans.values()]
    first, last = min(map(min, spans.values())), max(map(max, spans.values()))
    return last - first, max(*took, sum(took) / workers)


def bars(quick: bool) -> list[Bar]:  # noqa: FBT001 -- as all that give bars are told
    """Measure the bar of uneven tests, on two workers."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        run(Path(name), 2)  # from which the durations are known
        spans = [run(Path(name), 2) for _ in range(1 if quick else ROUNDS)]
    ratios = tuple(end / least for end, least in spans)
    return [Bar("T8", "uneven tests on 2 workers / the best schedule", ratios, MUST, 1.05)]


def main(numbers: list[int]) -> int:
    """Print a line for each number of workers; say whether all were near enough."""
    worst = 0.0
    for workers in numbers:
        with tempfile.TemporaryDirectory() as name:
            write(Path(name))
            end, least = run(Path(name), workers)
            print(f"{workers} workers, durations unknown: {end / least:.2f} of {least:.2f} s")
            ratios = []
            for _ in range(ROUNDS):
                end, least = run(Path(name), workers)
                ratios.append(end / least)
            found = statistics.median(ratios)
            lowest, highest = min(ratios), max(ratios)
            print(f"{workers} workers, durations known: {found:.2f} ({lowest:.2f}-{highest:.2f})")
            worst = max(worst, found)
    print(f"at most {MUST}: {'yes' if worst <= MUST else 'no'}")
    return int(worst > MUST)


if __name__ == "__main__":
    raise SystemExit(main([int(word) for word in sys.argv[1:]] or [2, 4]))
