"""How far a courier has come by what it has said, and how its end is told where a signal was that.

Values in, values out; knows no process.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["FIX", "Course"]

FIX: Final = "run again what has not run for it; one cause is want of memory on this host"


class Course:
    """What a courier is at.

    :ivar began: whether a container has greeted.
    """

    def __init__(self) -> None:
        self._at = "it signed in"
        self.began = False

    def hear(self, said: Mapping[str, Any]) -> None:
        """Take in what it says."""
        if "container" in said:
            self.began, self._at = True, f"container {said['container']} was at work"
        elif "asked" in said:
            self._at = "a container was started"
        elif said.get("builds"):
            self._at = "the image was built"
        elif "builds" in said or "ready" in said:
            self._at = "the app was made ready"

    def killed(self, number: int, process: int) -> str:
        """Say that a signal has ended it.

        :param number: of the signal. :param process: its id.

        >>> Course().killed(9, 77).partition("(")[2]
        'courier, process 77) was killed by SIGKILL while it signed in'
        """
        who = f"the process that talks to Modal (courier, process {process})"
        return f"{who} was killed by {_name(number)} while {self._at}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time ones have no names
        return f"signal {number}"
