"""Signals that ask a session to end: the first as Ctrl-C does, a second at once.

Knows the operating system only; must not know what runs, or who is to be told.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["Interrupts"]

ENDINGS: Final = ("SIGTERM", "SIGHUP")
"""Signals that end a process where nobody handles them; Windows lacks the second."""
MOST_DESCRIPTORS: Final = 256
"""Descriptors among which copies of a terminal's are looked for."""


class Interrupts:
    """Turns such signals into ``KeyboardInterrupt``, and holds them back while told to.

    A signal that somebody else handles or ignores is left alone. News is taken in, and replayed,
    while signals are held back, lest half a batch be lost.

    :param settling: seconds for which what follows the first signal is the same request: a terminal
        and the process that started this one may both hand it on.
    :ivar diverts: says of Ctrl-C whether somebody else takes it.
    :ivar began: when the first came, by the monotonic clock; ``None`` before.
    """

    def __init__(self, settling: float = 0.0) -> None:
        self.began: float | None = None
        self.diverts: Callable[[], bool] = lambda: False
        self._settling = settling
        self._depth = 0
        self._pending = ""
        self._before: dict[int, Any] = {}
        self._terminals: set[int] = set()
        self._left = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._terminals = {os.fstat(fd).st_rdev for fd in (1, 2) if _is_terminal(fd)}
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)
        for name in ENDINGS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, *_error: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)
        self._before.clear()

    def _handle(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT and self.diverts():
            return
        now = time.monotonic()
        if self.began is not None and now - self.began < self._settling:
            return
        self.began = self.began or now
        name = signal.Signals(number).name
        if name == "SIGHUP":
            # the terminal says it once, a shell that ends may say it again
            signal.signal(number, signal.SIG_IGN)
            self._leave_terminal()
        if self._depth and not self._pending:
            self._pending = name
        else:
            self._pending = ""
            _interrupt(name)

    def _leave_terminal(self) -> None:
        """Let what is written to a terminal that is gone go nowhere, rather than fail."""
        self._left = True
        for fd in range(1, MOST_DESCRIPTORS):
            with contextlib.suppress(OSError):
                if os.fstat(fd).st_rdev in self._terminals and not _is_terminal(fd):
                    _point_nowhere(fd)

    @contextlib.contextmanager
    def noticing(self) -> Iterator[None]:
        """Take a write that fails because the terminal is gone for the signal that says so.

        The kernel may refuse the write before the signal has come. While signals are held back,
        what follows the block goes on until they are not.
        """
        try:
            yield
        except OSError as error:
            if error.errno != errno.EIO or not self._is_terminal_gone():
                raise
            self.began = self.began or time.monotonic()
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            self._leave_terminal()
            self._pending = "SIGHUP" if self._depth else ""
            if not self._depth:
                raise KeyboardInterrupt("SIGHUP") from None

    def _is_terminal_gone(self) -> bool:
        """Say whether one of those that were there at first is no terminal any more."""
        if self._left:
            return True  # the signal came after the write was refused, and before this look
        for fd in (1, 2):
            with contextlib.suppress(OSError):
                if os.fstat(fd).st_rdev in self._terminals and not _is_terminal(fd):
                    return True
        return False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let a signal wait until the end of the block."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._pending and not self._depth:
            name, self._pending = self._pending, ""
            _interrupt(name)


def _interrupt(name: str) -> None:
    raise KeyboardInterrupt(*([] if name == "SIGINT" else [name]))


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def _point_nowhere(fd: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nowhere, fd, inheritable=os.get_inheritable(fd))
    finally:
        os.close(nowhere)
