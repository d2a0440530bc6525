"""The clock of a run's limit: it begins with the first worker that is asked for, and minds itself.

Building what workers run in is no part of the run, however long it takes. Knows workers by when
they were asked for; what becomes of tests is none of its business.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["RunLimit"]

SOON: Final = 0.1
"""Seconds between two looks whether the clock has to begin."""
NEVER: Final = float("inf")


class RunLimit:
    """Ends work at the limit in a thread of its own, since a local test may take long.

    :param seconds: the limit; 0 for none.
    :param began: says when the first worker was asked for; ``None`` before that.
    :param end: called at the limit. :param cut: called with whoever has not ended ``grace``
        seconds later.
    """

    def __init__(
        self,
        seconds: float,
        began: Callable[[], float | None],
        end: Callable[[], None],
        cut: Callable[[], None],
        grace: float,
    ) -> None:
        self._seconds = seconds
        self._began = began
        self._end, self._cut, self._grace = end, cut, grace
        self._closed = threading.Event()
        if seconds:
            threading.Thread(target=self._mind, name="remotegpu-limit", daemon=True).start()

    @property
    def deadline(self) -> float:
        """When it is reached, by the monotonic clock; infinite where that is not known yet."""
        began = self._began() if self._seconds else None
        return NEVER if began is None else began + self._seconds

    def _mind(self) -> None:
        while (deadline := self.deadline) == NEVER:
            if self._closed.wait(SOON):
                return
        for then, do in ((deadline, self._end), (deadline + self._grace, self._cut)):
            if self._closed.wait(max(then - time.monotonic(), 0.0)):
                return
            do()

    def close(self) -> None:
        """Let it be."""
        self._closed.set()
