"""How long to wait before another container is asked for, after some that were lost in a row.

Values in, values out; knows no container and no clock.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST", "STEADY", "Losses"]

LONGEST: Final = 300.0
"""Seconds that are waited at the most."""
STEADY: Final = 60.0
"""Seconds of work after which a container that is lost begins a row of its own."""


class Losses:
    """Containers lost in a row: 1 second after the first, and after each further one twice as long.

    Those that were at work side by side and are lost together count as one.

    :ivar why: what became of the last one, in words.
    """

    def __init__(self) -> None:
        self._row = 0
        self._last = float("-inf")
        self.why = ""

    def ended(self, began: float, now: float, *, lost: bool, worked: float, why: str = "") -> None:
        """Take note that a call has ended.

        :param began: when it was made. :param lost: whether its container was.
        :param worked: seconds since that first spoke. :param why: what became of it, in words.
        """
        self.why = why or self.why
        if not lost:
            self._row = 0
        elif worked >= STEADY:
            self._row, self._last = 1, now
        elif began >= self._last:
            self._row, self._last = self._row + 1, now
        else:
            self._row = max(self._row, 1)

    @property
    def delay(self) -> float:
        """Seconds to wait before the next call."""
        if not self._row:
            return 0.0
        return min(LONGEST, 2.0 ** min(self._row - 1, 10))
