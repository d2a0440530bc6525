"""From runs to ratios, and from ratios to Markdown. Knows numbers; fails nothing for them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from running import PLAIN, PRODUCT, XDIST, Run

__all__ = ["Round", "memory_rows", "spread", "text", "time_rows", "wire_row"]

Round = Mapping[str, Run]
"""One run of each runner, one right after the other."""
TIMES: Final[Sequence[Callable[[Run], float]]] = (
    lambda run: run.window,
    lambda run: run.here,
    lambda run: run.whole,
    lambda run: run.cpu,
)
NAMES: Final = {PRODUCT: "this", PLAIN: "plain", XDIST: "xdist -n1"}


def spread(ratios: Iterable[float]) -> str:
    """Write median, lowest and highest."""
    found = sorted(ratios)
    return f"{statistics.median(found):.2f} ({found[0]:.2f}-{found[-1]:.2f})"


def _ratio(rounds: Sequence[Round], who: str, beside: str, value: Callable[[Run], float]) -> str:
    return spread(value(one[who]) / value(one[beside]) for one in rounds)


def time_rows(
    name: str, rounds: Sequence[Round], limits: Mapping[str, float]
) -> Iterable[Sequence[str]]:
    """Give a row for this project beside each of the others, and one for the others between them.

    :param limits: what the first ratio may be, by the one beside.
    """
    for who, beside in ((PRODUCT, XDIST), (PRODUCT, PLAIN), (XDIST, PLAIN)):
        warm, here, whole, cpu = (_ratio(rounds, who, beside, value) for value in TIMES)
        limit = limits.get(beside) if who == PRODUCT else None
        shown = "" if limit is None else f"{limit:.1f}"
        yield (name, f"{NAMES[who]} / {NAMES[beside]}", warm, shown, _own(who, here), whole, cpu)


def _own(who: str, ratio: str) -> str:
    """Leave out what has no meaning: the session of pytest-xdist collects nothing itself."""
    return "" if who == XDIST else ratio


def memory_rows(name: str, rounds: Sequence[Round], limit: float | None) -> Iterable[Sequence[str]]:
    """Give the rows for the memory of the process that the user sees."""
    for who, most in ((PRODUCT, limit), (XDIST, None)):
        ratio = _ratio(rounds, who, PLAIN, lambda run: run.peak)
        what = f"peak memory, {name}: {NAMES[who]} / plain"
        yield (what, ratio, "" if most is None else f"{most:.1f}")


def wire_row(ratios: Iterable[float], limit: float) -> Sequence[str]:
    """Give the row for the wire."""
    what = "writing and reading a test's three reports / plain pytest's time for a test"
    return (what, spread(ratios), f"{limit:.2f}")


def text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
