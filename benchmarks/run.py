"""Measure this project beside plain pytest and pytest-xdist: ``benchmarks/run.py [--quick]``.

The three take turns, round by round, on the same suites; what is printed are ratios within a round,
never times that would have to be compared with those of another day. Slowness fails nothing; a run
that did not run all of its tests does. docs/speed.md explains the numbers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import machine
import table
import wire
from bar import Bar
from running import PLAIN, PRODUCT, RUNNERS, XDIST, Failure, Run, run
from suites import LOUD, MANY, TRIVIAL, Suite

WIRE_LIMIT: Final = 0.18
HEAD: Final = (
    "tests", "who / beside whom", "far side ready to last report", "at most",
    "collected here to last report", "whole process", "processor time",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A suite and how to measure it.

    :ivar rounds: how often; :ivar limits: what the first ratio may be, by the one beside.
    :ivar memory: what the ratio of memory may be; ``None`` for a suite whose memory is not shown.
    """

    suite: Suite
    rounds: int
    limits: dict[str, float]
    memory: float | None = None


FULL: Final = (
    Job(TRIVIAL, 7, {XDIST: 1.0, PLAIN: 2.3}),
    Job(MANY, 5, {XDIST: 1.1}, memory=1.5),
    Job(LOUD, 5, {}, memory=2.0),
)
QUICK: Final = (Job(TRIVIAL, 2, FULL[0].limits), Job(LOUD, 1, {}, memory=FULL[2].memory))


def measure(job: Job, root: Path, patience: machine.Patience) -> list[table.Round]:
    """Run the rounds of one job, after one that only warms caches up.

    :raises Failure: where a run has not run what it should.
    """
    rounds: list[table.Round] = []
    for number in range(job.rounds + 1):
        one = {name: _run(name, root, job.suite.tests, patience) for name in RUNNERS}
        label = f"round {number} of {job.rounds}" if number else "not counted"
        _tell(f"{job.suite.name}, {label}: {', '.join(map(_brief, one.items()))}")
        if number:
            rounds.append(one)
    return rounds


def _run(name: str, root: Path, tests: int, patience: machine.Patience) -> Run:
    patience.wait()
    return run(name, root, tests)


def _brief(named: tuple[str, Run]) -> str:
    name, seen = named
    return f"{name} {seen.window:.2f} of {seen.whole:.2f} s (others {seen.others:.2f})"


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _wire_ratios(rounds: list[table.Round], tests: int) -> list[float]:
    """Compare the wire with the plain runs; it is measured anew for each of them."""
    plain = [one[PLAIN] for one in rounds]
    return [wire.seconds_per_test(seen.reports, tests) / (seen.window / tests) for seen in plain]


def report(jobs: tuple[Job, ...], found: list[list[table.Round]]) -> str:
    """Write both tables."""
    times: list[tuple[str, ...]] = []
    others: list[tuple[str, ...]] = []
    for job, rounds in zip(jobs, found, strict=True):
        times += map(tuple, table.time_rows(job.suite.name, rounds, job.limits))
        if job.memory is not None:
            others += map(tuple, table.memory_rows(job.suite.name, rounds, job.memory))
    tests = jobs[0].suite.tests
    others.append(tuple(table.wire_row(_wire_ratios(found[0], tests), WIRE_LIMIT)))
    parts = (table.text(HEAD, times), table.text(("what", "ratio", "at most"), others))
    return "\n\n".join(parts)


def bars(quick: bool) -> list[Bar]:  # noqa: FBT001 -- as all that give bars are told
    """Measure the bars of tests that do next to nothing, or print a lot.

    :raises Failure: where a run has not run what it should.
    """
    patience = machine.Patience(10.0, 0.0 if quick else 300.0)
    jobs = [Job(job.suite, 2 if quick else job.rounds, job.limits, job.memory) for job in FULL]
    with tempfile.TemporaryDirectory(prefix="benchmark-suites-") as folder:
        small, many, loud = (measure(job, job.suite.write(Path(folder)), patience) for job in jobs)

    def beside(rounds: list[table.Round], peer: str) -> tuple[float, ...]:
        return tuple(one[PRODUCT].window / one[peer].window for one in rounds)

    def memory(rounds: list[table.Round]) -> tuple[float, ...]:
        return tuple(one[PRODUCT].peak / one[PLAIN].peak for one in rounds)

    wires = tuple(_wire_ratios(small, TRIVIAL.tests))
    return [
        Bar("T1", f"{TRIVIAL.name}, warm / xdist -n1", beside(small, XDIST), 1.0, 0.8),
        Bar("T1b", f"{MANY.name}, warm / xdist -n1", beside(many, XDIST), 1.1, 0.9),
        Bar("T1c", f"{TRIVIAL.name}, warm / plain", beside(small, PLAIN), 2.3, 1.7),
        Bar("T1d", f"{LOUD.name}, warm / xdist -n1", beside(loud, XDIST), 1.15, 0.75),
        Bar("T1e", f"peak memory, {MANY.name} / plain", memory(many), 1.5, 1.15),
        Bar("T1e", f"peak memory, {LOUD.name} / plain", memory(loud), 2.0, 1.2),
        Bar("T3", "reports written and read / plain pytest's time for a test", wires, 0.18, 0.05),
    ]


def _disturbance(found: list[list[table.Round]]) -> str:
    others = [seen.others for rounds in found for one in rounds for seen in one.values()]
    return f"processors that others used during the runs: {table.spread(others)}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rounds of 1000 tests; no waiting")
    parser.add_argument(
        "--rounds", type=int, help="rounds of each suite, instead of its own number"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiply the tests, to try this script itself"
    )
    parser.add_argument(
        "--patience", type=float, default=300.0, help="seconds to wait for a quiet machine, in all"
    )
    return parser.parse_args()


def main() -> int:
    """Measure and print; give 1 where something did not run."""
    given = _parse()
    jobs = tuple(
        Job(job.suite.scaled(given.scale), given.rounds or job.rounds, job.limits, job.memory)
        for job in (QUICK if given.quick else FULL)
    )
    patience = machine.Patience(10.0, 0.0 if given.quick else given.patience)
    lines = [machine.describe(), machine.versions()]
    with tempfile.TemporaryDirectory(prefix="benchmark-suites-") as folder:
        try:
            found = [measure(job, job.suite.write(Path(folder)), patience) for job in jobs]
        except Failure as failure:
            _tell(str(failure))
            return 1
    print("\n\n".join([*lines, report(jobs, found), _disturbance(found)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
