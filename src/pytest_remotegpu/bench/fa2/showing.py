"""What a terminal shows of a sweep: the maps, the thresholds, what a configuration gets and why.

Values in, lines out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_remotegpu.bench.fa2 import charts
from pytest_remotegpu.bench.fa2.charts import Chart
from pytest_remotegpu.bench.fa2.judging import Judgement
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import Branch, Regime

__all__ = ["clean", "decided", "maps", "table"]


def table(rows: Sequence[Sequence[str]], *, gap: str = "  ") -> Iterator[str]:
    """Write rows as columns of one width each; the first row is the head.

    >>> list(table([("a", "b"), ("ccc", "d")]))
    ['a    b', 'ccc  d']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield gap.join(text.ljust(n) for text, n in zip(row, widths, strict=True)).rstrip()


def clean(text: str) -> str:
    r"""Give a text in which nothing moves a cursor: some of it was told by a far side.

    >>> clean("a\x1b[2Jb\tc\n")
    'a?[2Jb\tc\n'
    """
    return "".join(one if one.isprintable() or one in "\t\n" else "?" for one in text)


def maps(measured: Measured, judgement: Judgement) -> Iterator[str]:
    """Write each map, both regimes side by side, with the intervals below."""
    margin = judgement.question.margin
    for reference in charts.references(measured):
        for chart in charts.charts(measured, reference):
            yield chart.title
            if chart.branch is Branch.SLIDING:
                yield from _map(chart, margin)
            yield from _intervals(chart, margin)
            yield ""
    yield (
        f"{charts.KEPT} keeps {margin:g} for certain, {charts.SOME} in some repetitions only; in "
        "parentheses the interval in which the median lies"
    )


def _map(chart: Chart, margin: float) -> Iterator[str]:
    """Write the map without intervals, lengths down and windows across."""
    heads = [f"w={window}" for window in chart.windows]
    rows = [[text for _ in Regime for text in ("", *heads)]]
    found = {regime: chart.map(regime).cells for regime in Regime}
    for size in chart.lengths:
        row = []
        for regime in Regime:
            row.append(f"S={size}")
            for window in chart.windows:
                mark = chart.mark(regime, size, window, margin)
                cell = found[regime].get((size, window))
                row.append(charts.speed(cell, mark, interval=False))
        rows.append(row)
    lines = list(table(rows))
    middle = len(next(table([[*row[: len(heads) + 1], "|"] for row in rows]))) - 1
    first, second = (f"{regime} time" for regime in Regime)
    yield f"{first.ljust(middle)}{second}"
    yield from lines


def _intervals(chart: Chart, margin: float) -> Iterator[str]:
    rows = [("problem", *(f"{regime} time" for regime in Regime))]
    found = {regime: chart.map(regime).cells for regime in Regime}
    for size in chart.lengths:
        for window in chart.windows:
            place = size, window
            if not any(place in cells for cells in found.values()):
                continue
            name = f"S={chart.size(size)}" + (f" w={window}" if window else "")
            texts = (
                charts.speed(found[regime].get(place), chart.mark(regime, *place, margin))
                for regime in Regime
            )
            rows.append((name, *texts))
    yield from table(rows)


def decided(measured: Measured, judgement: Judgement) -> Iterator[str]:
    """Write the thresholds, and what a configuration gets, with the reasons."""
    answers = charts.answers(measured, judgement.question)
    yield from (table(answers) if answers else ["no threshold: nothing was measured"])
    yield ""
    yield f"asked for: {judgement.question}"
    for line, why in charts.reasons(judgement):
        yield line
        yield f"  because {why}"
    yield from charts.two_dimensions(judgement)
    if judgement.trouble:
        yield f"nothing is recommended: {judgement.trouble}"
    if throttled := measured.throttled():
        yield f"the card was held back meanwhile: {', '.join(throttled)}"
    yield from measured.notes
