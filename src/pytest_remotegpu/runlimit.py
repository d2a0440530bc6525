"""The clock of a run's limit: it begins with the first worker that is asked for, and minds itself.

Building what workers run in is no part of the run, however long it takes. Ends workers, in threads
of its own, since a local test may take long; what becomes of their tests is none of its business.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from pytest_remotegpu.controller import Controller, Worker

__all__ = ["CUT", "LAST_LOOK", "RunLimit"]

LAST_LOOK: Final = 5.0
"""Seconds that a worker has, at the run limit, to say what its test did."""
CUT: Final = LAST_LOOK + 1.2
"""Seconds after a limit at which every worker is ended, whatever this process is at."""
SOON: Final = 0.1
"""Seconds between two looks whether the clock has to begin."""
LOOK: Final = 1.0
"""Seconds between two looks at what is left."""
NEVER: Final = float("inf")


class RunLimit:
    """Ends the workers of a controller at the limit.

    :param seconds: the limit; 0 for none. :param gone: says how many of these were gone before the
        first worker; a process in the place of a dead one learns that once it has collected.
    """

    def __init__(
        self, controller: Controller, seconds: float, gone: Callable[[], float] = float
    ) -> None:
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
        gone = self._gone()
        if gone >= self._seconds:
            return self._made
        began = self._controller.began()
        return NEVER if began is None else began + self._seconds - gone

    @property
    def late(self) -> list[str]:
        """The workers that had to be cut off, each with the limit that it was told of."""
        return [f"{worker.name} has not ended, although {worker.limit}" for worker in self._cut]

    def _mind(self) -> None:
        for after in (0.0, CUT):
            while (left := self.deadline + after - time.monotonic()) > 0:
                if self._closed.wait(SOON if left == NEVER else min(left, LOOK)):
                    return
            if self._closed.is_set():
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
