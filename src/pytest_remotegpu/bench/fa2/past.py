"""A sweep as lines of the history of benchmarks, beside those of ``gpu_benchmark``."""

from __future__ import annotations

import calendar
import math
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from pytest_remotegpu.bench import history
from pytest_remotegpu.bench import measured as benchmarks
from pytest_remotegpu.bench.estimates import median, ratio
from pytest_remotegpu.bench.fa2.judging import Setting
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import FA2, Branch, Problem, Regime, Row
from pytest_remotegpu.bench.history import Commit
from pytest_remotegpu.bench.told import Benchmark, Kept
from pytest_remotegpu.errors import UsageError

__all__ = ["add", "kept", "when"]

MODES: Final = {Regime.EAGER: "eager", Regime.DEVICE: "graph"}
"""The words of benchmarks for which time counts."""


def kept(measured: Measured) -> list[Kept]:
    """Give a benchmark for each problem and repetition."""
    groups: dict[tuple[Problem, int], list[Row]] = {}
    for row in measured.rows:
        if row.times and all(math.isfinite(one) and one > 0 for one in row.times):
            groups.setdefault((row.problem, row.repetition), []).append(row)
    return [
        Kept(_name(problem), number - 1, "passed", _benchmark(measured, problem, rows))
        for (problem, number), rows in groups.items()
    ]


def _name(problem: Problem) -> str:
    within = f"w={problem.window}"
    if problem.branch is Branch.COMPRESSED:
        within = f"l={problem.block} d={problem.stride}"
    return f"fa2: {problem.branch}, S={problem.length} {within}, {Setting.of(problem)}"


def _benchmark(measured: Measured, problem: Problem, rows: list[Row]) -> Benchmark:
    """Make the benchmark: FlashAttention-2 is on trial, where it was timed."""
    columns = dict.fromkeys(sorted((row.column for row in rows), key=lambda name: name != FA2))
    throttled = measured.throttled()
    plain = {
        "format": benchmarks.FORMAT,
        "version": benchmarks.VERSION,
        "group": "fa2",
        "valid": not throttled,
        "why": f"the card was held back: {', '.join(throttled)}" if throttled else "",
        "environment": _environment(measured, problem.dtype),
        "state": {"held_back": list(throttled)},
        "contestants": [
            {
                "name": column,
                "modes": {
                    MODES[row.regime]: _timed(row, rows) for row in rows if row.column == column
                },
            }
            for column in columns
        ],
    }
    return msgspec.convert(plain, Benchmark)


def _environment(measured: Measured, dtype: str) -> dict[str, Any]:
    device, more = measured.device, measured.environment
    return {
        "device": device.device_name if device.cuda_available else "cpu",
        "torch": device.torch_version,
        "cuda": device.cuda_version,
        "driver": more.get("driver"),
        "clock": more.get("clock"),
        "dtype": dtype,
    }


def _timed(row: Row, rows: list[Row]) -> dict[str, Any]:
    found = median(row.times)
    others = [
        other
        for other in rows
        if (other.regime is row.regime)
        and other.column != row.column
        and len(other.times) == len(row.times)
    ]
    quotients = {other.column: ratio(other.times, row.times) for other in others}
    return {
        "ms": found.mid,
        "low": found.low,
        "high": found.high,
        "times": list(row.times),
        "speedup": {name: (one.mid, one.low, one.high) for name, one in quotients.items()},
    }


def when(measured: Measured) -> float:
    """Say when it was measured, in seconds since 1970.

    :raises UsageError: where it does not say.
    """
    said = measured.ended or measured.began
    try:
        return float(calendar.timegm(time.strptime(said[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError as error:
        raise UsageError(f"nobody knows when it was measured: {said!r}") from error


def add(path: Path, measured: Measured) -> int:
    """Add a sweep to a history.

    :return: how many lines were added.
    :raises UsageError: where the file can't be written, or nobody knows when it was measured.
    """
    said, dirty, _ = str(measured.environment.get("commit") or "").partition("-dirty")
    commit = Commit(said, changed=bool(dirty))
    try:
        return history.append(path, kept(measured), when=when(measured), commit=commit)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
