"""A history of benchmarks as a table: what each took at first, before, and last.

Values in, lines out. Times of different environments never stand in one row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from pytest_remotegpu.bench.history import Entry
from pytest_remotegpu.bench.measured import time_of
from pytest_remotegpu.bench.told import Timed, clean

__all__ = ["trends"]

STEPS: Final = "▁▂▃▄▅▆▇█"
SHOWN: Final = ("device", "host", "driver", "cuda", "torch", "dtype", "clock")
"""What of an environment is named, where it is there."""
MOST_STEPS: Final = 20
"""Runs, the last ones, that are drawn."""
HEADS: Final = (
    "benchmark",
    "of",
    "runs",
    "first",
    "last",
    "to first",
    "to the one before",
    "trend",
)

Series = list[tuple[Entry, Timed]]


def trends(entries: Sequence[Entry], *, only: str = "") -> Iterator[str]:
    """Write a table for each environment, that with the newest run last.

    :param entries: the oldest first. :param only: a part of the names that are wanted.
    """
    groups: dict[bytes, list[Entry]] = {}
    for entry in entries:
        if only in entry.test:
            groups.setdefault(_key(entry.benchmark.environment), []).append(entry)
    if not groups:
        yield f"no benchmark has {only!r} in its name" if only else "there is no benchmark"
    for place, group in enumerate(sorted(groups.values(), key=lambda found: found[-1].when)):
        if place:
            yield ""
        yield _about(group)
        rows = [HEADS, *_rows(group)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            texts = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            yield "  ".join(texts).rstrip()


def _key(environment: dict[str, Any]) -> bytes:
    return msgspec.json.encode(environment, order="deterministic")


def _about(group: Sequence[Entry]) -> str:
    """Name an environment, and the runs from the first to the last."""
    environment = group[-1].benchmark.environment
    words = [f"{name} {_words(environment[name])}" for name in SHOWN if environment.get(name)]
    first, last = group[0], group[-1]
    return f"{clean(', '.join(words))}: {_run(first)} to {_run(last)}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={each}" for key, each in value.items() if each is not None)
    return str(value)


def _run(entry: Entry) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(entry.when))
    changed = " with changes" if entry.commit.changed else ""
    return f"{day} ({clean(entry.commit.id)[:12] or 'no commit'}{changed})"


def _rows(group: Sequence[Entry]) -> Iterator[tuple[str, ...]]:
    several: dict[tuple[str, int, str, str], Series] = {}
    for entry in group:
        for name, mode, timed in entry.benchmark.timed():
            where = entry.test, entry.index, name, mode
            several.setdefault(where, []).append((entry, timed))
    for (test, index, name, mode), series in several.items():
        number = f" #{index + 1}" if index else ""
        first, last = series[0][1], series[-1][1]
        before = series[-2][1] if len(series) > 1 else None
        yield (
            clean(f"{test}{number}"),
            clean(f"{name}, {mode}"),
            str(len(series)),
            time_of(first.estimate),
            time_of(last.estimate),
            _change(first, last) if len(series) > 1 else "",
            _change(before, last) if before is not None else "",
            _steps([timed.ms for _, timed in series[-MOST_STEPS:]]),
        )


def _change(before: Timed, now: Timed) -> str:
    """Give the quotient of times, and a word where the intervals are apart."""
    word = " slower" if now.low > before.high else " faster" if now.high < before.low else ""
    return f"{now.ms / before.ms:.2f}{word}"


def _steps(numbers: Sequence[float]) -> str:
    """Draw numbers as steps between the least and the largest.

    >>> _steps([1, 2, 3]), _steps([2, 2])
    ('▁▅█', '▁▁')
    """
    low, high = min(numbers), max(numbers)
    scale = (len(STEPS) - 1) / (high - low) if high > low else 0.0
    return "".join(STEPS[int((number - low) * scale + 0.5)] for number in numbers)
