"""The stretches that one worker was asked for: the one that runs, and those that wait behind it.

Values in, values out; knows the wire's orders, no process and no pytest.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from pytest_remotegpu.protocol import events, orders

__all__ = ["Stretches"]


class Stretches:
    """One after the other, in the order in which they came.

    :ivar run: the one that runs, or that did last. :ivar open: whether it has not ended.
    """

    def __init__(self) -> None:
        self.run = orders.Run(0, 0)
        self.open = False
        self._waiting: deque[orders.Run] = deque()
        self._failures = 0

    def begin(self, run: orders.Run) -> None:
        """Take note that a stretch is the one to run now."""
        self.run, self.open = run, True

    def count_from(self, failures: int) -> None:
        """Take note of the failures that its process has had before it."""
        self._failures = failures

    def change(
        self, message: orders.Run | orders.Follows | orders.Withdraw
    ) -> tuple[list[events.Event], orders.Follows | orders.Withdraw | None]:
        """Take in a stretch that has to wait, or what becomes of those that do.

        :return: what there is to say of it, and what the one that runs has to be told.
        """
        match message:
            case orders.Run():
                told = self._follows(message.first)
                self._waiting.append(message)
                return [], told
            case orders.Follows():
                return [], self._follows(message.place)
        taken = [events.Withdrawn(run.first, run.last) for run in self._waiting]
        self._waiting.clear()
        if taken:
            self.run = replace(self.run, following=-1)
        return list(taken), message if self.open and (message.running or taken) else None

    def _follows(self, place: int) -> orders.Follows | None:
        """Take note of what follows all of them."""
        if self._waiting:
            self._waiting[-1] = replace(self._waiting[-1], following=place)
            return None
        self.run = replace(self.run, following=place)
        return orders.Follows(place) if self.open else None

    def end(self) -> orders.Run | None:
        """Take note that the one that ran has ended; give the one to run next."""
        self.open = False
        return self._waiting.popleft() if self._waiting else None

    def go_on(self, following: int, failures: int) -> str | None:
        """Make what is left of the one that ran the one to run, since its process has ended.

        :param following: the place of the first test that has not begun in it.
        :param failures: how many that process has had.
        :return: ``None``, or the reason for its end, where no test is left or too many failed.
        """
        run = self.run
        if run.first == run.last:
            return None  # it asks for the start, and that has not come to its end
        left = run.failures - (failures - self._failures) if run.failures else 0
        # stretches come in any order: a place outside of this one is what an earlier one said
        first = following if run.first <= following <= run.last else run.first
        if first >= run.last:
            return ""
        if run.failures and left <= 0:
            return "stopping after failures"
        self.run = replace(run, first=first, failures=left)
        return None
