"""Curves as values, and as files: CSV always, PNG where matplotlib is installed.

Knows no check and no verdict. matplotlib is imported where a picture is drawn, and without its
``pyplot``, so that no backend, figure or style of the user's session is touched.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Final

__all__ = ["Curve", "file_stem", "place", "write"]

WIDE: Final = 100.0
"""From this ratio of largest to smallest value on, a picture has a logarithmic axis."""
SHOWN: Final = 5
"""Points of a series that its text shows."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Some series of numbers over a common axis.

    :ivar name: names the files.
    :ivar x: what the axis counts, from 0 on; ``step`` unless said.
    :ivar y: what the numbers are, with their unit where they have one.
    :ivar series: numbers by the name of their series; the lengths may differ, and a number may be
        ``nan`` or infinite.
    """

    name: str
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    y: str = "loss"
    x: str = "step"

    def __str__(self) -> str:
        lines = [f"{self.y} by {self.x}, {name}: {_points(s)}" for name, s in self.series.items()]
        return "\n".join(lines)


def write(curve: Curve, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write a curve into a folder, which is made where it is missing.

    :param folder: for instance what the fixture ``artifacts_dir`` gives, whose files are kept.
    :return: the files: a CSV, and a PNG where matplotlib is installed. A file of that name from
        before is replaced.
    :raises OSError: where the folder or a file can't be written.
    """
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    stem = file_stem(curve.name)
    written = [place(home / f"{stem}.csv", _table(curve).encode())]
    if importlib.util.find_spec("matplotlib") is not None:
        written.append(place(home / f"{stem}.png", _picture(curve)))
    return tuple(written)


def file_stem(name: str) -> str:
    """Give the name of a curve's files, without what tells their kind."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "curve"


def _points(series: tuple[float, ...]) -> str:
    """Show some points of a series, its ends among them."""
    last = len(series) - 1
    places = sorted({round(part * last / (SHOWN - 1)) for part in range(SHOWN)}) if series else []
    return ", ".join(f"{series[place]:.4g} at {place}" for place in places) or "no points"


def place(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all: folders of artifacts are read while tests run."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
    return path


def _table(curve: Curve) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([curve.x, *curve.series])
    for number, row in enumerate(zip_longest(*curve.series.values(), fillvalue="")):
        lines.writerow([number, *row])
    return text.getvalue()


def _picture(curve: Curve) -> bytes:
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only where it is installed

    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a font without some letter is no reason to fail
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        for name, series in curve.series.items():
            axes.plot(range(len(series)), series, label=name)
        axes.set(xlabel=curve.x, ylabel=curve.y, title=curve.name)
        axes.set_yscale("log" if _is_wide(curve) else "linear")
        axes.grid(visible=True, alpha=0.3)
        if curve.series:
            axes.legend()
        figure.savefig(content, format="png", dpi=100)
    return content.getvalue()


def _is_wide(curve: Curve) -> bool:
    values = [value for series in curve.series.values() for value in series if math.isfinite(value)]
    return bool(values) and min(values) > 0 and max(values) / min(values) >= WIDE
