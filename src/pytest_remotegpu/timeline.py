"""When what happened: the phases of a run, noted as they are seen, and written as a table.

Knows what workers say and the summary that keeps it; decides nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from pytest_remotegpu.controller import Lost, Notice, Said, Worker
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.summary import Phase, RunSummary

__all__ = ["HERE", "Timeline", "lines"]

HERE: Final = "here"
MOST_PARTS: Final = 50
"""Parts of a far start that are believed."""


class _Seen(Struct):
    """When a worker's tests began and ended, in seconds of the monotonic clock.

    :ivar hello: when it said hello, until its start is written down.
    :ivar needs: when it asked for files, until it has them.
    :ivar running: when the test began that runs now.
    :ivar last: the begin and the end of the last one that ended.
    """

    hello: float | None = None
    needs: float | None = None
    first: tuple[float, float] | None = None
    running: float | None = None
    last: tuple[float, float] | None = None


class Timeline:
    """Keeps the phases of a session in its summary.

    :param began: when the session did, by the monotonic clock.
    """

    def __init__(self, summary: RunSummary, began: float) -> None:
        self._summary = summary
        self._seen: dict[str, _Seen] = {}
        self.began = began

    def span(self, who: str, name: str, start: float, end: float) -> None:
        """Keep a phase that lay between two moments."""
        self._summary.phase(who, name, start - self.began, end - start)

    @contextlib.contextmanager
    def measured(self, who: str, name: str) -> Iterator[None]:
        """Keep the time that a block takes."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.span(who, name, start, time.monotonic())

    def take(self, said: Said) -> None:
        """Note what a worker said, by the moment at which it was read."""
        worker, at = said.worker, said.at
        match said.what:
            case Hello():
                self._of(worker.name).hello = at
            case Lost():
                self._arrive(worker, wait=False)
                self._end(worker, at)
            case Notice():
                pass
            case told:
                for event in told:
                    self._take_event(worker.name, at, event)
        self._arrive(worker)

    def _arrive(self, worker: Worker, *, wait: bool = True) -> None:
        """Write down what came before a worker's hello, apart where its machine was rented.

        What was there already took no time, and what was not built is left out.

        :param wait: whether to come back to it where the machine has not said yet when it began:
            that comes by another way.
        """
        seen, rental = self._of(worker.name), worker.rental
        at = seen.hello
        if at is None or (wait and rental is not None and rental.began is None):
            return
        seen.hello = None
        start = worker.started
        if rental is not None and rental.asked is not None:
            service = rental.asked if rental.builds is None else rental.builds
            self.span(worker.name, "service", start, service)
            if rental.builds is not None:
                self.span(worker.name, "image and app", rental.builds, rental.asked)
            start = min(rental.asked if rental.began is None else rental.began, at)
            self.span(worker.name, "container start", rental.asked, start)
        self.span(worker.name, "hello", start, at)

    def _take_event(self, who: str, at: float, event: events.Event) -> None:
        match event:
            case events.Started():
                self._of(who).running = at
            case events.Finished() | events.Crashed():
                self._take_finish(self._of(who), at)
            case events.Need():
                seen = self._of(who)
                seen.needs = at if seen.needs is None else seen.needs
            case events.Collected(seconds=seconds):
                self.span(who, "collection there", at - seconds, at)
            case events.Leased(seconds=seconds):
                self.span(who, "cards", at - seconds, at)
            case events.Phases(parts=parts):
                self._take_parts(who, at, parts[:MOST_PARTS])
            case _:
                pass

    def _of(self, who: str) -> _Seen:
        return self._seen.setdefault(who, _Seen())

    def _take_finish(self, seen: _Seen, at: float) -> None:
        if seen.running is not None:
            seen.last = (seen.running, at)
            seen.first = seen.first or seen.last
            seen.running = None

    def _take_parts(self, who: str, at: float, parts: list[tuple[str, float]]) -> None:
        """Lay the parts of a start end to end, the last of them up to now."""
        start = at - sum(seconds for _, seconds in parts)
        seen = self._of(who)
        if seen.needs is not None:
            self.span(who, "files", seen.needs, max(start, seen.needs))
            seen.needs = None
        for name, seconds in parts:
            self.span(who, name, start, start + seconds)
            start += seconds

    def _end(self, worker: Worker, at: float) -> None:
        """Write down a worker's tests once it is gone, and how long it took to go."""
        seen = self._seen.pop(worker.name, _Seen())
        if seen.first is None or seen.last is None:
            return
        self.span(worker.name, "first test", *seen.first)
        if seen.last != seen.first:
            self.span(worker.name, "last test", *seen.last)
        self.span(worker.name, "tests", seen.first[0], seen.last[1])
        self.span(worker.name, "end", seen.last[1], at)


def lines(phases: Iterable[Phase]) -> Iterator[str]:
    """Write the phases as a table, this side first, then each worker, in order of time."""
    ordered = sorted(phases, key=lambda phase: (phase.who != HERE, phase.who, phase.start))
    wide = max((len(phase.who) for phase in ordered), default=0)
    for phase in ordered:
        when = f"{phase.start:9.3f} s  {phase.seconds:8.3f} s"
        yield f"{phase.who:<{wide}}  {when}  {phase.name}"
