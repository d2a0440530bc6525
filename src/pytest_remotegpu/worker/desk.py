"""The pseudo-terminal of a runner: what a debugger shows goes out, what the user types comes in.

Its line discipline is that of any terminal: it edits lines, and makes signals of Ctrl-C. Knows a
selector and the wire; which debugger it is, and what that does, it does not know.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import selectors
import struct
import termios
import time
from collections.abc import Callable
from typing import Final

from pytest_remotegpu.protocol import events, orders

__all__ = ["Desk"]

LAST: Final = 1.0
"""Seconds in which the last that a debugger has shown has to come."""
PIECE: Final = 2**16
MOST_TYPED: Final = 2**20
"""Bytes that wait for a debugger that reads none of them."""
_SIZE: Final = struct.Struct("HHHH")


class Desk:
    """The pseudo-terminal of one runner after the other.

    :param selector: says when there is something to read.
    :param emit: takes events. :param before: reads what the runner says, which comes first.
    :ivar taken: whether a debugger has the user's terminal.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        emit: Callable[..., None],
        before: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._emit = emit
        self._before = before
        self._fds: tuple[int, ...] = ()
        self._typed = bytearray()
        self._come = b""
        self._all = self._left = False
        self.taken = False

    def set_up(self, options: orders.Options) -> str:
        """Make one for a new runner.

        :return: its path; empty where none is wanted, or this host has none to give.
        """
        self.close()
        if not options.terminal:
            return ""
        try:
            master, slave = os.openpty()
            self._fds = (master, slave)
            _settle(slave)
            self._resize(orders.Window(*options.screen))
            path = os.ttyname(slave)
        except (OSError, termios.error):
            self.close()
            return ""
        os.set_blocking(master, False)
        self._selector.register(master, selectors.EVENT_READ, self._turn)
        return path

    def follow(self, *, debugs: bool, place: int) -> None:
        """Take note of whether the runner's debugger has the terminal.

        :param place: of the test that runs; -1 for none.
        """
        if debugs and not self.taken and self._fds:
            self.taken, self._all = True, False
            self._emit(events.Attached(max(place, -1)))
            self._show()
        elif not debugs:
            self.leave()

    def take(self, message: orders.Keys | orders.Window) -> None:
        """Take in what the user does."""
        if isinstance(message, orders.Window):
            with contextlib.suppress(OSError):
                self._resize(message)
        elif len(self._typed) < MOST_TYPED:
            self._typed += message.data
            self._write()

    def _resize(self, window: orders.Window) -> None:
        if self._fds:
            rows, columns = (min(max(n, 0), 2**15) for n in (window.rows, window.columns))
            fcntl.ioctl(self._fds[0], termios.TIOCSWINSZ, _SIZE.pack(rows, columns, 0, 0))

    def _write(self) -> None:
        """Hand on what fits; a terminal in which nobody reads takes a line or two."""
        if not self._fds:
            self._typed.clear()
            return
        with contextlib.suppress(BlockingIOError, OSError):
            while self._typed:
                del self._typed[: os.write(self._fds[0], self._typed)]
        wanted = selectors.EVENT_WRITE if self._typed else 0
        self._selector.modify(self._fds[0], selectors.EVENT_READ | wanted, self._turn)

    def _turn(self) -> None:
        """Read first what was shown, then what the runner had said until then: whose it is."""
        if self._fds:
            self._read()
        self._left = False
        self._before()
        if not self._fds:
            return  # it was hung up, or the runner has ended meanwhile
        if self._typed:
            self._write()
        if self.taken:
            self._show()
        elif not self._left:  # else a later debugger's words may have come with those of the last
            self._come = b""

    def _read(self) -> None:
        try:
            self._come += os.read(self._fds[0], PIECE)
        except BlockingIOError:
            return
        except OSError:  # it was hung up
            self._drop()

    def _show(self) -> None:
        """Show what has come, up to the mark; what stands behind that is the next debugger's."""
        if self._all:
            return
        shown, mark, self._come = self._come.partition(events.SHOWN)
        self._all = bool(mark)
        if not mark:
            self._come = _beginning(shown)
            shown = shown[: len(shown) - len(self._come)]
        if shown:
            self._emit(events.Screen(shown))

    def leave(self) -> None:
        """Show the rest of what there is, and give the user's terminal back."""
        if not self.taken:
            return
        until = time.monotonic() + LAST
        while self._fds and not self._all and time.monotonic() < until:
            if select.select([self._fds[0]], [], [], LAST / 10)[0]:
                self._read()
            self._show()
        self.taken, self._left = False, True
        self._emit(events.Detached())

    def end(self) -> None:
        """Do so for a runner that has ended: it writes no mark."""
        while self._fds and self.taken and select.select([self._fds[0]], [], [], 0)[0]:
            self._read()
            self._show()
        self._all = True
        self.leave()
        self.close()

    def _drop(self) -> None:
        fds, self._fds = self._fds, ()
        for fd in fds:
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
            os.close(fd)

    def close(self) -> None:
        """Let it go, without a word."""
        self._drop()
        self._typed.clear()
        self._come, self._all, self.taken = b"", False, False


def _settle(slave: int) -> None:
    """Leave the ends of lines to the user's terminal; let nothing be stopped by a key."""
    mode = termios.tcgetattr(slave)
    mode[1] &= ~termios.OPOST
    mode[6][termios.VSUSP] = bytes([os.fpathconf(slave, "PC_VDISABLE")])
    termios.tcsetattr(slave, termios.TCSANOW, mode)


def _beginning(data: bytes) -> bytes:
    """Give the end of some bytes that may be the beginning of the mark."""
    mark = events.SHOWN
    lengths = range(min(len(mark) - 1, len(data)), 0, -1)
    return next((mark[:n] for n in lengths if data.endswith(mark[:n])), b"")
