"""The maps as a picture, where matplotlib is installed."""

from __future__ import annotations

import importlib.util
import io
import math
from typing import Any, Final

from pytest_remotegpu.bench.fa2 import charts
from pytest_remotegpu.bench.fa2.charts import Chart
from pytest_remotegpu.bench.fa2.judging import Question
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import Branch, Regime

__all__ = ["MISSING", "draw"]

MISSING: Final = "there is no picture of the maps: matplotlib is not installed"
WIDE: Final = 4.0
"""Times faster, or slower, at which colours end."""


def draw(measured: Measured, question: Question) -> bytes | None:
    """Draw the maps of sliding windows against the question's reference: regimes side by side.

    :return: a PNG; ``None`` where matplotlib is not installed, or there is no such map.
    """
    found = [
        chart
        for chart in charts.charts(measured, question.reference)
        if chart.branch is Branch.SLIDING
    ]
    if not found or not available():
        return None
    from matplotlib.figure import Figure  # noqa: PLC0415 -- an extra

    figure = Figure(figsize=(11, 0.5 + 4 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), len(Regime), squeeze=False)
    for chart, row in zip(found, axes, strict=True):
        for regime, axis in zip(Regime, row, strict=True):
            _one(axis, chart, regime, question.margin)
    name = measured.device.device_name or "no card"
    figure.suptitle(f"{name}: times faster than {question.reference}")
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def available() -> bool:
    """Say whether pictures can be drawn; nothing is imported for that, which may take a while."""
    return importlib.util.find_spec("matplotlib") is not None


def _one(axis: Any, chart: Chart, regime: Regime, margin: float) -> None:
    cells, sizes, windows = chart.map(regime).cells, list(chart.lengths), chart.windows
    rows = [[_colour(cells.get((size, window))) for window in windows] for size in sizes]
    axis.imshow(rows, cmap="RdYlGn", vmin=-1, vmax=1, aspect="auto", origin="lower")
    axis.set_title(f"{chart.setting}\n{regime} time", fontsize=9)
    axis.set_xticks(range(len(windows)), [str(window) for window in windows])
    axis.set_yticks(range(len(sizes)), [str(size) for size in sizes])
    axis.set_xlabel("window w, tokens")
    axis.set_ylabel("sequence length S, tokens")
    for row, size in enumerate(sizes):
        for column, window in enumerate(windows):
            mark = chart.mark(regime, size, window, margin)
            text = charts.speed(cells.get((size, window)), mark, interval=False)
            axis.text(column, row, text, ha="center", va="center", fontsize=9)


def _colour(found: Any) -> float:
    """Give the place of a speedup between -1 and 1, by its logarithm; no number for none."""
    if found is None or not found.finite or found.mid <= 0:
        return math.nan
    return max(-1.0, min(1.0, math.log(found.mid) / math.log(WIDE)))
