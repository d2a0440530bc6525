"""Makes few large pieces of many small ones, since each costs a call to the service.

Values in, values out: the queue and the clock are arguments. Knows nothing of who sends what.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["ENOUGH", "LINGER", "gathered"]

LINGER: Final = 0.1
"""Seconds between two pieces that are not large; what comes meanwhile waits for the second."""
ENOUGH: Final = 2**19
"""Bytes of a piece that waits for nothing more."""


def gathered(
    take: Callable[[float], bytes | None], clock: Callable[[], float], silence: float
) -> Iterator[bytes]:
    """Yield all that comes, in order: at once after a pause, otherwise several together.

    :param take: gives what is next, waiting so many seconds for it; ``None`` at the end.
        ``queue.Empty`` where nothing comes.
    :param clock: gives seconds. :param silence: seconds without anything after which nothing is
        yielded, as a sign of life.
    """
    due = clock()
    over = False
    while not over:
        try:
            data = take(silence)
        except queue.Empty:
            yield b""
            continue
        if data is None:
            return
        parts, size = [data], len(data)
        while size < ENOUGH:
            try:
                more = take(max(due - clock(), 0.0))
            except queue.Empty:
                break
            if more is None:
                over = True
                break
            parts.append(more)
            size += len(more)
        due = clock() + LINGER
        yield b"".join(parts)
