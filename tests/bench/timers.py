"""A clock that goes only where a test lets it, and a timer without one.

Knows the timer's interface and nothing else of the package.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_remotegpu.bench.timing import Call, CaptureError, Mode, order

__all__ = ["Clock", "FakeTimer", "Work"]


class Clock:
    """A clock in seconds that work moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.spent: list[str] = []

    def __call__(self) -> float:
        return self.now


class Work:
    """A call that takes so many seconds, and the first time some more.

    :ivar calls: how often it was called.
    """

    def __init__(self, clock: Clock, seconds: float, *, start: float = 0.0, name: str = "") -> None:
        self._clock, self._seconds, self._start = clock, seconds, start
        self.name = name
        self.calls = 0

    def __call__(self) -> None:
        self._clock.now += self._seconds + (0 if self.calls else self._start)
        self._clock.spent.append(self.name)
        self.calls += 1


class FakeTimer:
    """A timer that calls each call once a round and gives the times it is told.

    :param times: milliseconds by place and round; rounds beyond those repeat the last one.
    """

    modes: tuple[Mode, ...] = (Mode.EAGER, Mode.GRAPH)

    def __init__(self, *times: Sequence[float], uncaptured: Sequence[Call] = ()) -> None:
        self._times = times
        self._uncaptured = uncaptured
        self.asked: list[tuple[int, Mode]] = []
        self.settled = 0

    def prepare(self, call: Call, mode: Mode) -> Call:
        """Refuse what can't be captured."""
        if mode is Mode.GRAPH and call in self._uncaptured:
            raise CaptureError("it can't be captured: it waits", fix="do not wait")
        return call

    def rounds(self, calls: Sequence[Call], count: int, mode: Mode) -> list[list[float]]:
        """Call in turns; give what was told."""
        self.asked.append((count, mode))
        for turn in range(count):
            for place in order(len(calls), turn):
                calls[place]()
        return [
            [told[min(turn, len(told) - 1)] for turn in range(count)]
            for told in self._times[: len(calls)]
        ]

    def settle(self) -> None:
        """Count."""
        self.settled += 1
