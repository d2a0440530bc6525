"""One thing that the project holds itself to. A value; knows nothing of how it is measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

__all__ = ["Bar"]


@dataclass(frozen=True)
class Bar:
    """A ratio, measured several times.

    :ivar name: such as ``T1``. :ivar what: this project, and beside what, in words.
    :ivar ratios: one of each round. :ivar must: what their median has to be at most.
    :ivar aim: what it should be.
    """

    name: str
    what: str
    ratios: tuple[float, ...]
    must: float
    aim: float

    @property
    def verdict(self) -> str:
        """Say which of the two it keeps."""
        median = statistics.median(self.ratios)
        if median <= self.aim:
            return "aim"
        return "kept" if median <= self.must else "missed"
