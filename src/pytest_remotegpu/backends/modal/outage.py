"""Reads what a call gives, also where the service can't be reached for a while.

Knows the errors that it is given, neither the SDK nor what it reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

__all__ = ["Outage", "steady"]

PAUSE: Final = 1.0
"""Seconds between two tries."""
STEADY: Final = 20.0
"""Seconds for which a try has to last for the service to have been there meanwhile."""


class Outage:
    """How long the service has not been reached.

    :param limit: seconds for which that may last. :param say: is told once of each outage.
    """

    def __init__(
        self, limit: float, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._say, self._clock = limit, say, clock
        self._since: float | None = None
        self._tried = clock()

    def tries(self) -> None:
        """Take note that a try begins."""
        self._tried = self._clock()

    def over(self) -> None:
        """Take note that the service is there."""
        if self._since is not None:
            self._say("Modal's service is there again")
        self._since = None

    def bears(self, error: Exception) -> bool:
        """Take note of a failure; say whether there is time for another try."""
        now = self._clock()
        if now - self._tried > STEADY:
            self._since = None
        if self._since is None:
            self._since = now
            said = str(error).strip() or type(error).__name__
            self._say(f"Modal's service does not answer ({said}); tries for {self._limit:g} s")
        return now - self._since < self._limit


async def steady(
    read: Callable[[], AsyncGenerator[Any, None]],
    passes: Callable[[Exception], bool],
    outage: Outage,
    pause: float = PAUSE,
) -> AsyncGenerator[Any, None]:
    """Yield what is read; where that breaks off, read anew and leave out what was had.

    :param read: begins to read, each time from the first item on.
    :param passes: says whether an error may be gone in a moment.
    """
    had = 0
    while True:
        outage.tries()
        seen = 0
        try:
            async with contextlib.aclosing(read()) as items:
                async for item in items:
                    seen += 1
                    if seen > had:
                        had = seen
                        outage.over()
                        yield item
        except Exception as error:
            if not passes(error) or not outage.bears(error):
                raise
            await asyncio.sleep(pause)
        else:
            return
