"""What tests leave beside their reports: files, lines that ran, measurements; sent in time.

Knows when a test is over; each of these things is known elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pytest_remotegpu.protocol import orders
from pytest_remotegpu.worker import artifacts
from pytest_remotegpu.worker.covering import Covering
from pytest_remotegpu.worker.emit import Emitter
from pytest_remotegpu.worker.folders import Folders
from pytest_remotegpu.worker.measured import Measured

__all__ = ["Results"]


class Results:
    """Hands on what a test has left, after it, and the rest at the session's end.

    :param shown: waits until what was flushed is shown.
    :ivar measured: what pytest-benchmark has measured, for the reports.
    """

    def __init__(self, order: orders.Order, emitter: Emitter, shown: Callable[[], None]) -> None:
        self._order = order
        self._site = order.site
        self._emitter = emitter
        self._shown = shown
        self._covering = Covering(order.options.coverage, order.site.root, order.root)
        self._folders = Folders(order.options.folders, order.site.artifacts)
        self.measured: Measured

    def parsed(self, option: argparse.Namespace) -> None:
        """See what is asked of plugins, before any of it is undone."""
        self.measured = Measured(option)
        self._folders.redirect(option)

    def after(self, place: int) -> None:
        """Send what is there after a test."""
        if self._site.rank < 0:  # else the launcher sends those of all ranks
            base, limit = self._site.artifacts, self._order.max_artifact
            artifacts.send(base, place, limit, self._emitter, self._shown)
        self._send(last=False)

    def close(self) -> None:
        """Send what the session's end has left."""
        self._send(last=True)

    def _send(self, *, last: bool) -> None:
        for told in self._covering.news(last=last):
            self._emitter.put(told)
        for written in self._folders.news() if self._site.rank <= 0 else ():
            self._emitter.put(written)
