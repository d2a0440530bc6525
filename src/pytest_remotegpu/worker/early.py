"""Artifacts of a test that still runs: a lost host takes away only what it has just written.

Looks at files from outside, a piece at a time; knows no process, and no channel beyond ``emit``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker import artifacts

__all__ = ["Early"]

QUIET: Final = 2.0
"""Seconds for which a file must have lain still, and between two looks."""
DEAR: Final = 20
"""A look that takes long is followed by a pause so many times as long."""
LEAST: Final = 128
"""Bytes that a file counts for at the least."""
TIMES: Final = 3
"""Files that change again and again may cost so many times what a test may leave."""


class Early:
    """Sends files while their test runs.

    :param base: the folder of all tests' folders. :param limit: bytes that one test may leave.
    :param emit: sends an event. :param clock: gives seconds, as files' times have them.
    """

    def __init__(
        self,
        base: str,
        limit: int,
        emit: Callable[[events.Event], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._base, self._limit, self._emit, self._clock = base, limit, emit, clock
        self._next = float("inf")
        self._now: Iterator[events.Artifact] | None = None
        self._begin(-1)

    def _begin(self, place: int) -> None:
        self._place, self._spent = place, 0
        self._sent = artifacts.Sent(self._base, place)
        self._seen: dict[str, tuple[int, ...]] = {}
        self._due: list[tuple[int, str, Path]] = []
        self._now = None
        self._name = ""
        self._next = float("inf") if place < 0 else self._clock() + QUIET

    def patience(self) -> float | None:
        """Give the seconds until the next call of :meth:`turn` is worth it."""
        return None if self._next == float("inf") else max(self._next - self._clock(), 0.0)

    def turn(self, place: int) -> None:
        """Go on for the test of this place, which runs; -1 for none. At most one piece is sent."""
        if place != self._place:
            self._begin(place)
        elif self._clock() >= self._next:
            self._go_on()

    def settle(self) -> None:
        """Send nothing more for this test, which has ended; what was sent in part is nothing."""
        self._next = float("inf")
        if self._now is not None:
            self._now = None
            self._forget(self._name)

    def rest(self, place: int) -> Iterator[events.Event]:
        """Give what a test has left that came to its end without a word, and was not sent yet."""
        self.settle()
        return artifacts.collect(self._base, place, self._limit)

    def _go_on(self) -> None:
        if self._now is None and not self._due:
            began = self._clock()
            with contextlib.suppress(OSError):
                self._look(artifacts.folder(self._base, self._place))
            self._next = self._clock() + max(QUIET, DEAR * (self._clock() - began))
        if self._now is None and self._due:
            _, self._name, path = self._due.pop()
            self._now = self._pieces(self._name, path)
        if self._now is not None:
            self._next = 0.0
            self._send()

    def _send(self) -> None:
        """Send one piece of the file at hand."""
        assert self._now is not None
        try:
            piece = next(self._now, None)
        except OSError:
            self._forget(self._name)
            piece = None
        if piece is not None:
            self._emit(piece)
        if piece is None or piece.last:
            self._now = None

    def _look(self, top: Path) -> None:
        """Find what is gone, and what is to be sent."""
        looked = artifacts.look(top) if top.is_dir() else ()
        found = {path.relative_to(top).as_posix(): (path, about) for path, about in looked}
        for name in [name for name in self._sent.known if name not in found]:
            self._forget(name)
        until = self._clock() - QUIET
        due = [
            (about.st_size, name, path)
            for name, (path, about) in found.items()
            if about.st_mtime <= until and self._seen.get(name) != _state(about)
        ]
        self._due = sorted(due, reverse=True)

    def _forget(self, name: str) -> None:
        self._seen.pop(name, None)
        with contextlib.suppress(OSError):
            self._sent.note(name, 0, "")
        self._emit(events.Dropped(self._place, to_text(name)))

    def _fits(self, name: str, size: int) -> bool:
        others = sum(size for other, (size, _) in self._sent.known.items() if other != name)
        cost = self._spent + max(size, LEAST)
        return others + size <= self._limit and cost <= TIMES * self._limit

    def _pieces(self, name: str, path: Path) -> Iterator[events.Artifact]:
        """Read a file; before its last piece goes out, note what was sent, be it torn or not."""
        # what a test may put in its place meanwhile must not have us wait, nor lead elsewhere
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:  # noqa: PTH123 -- a descriptor
            about = os.fstat(fd)
            self._seen[name] = _state(about)
            if not stat.S_ISREG(about.st_mode) or not self._fits(name, about.st_size):
                return
            self._spent += max(about.st_size, LEAST)
            digest: Any = hashlib.sha256()
            size = 0
            for piece in artifacts.pieces(self._place, name, file, about.st_size, digest=digest):
                size += len(piece.data)
                if piece.last:
                    self._sent.note(name, size, digest.hexdigest())
                yield piece


def _state(about: os.stat_result) -> tuple[int, ...]:
    return (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
