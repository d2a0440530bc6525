"""The notice that a container gets before it is taken away: SIGINT, and half a minute.

Runs in a container's main process; knows nothing of what is done there.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Final, Self

__all__ = ["Notice"]

FAREWELL: Final = 3.0
"""Seconds to send a call's end, before SIGINT does what it does elsewhere."""


class Notice:
    """Hears it while a call is served, in place of the KeyboardInterrupt that would cut that off.

    :param farewell: seconds from the end of the call until it is raised after all.
    :ivar came: whether it has come.
    """

    def __init__(self, farewell: float = FAREWELL) -> None:
        self.came = False  # no event of threading's: a signal may come while that is locked
        self._farewell = farewell
        self._acts: list[Callable[[], None]] = []
        self._before: Any = None

    def then(self, act: Callable[[], None]) -> None:
        """Have something done once it comes, or now where it has come; in a thread."""
        self._acts.append(act)
        if self.came:
            threading.Thread(target=act, daemon=True).start()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # no other one is interrupted
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.came:
            last = threading.Timer(self._farewell, os.kill, (os.getpid(), signal.SIGINT))
            last.daemon = True
            last.start()

    def _hear(self, *_: object) -> None:
        if self.came:
            return
        self.came = True
        for act in self._acts:
            threading.Thread(target=act, daemon=True).start()
