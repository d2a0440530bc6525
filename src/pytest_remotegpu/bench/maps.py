"""Speedups by sequence length and window, the rules that they give, and the search for those.

Values in, values out, but for the function that measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_remotegpu.bench.estimates import Estimate
from pytest_remotegpu.bench.thresholds import Threshold, passes, threshold, together

__all__ = ["Map", "search", "search_map"]


@dataclass(frozen=True, slots=True)
class Map:
    """Speedups by sequence length and window.

    :ivar cells: by ``(length, window)``, both in tokens.
    """

    cells: Mapping[tuple[int, int], Estimate] = field(default_factory=dict)

    @property
    def lengths(self) -> tuple[int, ...]:
        """All lengths, ascending."""
        return tuple(sorted({length for length, _ in self.cells}))

    @property
    def windows(self) -> tuple[int, ...]:
        """All windows, ascending."""
        return tuple(sorted({window for _, window in self.cells}))

    def scalar(self, margin: float, windows: Iterable[int] | None = None) -> Threshold:
        """Find the one length from which each window of a regime keeps the margin.

        :param windows: the regime; without it, all that were measured.
        """
        groups: dict[int, list[tuple[int, Estimate]]] = {}
        wanted = set(self.windows if windows is None else windows)
        for (length, window), cell in self.cells.items():
            if window in wanted:
                groups.setdefault(window, []).append((length, cell))
        return together(groups.values(), margin=margin)

    def by_window(self, margin: float) -> dict[int, Threshold]:
        """Find for each window the length from which it keeps the margin."""
        return {window: self.scalar(margin, (window,)) for window in self.windows}

    def beyond(
        self, margin: float, windows: Iterable[int] | None = None
    ) -> tuple[tuple[int, int], ...]:
        """List the cells ``(length, window)`` of a regime that no scalar can express.

        They keep the margin, with all larger lengths of their window, and lie below the scalar.
        Where there is none, the scalar says it all.
        """
        wanted = set(self.windows if windows is None else windows)
        whole = self.scalar(margin, wanted)
        limit = math.inf if whole.value is None else whole.value
        starts = self.by_window(margin)
        return tuple(
            (length, window)
            for length, window in sorted(self.cells)
            if window in wanted
            and (start := starts[window].value) is not None
            and start <= length < limit
        )

    def rule(self, margin: float) -> dict[int, int | None]:
        """Give the two-dimensional rule: for windows up to a key, lengths from its value on.

        A window between two that were measured takes the next larger one's, and no window's value
        lies below that of a smaller one: the advantage shrinks with the window.

        :return: by window, ascending; ``None`` for never.
        """
        rule: dict[int, int | None] = {}
        before: float = 0
        for window, found in self.by_window(margin).items():
            before = max(before, math.inf if found.value is None else found.value)
            rule[window] = None if math.isinf(before) else int(before)
        return rule


def search(
    sizes: Sequence[int], measure: Callable[[int], Estimate], *, margin: float, unit: str = "S"
) -> tuple[Threshold, dict[int, Estimate]]:
    """Find a threshold by bisection, with about ``log2`` of the grid's measurements.

    The answer is that of the whole grid where a margin that is kept at a size is kept at all larger
    ones. The largest size is measured first: it alone settles "never".

    :param sizes: the grid, in any order.
    :param measure: times one size; called once for each at most.
    :return: the threshold, and what was measured.
    """
    grid = sorted(set(sizes))
    measured: dict[int, Estimate] = {}
    _bisect(grid, 0, measure, margin, measured)
    return threshold(measured.items(), margin=margin, unit=unit), measured


def _bisect(
    grid: Sequence[int],
    begin: int,
    measure: Callable[[int], Estimate],
    margin: float,
    measured: dict[int, Estimate],
) -> int:
    """Measure until the first place from ``begin`` on that keeps the margin is known; give it."""

    def keeps(place: int) -> bool:
        size = grid[place]
        if size not in measured:
            measured[size] = measure(size)
        return passes(measured[size], margin)

    low, high = begin, len(grid)
    if low < high and not keeps(high - 1):
        return high
    high = max(low, high - 1)
    while low < high:
        middle = (low + high) // 2
        if keeps(middle):
            high = middle
        else:
            low = middle + 1
    return low


def search_map(
    lengths: Sequence[int],
    windows: Sequence[int],
    measure: Callable[[int, int], Estimate],
    *,
    margin: float,
) -> Map:
    """Measure as much of a map as its rule needs.

    The rule is that of the whole grid where the advantage grows with the length and shrinks with
    the window: each window is then searched from the one before's threshold on.

    :param measure: times one ``(length, window)``; called once for each at most.
    """
    grid = sorted(set(lengths))
    cells: dict[tuple[int, int], Estimate] = {}
    begin = 0
    for window in sorted(set(windows)):
        measured: dict[int, Estimate] = {}

        def one(length: int, window: int = window) -> Estimate:
            return measure(length, window)

        begin = _bisect(grid, max(0, min(begin, len(grid) - 1)), one, margin, measured)
        cells |= {(length, window): found for length, found in measured.items()}
    return Map(cells)
