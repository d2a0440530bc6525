"""All that the project holds itself to, in one table: ``benchmarks/bars.py [--quick] [NAME ...]``.

Each bar is a ratio of two runs that took turns: this project beside plain pytest, pytest-xdist,
torchrun, git or what no schedule can beat. Slowness fails nothing; what did not run what it should
does. With ``--remote local`` on a host with cards, the two bars of cards are measured there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import edit
import fanout
import machine
import run
import snapshot
import table
from bar import Bar

import ranks
import rented

Measure = Callable[[bool], list[Bar]]
GROUPS: Final[dict[tuple[str, ...], Measure]] = {
    ("T1", "T1b", "T1c", "T1d", "T1e", "T3"): run.bars,
    ("T2", "T2c", "T2d"): edit.bars,
    ("T4", "T4b"): snapshot.bars,
    ("T5",): rented.bars,
    ("T7",): ranks.bars,
    ("T8",): fanout.bars,
}
"""What is measured together, by the names of its bars; each is told whether to be quick."""
ON_CARDS: Final[dict[tuple[str, ...], Measure]] = {
    ("T2g",): lambda quick: edit.bars(quick, "local"),
    ("T7g",): lambda quick: ranks.bars(quick, "local"),
}
HEAD: Final = ("bar", "what / beside what", "ratio (lowest-highest)", "at most", "aim", "so it is")


def rows(bars: Sequence[Bar]) -> list[tuple[str, ...]]:
    """Write a row for each bar."""
    return [
        (bar.name, bar.what, table.spread(bar.ratios), f"{bar.must:g}", f"{bar.aim:g}", bar.verdict)
        for bar in bars
    ]


def chosen(names: Sequence[str], groups: dict[tuple[str, ...], Measure]) -> list[Measure]:
    """Give what has to be measured for some bars.

    :raises SystemExit: for a bar that there is not.
    """
    known = [name for group in groups for name in group]
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no bar {name!r}; there are {', '.join(known)}")
    return [
        measure
        for group, measure in groups.items()
        if not names or not set(names).isdisjoint(group)
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="bars such as T1; else all")
    parser.add_argument("--quick", action="store_true", help="few rounds, no waiting")
    parser.add_argument(
        "--remote", default="local:cpu", choices=("local:cpu", "local"),
        help="local measures the bars of cards, on a host that has two",
    )  # fmt: skip
    given = parser.parse_args()
    groups = GROUPS if given.remote == "local:cpu" else ON_CARDS
    print(machine.describe(), machine.versions(), sep="\n", end="\n\n", flush=True)
    began = time.monotonic()
    bars = [bar for measure in chosen(given.names, groups) for bar in measure(given.quick)]
    shown = [bar for bar in bars if not given.names or bar.name in given.names]
    print(table.text(HEAD, rows(shown)))
    print(f"\n{len(shown)} bars in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
