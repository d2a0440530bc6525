"""How often a runner may end before it has begun a test or in one, and which file is to blame.

Values in, values out; knows no process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from pytest_remotegpu.protocol import events

__all__ = ["Restarts"]

IDLE_CRASHES: Final = 2
"""Runners in a row that may end without having begun a test."""
MOST_FILES: Final = 5
"""Files that may end runners until they are left out; then the project is taken for broken."""


class Restarts:
    """Counts the runners of one order that ended too early.

    :ivar barred: files that are not imported any more, with the reasons, by their ids.
    :ivar attempts: at tests that ended their processes, by the tests' places.
    """

    def __init__(self) -> None:
        self._idle = 0
        self.barred: dict[bytes, bytes] = {}
        self.attempts: dict[int, int] = {}

    def tried(self, crash: events.Crashed, attempt: int, most: Mapping[int, int]) -> events.Crashed:
        """Count attempts at a test that has ended its process; say whether there is another one.

        :param attempt: which one it was in that process.
        :param most: how often tests are run again, by their places.
        """
        place = crash.item
        self.attempts[place] = self.attempts.get(place, 0) + max(attempt, 1)
        return replace(crash, again=self.attempts[place] <= most.get(place, 0))

    def progressed(self) -> None:
        """Take note that a runner has begun a test."""
        self._idle = 0

    @property
    def exhausted(self) -> bool:
        """Whether no further runner may be started in vain."""
        return self._idle >= IDLE_CRASHES

    def blame(self, file: bytes, why: bytes, *, surely: bool) -> bool:
        """Count a runner that has ended without having begun a test; say whether to go on.

        :param file: the one that was imported meanwhile; empty for none.
        :param surely: whether a second try would end as the first.
        """
        self._idle = IDLE_CRASHES if surely else self._idle + 1
        if not self.exhausted:
            return True
        if not file or file in self.barred or len(self.barred) >= MOST_FILES:
            return False
        self.barred[file] = why
        self._idle = 0
        return True
