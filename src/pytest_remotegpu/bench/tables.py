"""Benchmarks as lines for a terminal.

Values in, text out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pytest_remotegpu.bench.contestants import REFERENCE
from pytest_remotegpu.bench.measured import text_of, time_of
from pytest_remotegpu.bench.told import Benchmark, Contestant, Kept, Timed, clean

__all__ = ["lines"]

UNITS: Final = (("bytes", "B/s"), ("flops", "FLOP/s"))
PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
SLOW_START: Final = 100
LONG_START: Final = 10.0
"""A first call that took so many times as long as the others, and so many milliseconds, is told."""


def lines(kept: Sequence[Kept]) -> Iterator[str]:
    """Give a table: for each environment a line, for each test one, for each time one."""
    seen = ""
    for one in kept:
        place = _environment(one.benchmark)
        if place != seen:
            yield place
            seen = place
        call = f" ({one.index + 1})" if one.index else ""
        group = f" [{clean(one.benchmark.group)}]" if one.benchmark.group else ""
        invalid = "" if one.benchmark.valid else f" NOT VALID: {clean(one.benchmark.why)}"
        yield f"{clean(one.test)}{call}{group}{invalid}"
        yield from _aligned(_rows(one.benchmark))
        yield from (f"    {note}" for note in _notes(one.benchmark))


def _environment(benchmark: Benchmark) -> str:
    said = benchmark.environment
    device = said.get("device")
    host = f" ({said.get('host')})" if device == "cpu" else ""
    versions = [f"{name} {said[name]}" for name in ("driver", "torch") if said.get(name)]
    cuda = [f"CUDA {said['cuda']}"] if said.get("cuda") else []
    return clean(", ".join([f"{device}{host}", *versions, *cuda]))


def _base(benchmark: Benchmark) -> str:
    names = [one.name for one in benchmark.contestants]
    return REFERENCE if REFERENCE in names else names[0]


def _rows(benchmark: Benchmark) -> Iterator[tuple[str, ...]]:
    base = _base(benchmark)
    for one in benchmark.contestants:
        for mode, timed in one.modes.items():
            quotient = timed.over(base)
            cache = benchmark.l2.get(mode)
            yield (
                clean(one.name),
                clean(mode),
                time_of(timed.estimate),
                "" if quotient is None else f"x{text_of(quotient)}",
                *(_rate(timed, *unit) for unit in UNITS),
                clean(one.bound) if mode != "graph" else "",
                f"{clean(cache)} L2" if cache else "",
            )


def _rate(timed: Timed, what: str, unit: str) -> str:
    rate = timed.rates.get(what)
    if rate is None:
        return ""
    size, prefix = next((one for one in PREFIXES if rate.value >= one[0]), PREFIXES[-1])
    share = "" if rate.share is None else f" ({rate.share:.0%} of {clean(rate.of)})"
    return f"{rate.value / size:.3g} {prefix}{unit}{share}"


def _aligned(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width]
        yield ("  " + "  ".join(cells)).rstrip()


def _notes(benchmark: Benchmark) -> Iterator[str]:
    yield from map(clean, benchmark.notes)
    for one in benchmark.contestants:
        if _starts_slowly(one):
            yield f"the first call of {clean(one.name)} took {one.first_ms:.4g} ms"


def _starts_slowly(one: Contestant) -> bool:
    times = [timed.ms for timed in one.modes.values()]
    least = max(LONG_START, SLOW_START * max(times, default=0))
    return one.first_ms is not None and one.first_ms > least
