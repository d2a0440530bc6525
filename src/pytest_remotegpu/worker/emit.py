"""From pytest's hooks to events: what a runner says to its supervisor, each thing once.

Knows the wire's events and pytest's reports, nothing of collection or of how runs are driven.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec
import pytest
from msgspec.structs import astuple, replace

from pytest_remotegpu.protocol import events, frames, packing
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker import moved
from pytest_remotegpu.worker.bare import Bare
from pytest_remotegpu.worker.fit import fit
from pytest_remotegpu.worker.measured import Measured
from pytest_remotegpu.worker.sections import PIECE, Sections, cut

__all__ = ["Emitter", "ReportSender"]

MOST_PENDING: Final = 1000
"""Events that are kept for one flush."""
MOST_BYTES: Final = frames.MAX_INBOUND - 2**16
"""Bytes of the events in one batch, whose frame must not be larger than the user's side takes."""
TRACEBACKS: Final = (
    pytest.PytestUnhandledThreadExceptionWarning,
    pytest.PytestUnraisableExceptionWarning,
)
"""Warnings of pytest's own that have a traceback in their text."""
BATCH: Final = msgspec.msgpack.Encoder()


class Emitter:
    """The runner's end of the socket to its supervisor.

    :ivar pid: the process that may speak.
    :ivar current, following, failures, spoilt, collecting, debugs, attempt: what each batch says,
        as ``events.Batch`` has it.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._pending: list[events.Event] = []
        self.current = -1
        self.following = 0
        self.failures = 0
        self.spoilt = False
        self.collecting = b""
        self.debugs = False
        self.attempt = 0

    def put(self, event: events.Event) -> None:
        """Keep an event for the next flush."""
        self._pending.append(event)
        if len(self._pending) >= MOST_PENDING:
            self.flush()

    def flush(self, fds: list[int] | None = None, *, waits: bool = False) -> None:
        """Send what is kept; a process that can't, or is a test's fork, ends here and now."""
        if os.getpid() != self.pid:
            os._exit(0)
        with self._lock:
            pending, self._pending = self._pending, []
            encoded = frames.encode_events(pending)
            if len(encoded) <= MOST_BYTES:
                self._send(pending, encoded, self.current, fds=fds, waits=waits)
                return
            *earlier, last = _parts(pending, encoded)
            for part, encoded in earlier:
                self._send(part, encoded, max(self.current, -1))
            self._send(*last, self.current, fds=fds, waits=waits)

    def _send(
        self,
        pending: list[events.Event],
        encoded: bytes,
        current: int,
        *,
        fds: list[int] | None = None,
        waits: bool = False,
    ) -> None:
        """Send events in one batch."""
        batch = events.Batch(
            len(pending),
            current,
            self.following,
            self.failures,
            any(isinstance(event, events.StretchEnded) for event in pending),
            msgspec.Raw(encoded),
            waits,
            self.spoilt,
            self.collecting,
            self.debugs,
            self.attempt,
        )
        data = frames.frame(BATCH.encode(batch))
        try:
            if fds:
                socket.send_fds(self._channel, [data[:1]], fds)
                data = data[1:]
                for fd in fds:
                    os.close(fd)
            self._channel.sendall(data)
        except OSError:
            # an exit function may close what it likes
            os._exit(0 if current == events.LEFT else 71)

    def over(self, *, failed: bool) -> None:
        """Say that the session has ended: in good order, or without having been able to begin."""
        self.current = events.FAILED if failed else events.OVER
        self.flush()

    def leave(self) -> NoReturn:
        """End the process, once nothing of its own is left to be run; say so before.

        What the kernel then takes away of a process that holds torch or a card takes a while.
        """
        self._pending.clear()
        self.current = events.LEFT
        with contextlib.suppress(BaseException):  # exit functions may have left anything behind
            self.flush()
        os._exit(0)


def _parts(
    pending: list[events.Event], encoded: bytes
) -> Iterator[tuple[list[events.Event], bytes]]:
    """Encode events, in several parts where they are too much for one frame."""
    if len(encoded) <= MOST_BYTES:
        yield pending, encoded
    elif len(pending) > 1:
        middle = len(pending) // 2
        for half in (pending[:middle], pending[middle:]):
            yield from _parts(half, frames.encode_events(half))
    else:
        short = [_shortened(pending[0])]
        yield short, frames.encode_events(short)


def _shortened(event: events.Event) -> events.Event:
    """Cut the texts of an event that is too large; a report's own are short enough."""
    texts = {
        name: cut(value, PIECE, f"more than {PIECE >> 20} MiB")
        for name, value in zip(event.__struct_fields__, astuple(event), strict=True)
        if isinstance(value, bytes) and len(value) > PIECE
    }
    return replace(event, **texts)


class ReportSender:
    """Turns one test's reports into events; a section that several reports repeat goes out once."""

    def __init__(
        self,
        emitter: Emitter,
        config: pytest.Config,
        paths: tuple[str, str] | None,
        measured: Measured | None = None,
    ) -> None:
        self._measured = measured
        self._emitter = emitter
        self._config = config
        self._paths = paths
        self._sections = Sections()
        self._keywords: list[str] | None = None
        self._warned = False
        self._anew = False
        self._bare = Bare(config)

    def begin(self) -> None:
        """Forget the test before."""
        self._sections = Sections()
        self._keywords = None
        self._emitter.attempt = 0
        self._anew = False

    def announced(self) -> None:
        """Note that pytest or a plugin has said that the test begins; what runs it again may."""
        self._emitter.attempt += 1
        self._anew = self._emitter.attempt > 1
        if self._anew:
            self._emitter.flush()

    def send(self, item: int, report: pytest.TestReport, *, settle: tuple[Any, ...] = ()) -> None:
        """Send a report and those of its sections that have not been sent yet.

        :param settle: outcome and error, where the test had sub-tests: pytest lets it fail for
            them once it is asked for the test's status, which only this side can answer, and which
            a plugin may have asked for by now.
        """
        found = self._measured.news(self._config) if self._measured is not None else []
        is_more = settle or self._anew or found
        bare = None if is_more else self._bare.event(item, report, self._keywords)
        if bare is not None:
            self._keywords = list(report.keywords)
            self._emitter.put(bare)
            return
        changed: list[str] = []
        settled = self._settled(report, *settle) if settle else None
        data = fit(self._config, report, changed)
        if not data:
            return
        sections = [self._section(item, name, text) for name, text in data.pop("sections")]
        longrepr = data["longrepr"]
        if self._paths and longrepr is not None:
            data["longrepr"] = longrepr = moved.longrepr(longrepr, *self._paths)
        if isinstance(longrepr, str) and not isinstance(report.longrepr, str):
            data = {packing.TEXT_ONLY: True, **data}
        if settled is not None:
            data = {packing.SETTLED: settled, **data}
        if found:
            data = {packing.MEASURED: found, **data}
        if self._anew:
            self._anew = False
            data = {packing.ANEW: True, **data}
        keywords = list(data["keywords"])
        packed = packing.pack_report(
            item, data, sections, keywords=keywords != self._keywords, changed=changed
        )
        self._keywords = keywords
        self._emitter.put(packed)
        if changed and not self._warned:
            self._warned = True
            named = ", ".join(changed[:5])
            text = f"not all on the report of {report.nodeid} travels as it is: {named}"
            self._emitter.put(events.Note(to_text(text)))

    def _settled(
        self, report: pytest.TestReport, outcome: Any, longrepr: Any
    ) -> tuple[str, str] | None:
        """Let a report be what it was; give what it becomes by the question for its status."""
        self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        if report.outcome == outcome:
            return None
        settled = str(report.outcome), str(report.longrepr)
        report.outcome, report.longrepr = outcome, longrepr
        return settled

    def _section(self, item: int, name: str, text: str) -> int:
        index, due = self._sections.add(item, name, text)
        for piece in due:
            self._emitter.put(piece)
            if len(due) > 1:
                self._emitter.flush()
        return index

    def warning(
        self, item: int, when: str, message: Any, location: tuple[str, int, str] | None
    ) -> None:
        """Send a warning as pytest recorded it, as data."""
        category, text = message.category, str(message.message)
        if self._paths and issubclass(category, TRACEBACKS):
            text = moved.text(text, *self._paths)
        path = str(message.filename)
        line = message.line if message.line is not None else linecache.getline(path, message.lineno)
        self._emitter.put(
            events.Warned(
                item,
                when,
                f"{category.__module__}.{category.__qualname__}",
                to_text(text),
                to_text(moved.path(path, self._paths)),
                int(message.lineno),
                to_text(line) if line else None,
                location and (to_text(location[0]), int(location[1]), to_text(str(location[2]))),
            )
        )
