"""The clock of a run's limit: it begins with the first worker that is asked for, and minds itself.

Building what workers run in is no part of the run, however long it takes. Ends workers, in threads
of its own, since a local test may take long; what becomes of their tests is none of its business.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from pytest_remotegpu.controller import Controller, Worker

__all__ = ["CUT", "LAST_LOOK", "RunLimit"]

LAST_LOOK: Final = 5.0
"""Seconds that a worker has, at the run limit, to say what its test did."""
CUT: Final = LAST_LOOK + 1.2
"""Seconds after a limit at which every worker is ended, whatever this process is at."""
SOON: Final = 0.1
"""Seconds between two looks whether the clock has to begin."""
NEVER: Final = float("inf")


class RunLimit:
    """Ends the workers of a controller at the limit.

    :param seconds: the limit; 0 for none. :param gone: how many of these are gone already.
    """

    def __init__(self, controller: Controller, seconds: float, gone: float = 0.0) -> None:
        self._controller = controller
        self._seconds = seconds
        self._gone = gone
        self._made = time.monotonic()
        self._closed = threading.Event()
        self._cut: list[Worker] = []
        if seconds:
            threading.Thread(target=self._mind, name="remotegpu-limit", daemon=True).start()

    @property
    def text(self) -> str:
        """Name the limit, as one that is reached."""
        return f"the run limit of {self._seconds:g} s (--remote-run-timeout) is reached"

    @property
    def deadline(self) -> float:
        """When it is reached, by the monotonic clock; infinite where that is not known yet."""
        if not self._seconds:
            return NEVER
        if self._gone >= self._seconds:
            return self._made
        began = self._controller.began()
        return NEVER if began is None else began + self._seconds - self._gone

    @property
    def late(self) -> list[str]:
        """The workers that had to be cut off, each with the limit that it was told of."""
        return [f"{worker.name} has not ended, although {worker.limit}" for worker in self._cut]

    def _mind(self) -> None:
        while (deadline := self.deadline) == NEVER:
            if self._closed.wait(SOON):
                return
        for after in (0.0, CUT):
            if self._closed.wait(max(deadline + after - time.monotonic(), 0.0)):
                return
            self.end(self.text, after)

    def end(self, limit: str, seconds: float) -> None:
        """Tell all workers to end; cut off, once, those that have not done so in time.

        :param limit: which is reached. :param seconds: since it was.
        """
        for worker in self._controller.living():
            worker.end_at(limit, LAST_LOOK)
        if seconds < CUT or self._cut:
            return
        self._cut += self._controller.living()
        for worker in self._cut:
            threading.Thread(target=worker.channel.stop, daemon=True).start()

    def close(self) -> None:
        """Let it be."""
        self._closed.set()
