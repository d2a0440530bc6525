"""Times by a clock on the wall, for a CPU.

Knows neither torch nor pytest; the clock is an argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_remotegpu.bench.timing import Call, Mode, Rotating, order

__all__ = ["WallTimer"]

SPAN: Final = 1e-3
"""Seconds that a round lasts at least, so that reading the clock is nothing beside it."""
MOST: Final = 2**20
"""Calls in a round at most; a clock that does not go must not keep this for ever."""


@dataclass(slots=True)
class _Repeated:
    """Several calls in a round; a call of it is one of them."""

    call: Call
    times: int

    def __call__(self) -> object:
        """Call it once."""
        return self.call()


class WallTimer:
    """Times calls by a clock; a short call is made several times in a round.

    :ivar modes: wall time only.
    """

    modes: tuple[Mode, ...] = (Mode.WALL,)

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Take a clock.

        :param clock: gives seconds.
        """
        self._clock = clock

    def prepare(self, call: Call, mode: Mode) -> Call:  # noqa: ARG002 -- there is one mode
        """Find out how many calls a round needs; through all copies where inputs rotate."""
        step = len(call.calls) if isinstance(call, Rotating) else 1
        times = step
        while self._spent(call, times) < SPAN and times < MOST:
            times *= 2
        return _Repeated(call, times)

    def rounds(self, calls: Sequence[Call], count: int, mode: Mode) -> list[list[float]]:  # noqa: ARG002 -- there is one mode
        """Time all calls in turns; milliseconds of one call, by call and round."""
        found: list[list[float]] = [[] for _ in calls]
        for turn in range(count):
            for place in order(len(calls), turn):
                call = calls[place]
                body, times = (call.call, call.times) if isinstance(call, _Repeated) else (call, 1)
                found[place].append(self._spent(body, times) / times * 1000)
        return found

    def settle(self) -> None:
        """Do nothing: a call on a CPU has ended when it comes back."""

    def _spent(self, call: Call, times: int) -> float:
        """Give the seconds of so many calls."""
        begun = self._clock()
        for _ in range(times):
            call()
        return self._clock() - begun
