"""The user's terminal, lent to a debugger on a far side: one at a time, byte by byte.

While it is lent, keys go there as they are pressed, Ctrl-C too, and nothing else is shown. Knows
workers by what is said to them; what a debugger is, it does not know.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import pytest

from pytest_remotegpu import terminal
from pytest_remotegpu.backends.base import Backend, Prices
from pytest_remotegpu.controller import Controller, Said, Worker
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events, orders

try:
    import termios
except ImportError:  # Windows has none, and no such terminal
    termios = None  # type: ignore[assignment]

__all__ = ["Desk", "screen", "why_nobody"]

TERMINAL: Final = "/dev/tty"
LEAVE: Final = b"\x1c"
"""Ctrl-\\ ends a program that does nothing else any more; here the session, whatever is there."""
INTERRUPT: Final = b"\x03"
PIECE: Final = 4096


def _has_terminal() -> bool:
    """Say whether this process has a terminal of its own that can be lent."""
    try:
        if termios is None:
            return False
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def why_nobody(backend: Backend | None, *, there: bool, distributed: bool) -> str:
    """Say why debuggers on a far side get no terminal, with the way out; nothing where they do.

    :param there: whether input and output of this process are one.
    :param distributed: whether this process is one of pytest-xdist.
    """
    if distributed:
        return (
            "processes of pytest-xdist have none; leave out -n, or run this test without --remote"
        )
    if isinstance(backend, Prices):
        return (
            f"{backend.name} rents machines, which are paid for while somebody thinks; run this "
            "test without --remote, or with --remote=ssh:HOST, --remote=local or --remote=local:cpu"
        )
    if not (there and _has_terminal()):
        return (
            "this session has none (its input or its output is a file, a pipe or a window of an "
            "editor); start it in a terminal, or run this test without --remote"
        )
    return ""


def screen() -> tuple[int, int]:
    """Give the rows and columns of this process's terminal, or usual ones."""
    try:
        fd = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return 24, 80
    try:
        columns, rows = os.get_terminal_size(fd)
    finally:
        os.close(fd)
    return rows, columns


class Desk:
    """Lends the terminal.

    :param offered: whether debuggers may have it.
    """

    def __init__(self, config: pytest.Config, *, offered: bool) -> None:
        self._config = config
        self._offered = offered
        self._worker: Worker | None = None
        self._aside: deque[Said] = deque()
        self._terminal: Terminal | None = None
        self._began = 0.0
        self._lent = 0.0
        self._asked = self._to_interrupt = False
        self._continued: Worker | None = None
        self._away = False

    @property
    def busy(self) -> bool:
        """Whether the terminal is lent."""
        return self._worker is not None

    def clock(self) -> float:
        """Give the seconds of a clock that stands still while it is lent."""
        now = self._began if self.busy else time.monotonic()
        return now - self._lent

    def next(self, controller: Controller, timeout: float) -> Said | None:
        """Give what is to be taken in next; what others say waits while the terminal is lent.

        :param timeout: seconds to wait for it. :return: ``None`` where nothing came.
        """
        self._pass_on_interrupt(controller)
        if self._aside and not self.busy:
            return self._aside.popleft()
        said = controller.next(timeout)
        while said is not None and self.busy and said.worker is not self._worker:
            self._aside.append(said)
            said = controller.next(0)
        return said

    # what debuggers say

    def takes(self, worker: Worker, event: Any) -> bool:
        """Take in what is for this, and say whether it is."""
        ours = isinstance(event, events.Attached | events.Screen | events.Detached)
        if ours:
            self.take(worker, event)
        return ours

    def take(self, worker: Worker, event: Any, name: str = "") -> None:
        """Take in what a worker says of its debugger.

        :param name: of the test; empty where it is at none.
        :raises ProtocolError: for a debugger that was offered no terminal.
        """
        if not self._offered:
            raise ProtocolError("a terminal is asked for that was not offered")
        match event:
            case events.Attached() if not self.busy:
                self._lend(worker, name)
            case events.Screen() if self._terminal is not None:
                self._terminal.show(event.data)
            case events.Detached() if self.busy:
                self._continued = worker
                self.close()

    def _lend(self, worker: Worker, name: str) -> None:
        self._asked = False
        what = f" {name}" if name else ""
        terminal.say(
            self._config, f"debugging{what} on {worker.name}; Ctrl-\\ ends the session at once"
        )
        self._worker, self._began = worker, time.monotonic()
        self._terminal = Terminal(worker)

    def gone(self, worker: Worker) -> None:
        """Take it back from a worker that has ended."""
        self.ended(worker)
        if worker is self._worker:
            self.close()

    def close(self) -> None:
        """Have the terminal as it was; the session may end now."""
        if self.busy:
            self._lent += time.monotonic() - self._began
            self._worker = None
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None

    # Ctrl-C while nothing is lent

    def ended(self, worker: Worker) -> None:
        """Take note that a worker's test is over, or the worker itself."""
        self._asked = False
        if worker is self._continued:
            self._continued = None

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Let Ctrl-C be meant for a test of this process in the block."""
        self._away = True
        try:
            yield
        finally:
            self._away = False

    def diverts(self) -> bool:
        """Say whether Ctrl-C is meant for a test there, whose debugger waits for it.

        That is so once for each answer: a second one ends the session. A signal's handler calls it,
        so it sends nothing itself.
        """
        listens = self._continued is not None or bool(getattr(self._config.option, "usepdb", False))
        if not self._offered or not listens or self._away or self.busy:
            return False
        if self._asked:
            return False
        self._asked = self._to_interrupt = True
        return True

    def _pass_on_interrupt(self, controller: Controller) -> None:
        if self._to_interrupt:
            self._to_interrupt = False
            terminal.say(
                self._config, "Ctrl-C goes to the test, for its debugger; again: ends the session"
            )
            chosen = [self._continued] if self._continued is not None else controller.living()
            for worker in chosen:
                worker.send(orders.Interrupt())


class Terminal:
    """This process's terminal, whose keys go to a worker until it is closed."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._fd = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._mode = termios.tcgetattr(self._fd)
        self._ends_line = True
        self._ears, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)
        self._before: Any = None
        self._pass_keys()
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGWINCH, lambda *_: self._ring(b"w"))
        self._send_size()
        self._thread = threading.Thread(target=self._listen, name="remotegpu-keys", daemon=True)
        self._thread.start()

    def _pass_keys(self) -> None:
        """Let each key come as it is; what is written looks as ever."""
        mode = termios.tcgetattr(self._fd)
        mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON | termios.ISTRIP)
        mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)

    def _ring(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._mouth, word)

    def _send_size(self) -> None:
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self._fd)
            self._worker.send(orders.Window(rows, columns))

    def _listen(self) -> None:
        """Send on what is typed; in a thread of its own."""
        for keys in self._keys():
            typed, leave, _ = keys.partition(LEAVE)
            if typed:
                self._worker.send(orders.Keys(typed))
            if leave:
                os.kill(os.getpid(), signal.SIGINT)
                return

    def _keys(self) -> Iterator[bytes]:
        """Give what is typed, until the terminal is closed or gone."""
        while True:
            ready, _, _ = select.select([self._fd, self._ears], [], [])
            words = os.read(self._ears, PIECE) if self._ears in ready else b""
            if b"." in words:
                return
            if words:
                self._send_size()
            if self._fd in ready:
                try:
                    keys = os.read(self._fd, PIECE)
                except OSError:
                    return
                if not keys:
                    return
                yield keys

    def _pass_rest(self) -> None:
        """Let no key be lost that was pressed at the last moment, when nobody listened any more."""
        if not select.select([self._fd], [], [], 0)[0]:
            return
        keys = os.read(self._fd, PIECE)
        if INTERRUPT in keys:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            self._worker.send(orders.Keys(keys))

    def show(self, data: bytes) -> None:
        """Write what a debugger shows."""
        self._ends_line = data.endswith(b"\n")
        view = memoryview(data)
        with contextlib.suppress(OSError):  # a terminal that is gone says so by a signal
            while view:
                view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        """Let it be as it was."""
        self._ring(b".")
        self._thread.join()
        if not self._ends_line:
            self.show(b"\n")
        if self._before is not None:
            signal.signal(signal.SIGWINCH, self._before)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._mode)
            self._pass_rest()
        for fd in (self._fd, self._ears, self._mouth):
            os.close(fd)
