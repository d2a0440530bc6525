"""What the user sees of large artifacts while they come: a line that moves, or a few in a log.

Shows what it is told of; knows neither files nor workers beyond their names.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

import pytest
from msgspec import Struct

from pytest_remotegpu import terminal

__all__ = ["Incoming", "line"]

LARGE: Final = 8 * 2**20
"""Bytes from which on artifacts are worth a word before they are here."""
REDRAWN: Final = 0.1
"""Seconds between two strokes of the line that moves."""
FIRST: Final = 5.0
"""Seconds after which a log has its first line, where nothing moves."""
EACH: Final = 30.0
"""Seconds between two lines of a log."""
BAR: Final = 12
NARROW: Final = 15
"""Columns that a test's name has in any case."""


class _Transfer(Struct):
    """The artifacts of one test that come from one worker now."""

    nodeid: str
    began: float
    said: float
    done: int = 0
    total: int = 0


class Incoming:
    """Registered as a plugin, so that the line that moves makes way for all that others write.

    :param clock: gives seconds.
    """

    def __init__(self, config: pytest.Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._transfers: dict[str, _Transfer] = {}
        self._moves = _has_cursor(os.environ)
        self._quiet = config.get_verbosity() < 0
        self._drawn = float("-inf")
        self._shown = False

    def take(self, worker: str, nodeid: str, size: int, left: int) -> None:
        """Take note of bytes of a test's artifacts, and of how many are still to come."""
        now = self._clock()
        transfer = self._transfers.get(worker)
        if transfer is None or transfer.nodeid != nodeid:
            transfer = self._transfers[worker] = _Transfer(nodeid, now, now + FIRST - EACH)
        transfer.done += size
        transfer.total = transfer.done + left
        if not left:
            self.end(worker)
        elif transfer.total >= LARGE:
            self._tell(transfer, now)

    def end(self, worker: str) -> None:
        """Take note that nothing more comes from a worker now."""
        if self._transfers.pop(worker, None) is not None:
            self.hide()

    def _tell(self, transfer: _Transfer, now: float) -> None:
        if self._moves:
            if now - self._drawn >= REDRAWN:
                self._drawn = now
                self._draw(transfer, now)
        elif not self._quiet and now - transfer.said >= EACH:
            transfer.said = now
            terminal.say(self._config, self._words(transfer, now, 0))

    def _words(self, transfer: _Transfer, now: float, width: int) -> str:
        return line(transfer.nodeid, transfer.done, transfer.total, now - transfer.began, width)

    def _draw(self, transfer: _Transfer, now: float) -> None:
        """Write the line anew, without what a terminal's writer would remember of it."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return
        if not self._shown:
            terminal.begin_line(self._config)
            self._shown = True
        width = self._config.get_terminal_writer().fullwidth - 1
        words = f"remote: {self._words(transfer, now, width - len('remote: '))}"
        sys.stdout.write(f"\r{words[:width]}\x1b[K")
        sys.stdout.flush()

    # making way

    def hide(self) -> None:
        """Take the line off the screen."""
        if self._shown:
            self._shown = False
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Make way for a test's line."""
        self.hide()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self) -> None:
        """Make way for a test's outcome."""
        self.hide()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self) -> None:
        """Make way for an error of collection."""
        self.hide()

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Make way for the word on it."""
        self.hide()

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self) -> None:
        """Make way for its traceback."""
        self.hide()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> object:
        """Make way for the summary."""
        self.hide()
        return (yield)


def line(nodeid: str, done: int, total: int, seconds: float, width: int) -> str:
    """Say how far the artifacts of a test have come.

    :param seconds: since the first of them. :param width: columns, with a bar and a name that fits;
        0 for a log, which has neither.
    """
    unit, power = ("GiB", 30) if total >= 2**30 else ("MiB", 20)
    percent = done * 100 // total
    amount = f"{done / 2**power:.1f} of {total / 2**power:.1f} {unit} ({percent} %)"
    if seconds > 0:
        amount += f", {done / 2**20 / seconds:.1f} MiB/s"
    if not width:
        return f"artifacts of {nodeid}: {amount}"
    full = BAR * done // total
    tail = f" [{'#' * full}{'.' * (BAR - full)}] {amount}"
    room = max(width - len(tail) - len("artifacts of "), NARROW)
    name = nodeid if len(nodeid) <= room else f"...{nodeid[3 - room :]}"
    if len(name) + len(tail) + len("artifacts of ") > width:
        return f"artifacts{tail}"[:width]
    return f"artifacts of {name}{tail}"


def _has_cursor(environ: Mapping[str, str]) -> bool:
    """Say whether lines can be written over: by somebody who looks on, not in the log of a CI."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and environ.get("TERM", "") != "dumb"
        and not environ.get("CI")
    )
