"""A timer that makes its times up, and columns that say to it who was called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_remotegpu.bench.fa2 import ways
from pytest_remotegpu.bench.fa2.columns import Column
from pytest_remotegpu.bench.fa2.rows import Problem
from pytest_remotegpu.bench.timing import Call, CaptureError, Mode

__all__ = ["Price", "Timer", "column"]

Price = Callable[[str, Problem, Mode], float]
"""Milliseconds of a column on a problem."""


class Timer:
    """Times by a list of prices, in the order in which columns are called.

    :ivar called: who was called, newest last.
    :ivar asked: the modes and numbers of contestants of all measurements.
    """

    modes: tuple[Mode, ...] = (Mode.EAGER, Mode.GRAPH)

    def __init__(self, price: Price, *, uncaptured: Sequence[str] = ()) -> None:
        self._price = price
        self._uncaptured = uncaptured
        self.called: list[tuple[str, Problem]] = []
        self.asked: list[tuple[Mode, int]] = []

    def prepare(self, call: Call, mode: Mode) -> Call:
        call()
        if mode is Mode.GRAPH and self.called[-1][0] in self._uncaptured:
            raise CaptureError("it can't be captured: it waits for the card")
        return call

    def rounds(self, calls: Sequence[Call], count: int, mode: Mode) -> list[list[float]]:
        self.asked.append((mode, len(calls)))
        found: list[list[float]] = [[] for _ in calls]
        for turn in range(count):
            for place, call in enumerate(calls):
                call()
                found[place].append(self._price(*self.called[-1], mode) * (1 + turn % 3 / 100))
        return found

    def settle(self) -> None:
        """Do nothing: nothing runs."""


def column(
    name: str,
    called: Callable[[], list[tuple[str, Problem]]],
    *,
    make: Callable[[Problem, Any], ways.Way] = ways.chunked,
    **more: Any,
) -> Column:
    """Make a column of the CPU that says when it is called.

    :param called: gives the list to say it in.
    """

    def telling(problem: Problem, device: Any) -> ways.Way:
        way = make(problem, "cpu")
        assert device in {"cpu", "cuda"}

        def said(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            called().append((name, problem))
            return way(query, key, value)

        return said

    return Column(name, f"{name} for tests", telling, **{"on_cpu": True, **more})
