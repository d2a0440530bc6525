"""The building of images, as a session shows it: why, what it says, and how long it takes.

Knows no service and no clock of its own but where one is left out; what builds is any object.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from pytest_remotegpu.errors import UsageError

__all__ = ["EVERY", "VARIABLE", "Building", "interval"]

EVERY: Final = 30.0
"""Seconds without a word after which the user is told that it goes on."""
VARIABLE: Final = "REMOTEGPU_PROGRESS"
"""The variable with another number of seconds; 0 for never."""


def interval(variables: Mapping[str, str]) -> float:
    """Read how often a silent step is said to go on, in seconds; 0 for never.

    :raises UsageError: for what is no number of seconds.

    >>> interval({}), interval({"REMOTEGPU_PROGRESS": "2.5"})
    (30.0, 2.5)
    """
    given = variables.get(VARIABLE) or str(EVERY)
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(
            f"{VARIABLE}={given!r} is no number of seconds; give 10 to hear of a build that says "
            f"nothing every 10 s, 0 for never, or leave it out for {EVERY:g}"
        )
    return seconds


class Building:
    """Of all builds of one session. Safe from any thread.

    :param tell: is given each line for the user.
    :param every: seconds of silence after which a build is said to go on; 0 for never.
    :param quiet: whether only the reason is told, not how it comes along.
    """

    def __init__(self, tell: Callable[[str], None], *, every: float, quiet: bool) -> None:
        self._tell = tell
        self._every = 0.0 if quiet else every
        self._quiet = quiet
        self._told: set[str] = set()
        self._by: dict[Hashable, float] = {}
        self._last = 0.0
        self._lock = threading.Lock()

    def hear(self, by: Hashable, said: Mapping[str, Any]) -> None:
        """Take in what somebody says: ``builds`` is why, and empty once it is built."""
        if said.get("builds"):
            self.begin(by, said["builds"])
        elif "builds" in said:
            self.end(by)

    def begin(self, by: Hashable, why: str, now: float | None = None) -> None:
        """Take note that a build begins.

        :param by: who has it built. :param why: a line for the user, who gets each one once.
        :param now: by the monotonic clock.
        """
        with self._lock:
            self._last = self._by[by] = time.monotonic() if now is None else now
            if why not in self._told:
                self._told.add(why)
                self._tell(why)

    def end(self, by: Hashable) -> None:
        """Take note that one has nothing built any more."""
        with self._lock:
            self._by.pop(by, None)

    def line(self, text: str, now: float | None = None) -> None:
        """Pass on a line that somebody has printed."""
        with self._lock:
            self._last = time.monotonic() if now is None else now
            if not (self._quiet and self._by):
                self._tell(f"  {text}")

    def look(self, now: float) -> None:
        """Say how long it has taken, where it has been silent for a while."""
        with self._lock:
            if self._by and self._every and now - self._last >= self._every:
                self._last = now
                self._tell(f"builds the image ({now - min(self._by.values()):.0f} s)")
