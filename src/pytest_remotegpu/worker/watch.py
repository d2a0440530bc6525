"""Deadlines of one runner, and the last look at it before it is ended for having missed one.

Knows a process by its number and its files; what the test in it means, it does not know.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

from pytest_remotegpu.protocol import orders
from pytest_remotegpu.worker.process import DUMP, children
from pytest_remotegpu.worker.run import RunnerHandle

__all__ = ["Watch", "freeze", "offspring", "thaw"]

START: Final = 600.0
"""Seconds at the least for imports and collection, before the first test."""
EXIT_GRACE: Final = 5.0
"""Seconds that a finished runner has for its exit handlers."""
LOOK: Final = 1.0
"""Seconds in which the stacks must have come."""
LOOK_AT_RANKS: Final = 3.5
"""The same where a launcher has to gather those of ranks first."""
STOPPED: Final = 0.2
"""Seconds in which a process has stopped when it is told to."""


class Watch:
    """The deadline of what a runner does now.

    :param limits: seconds, by the order. :param phase: the first.
    :param ranks: whether the runner is a launcher of several.
    :ivar phase: ``start``, ``test``, ``idle``, ``end`` or ``exit``.
    :ivar place: the place of the test, in the phase ``test``.
    """

    def __init__(self, limits: orders.Limits, phase: str = "start", *, ranks: bool = False) -> None:
        self._limits = limits
        self._look = LOOK_AT_RANKS if ranks else LOOK
        self.phase = phase
        self.place = -1
        self._looking = False
        self._size = -1
        self._give_up_at = 0.0
        self._due: float | None = None
        self._rest: float | None = None
        self.enter(phase)

    @classmethod
    def of(cls, order: orders.Order, phase: str = "start") -> Watch:
        """Make the one for an order's runner."""
        return cls(order.limits, phase, ranks=order.launch is not None)

    def enter(self, phase: str, place: int = -1) -> None:
        """Begin to measure."""
        if phase == "test" and (self.phase, self.place) == (phase, place):
            return
        self.phase, self.place = phase, place
        seconds, self._rest = self._seconds(), None
        self._due = time.monotonic() + seconds if seconds else None

    def follow(self, runner: RunnerHandle, *, last: bool) -> None:
        """Measure what a runner does now.

        :param last: whether nothing is to follow what it was asked for.
        """
        if runner.over:
            self.enter("exit")
        elif runner.spoilt:
            self.enter("end")
        elif runner.current >= 0:
            self.enter("test", runner.current)
        elif self.phase == "test" or runner.rests:
            self.enter("end" if last else "idle")
        self._hold(held=runner.debugs)

    def _hold(self, *, held: bool) -> None:
        """Let no time pass from now on, or let it go on: nobody debugs against a clock."""
        now = time.monotonic()
        if held and self._due is not None:
            self._rest, self._due = self._due - now, None
        elif not held and self._rest is not None:
            self._due, self._rest = now + self._rest, None

    def _seconds(self) -> float:
        usual = self._limits.timeout
        match self.phase:
            case "start":
                return max(usual, START) if usual else 0.0
            case "test":
                return self._limits.tests.get(self.place, usual)
            case "end":
                return usual
            case "exit":
                return EXIT_GRACE
        return 0.0

    def patience(self) -> float | None:
        """Give the seconds until the next call of :meth:`is_due` is worth it."""
        if self._looking:
            return 0.02
        return None if self._due is None else max(self._due - time.monotonic(), 0.0)

    def is_due(self) -> bool:
        """Say whether the deadline has passed."""
        return self._due is not None and time.monotonic() >= self._due

    def text(self) -> str:
        """Say which limit it is that the runner has reached."""
        seconds = f"{self._seconds():g} s"
        own = self.place in self._limits.tests
        match self.phase:
            case "test":
                origin = f"gpu(timeout={self._seconds():g})" if own else "--remote-timeout"
                return f"timed out: the test took longer than {seconds} ({origin})"
            case "start":
                return f"timed out: imports and collection took longer than {seconds}"
        origin = " (--remote-timeout)" if self.phase == "end" else ""
        return f"timed out: the end of the far session took longer than {seconds}{origin}"

    def look(self, pid: int, stacks: int) -> None:
        """Ask the process, which has been stopped, for its stacks; it is ended when they are there.

        What it does after that counts no more: the signal may have ended the very call in which it
        was late.

        :param stacks: the file that it writes them to.
        """
        self._looking = True
        self._give_up_at = time.monotonic() + self._look
        os.ftruncate(stacks, 0)
        os.lseek(stacks, 0, os.SEEK_SET)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, DUMP)
            os.kill(pid, signal.SIGCONT)

    def has_looked(self, stacks: int) -> bool:
        """Say whether the stacks have come, or will not come any more."""
        if time.monotonic() >= self._give_up_at:
            return True
        size = os.fstat(stacks).st_size
        before, self._size = self._size, size
        return 0 < size == before


def freeze(pid: int) -> None:
    """Stop a process, so that what it has said up to now is all that it says."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOPPED
    while _state(pid) not in "TtZ" and time.monotonic() < deadline:
        time.sleep(0.002)


def thaw(pid: int) -> None:
    """Let it go on."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "Z"


def offspring(pid: int) -> str:
    """List what the process has started and what still runs, a line each; its ranks are itself."""
    lines = []
    own = _words(pid)
    for child in children(pid):
        with contextlib.suppress(OSError):
            words = _words(child)
            if words and not (words == own and os.getsid(child) == child):
                lines.append(f"  {child} {words.decode('utf-8', 'replace')[:200]}")
    return "\n".join(["processes that it had started:", *lines[:20]]) if lines else ""


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        return b""
