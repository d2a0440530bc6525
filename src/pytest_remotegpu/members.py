"""A lane that shares the tests of its shape with others: it runs what it is handed, piece by piece.

What it can't run it gives back. Knows its own tests and worker; who gets what is none of its
business.
"""

from __future__ import annotations

import threading
from typing import Any

from pytest_remotegpu.advice import Refusal
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.lanes import Lane
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.reports import Shipped
from pytest_remotegpu.stretch import Following, Stretch, fail_all

__all__ = ["Member"]


class Member(Lane):
    """One of several lanes of a shape; see :class:`Lane`, whose ``tests`` are its share for now.

    :param everything: the tests of all of them.
    :ivar given_back: tests that it was handed and that others may run as well.
    :ivar alone: tests during which its worker was lost: each is to be run by itself.
    :ivar ready: whether its worker has collected, and takes tests.
    :ivar served: whether one ever did.
    :ivar retired: why it takes no more tests, where that is so; ``excuse``, why no worker could;
        ``verdict``, what becomes of tests that nobody else takes.
    """

    def __init__(self, everything: list[Shipped], **lane: Any) -> None:
        super().__init__(tests=[], **lane)
        self._everything = everything
        self._places: dict[int, int] = {}
        self._absent: dict[int, tuple[Shipped, events.NotFound | events.SkippedThere]] = {}
        self._taken_back = self._splits = False
        self._told = -1
        self._doomed: list[Shipped] = []
        self._collected = False
        self.given_back: list[Shipped] = []
        self.alone: list[Shipped] = []
        self.served = False
        self.retired = ""
        self.verdict = "infra"
        self.excuse: Refusal | None = None

    @property
    def ready(self) -> bool:
        """Whether its worker has collected, and may be sent tests."""
        there = self.worker is not None and not self.worker.notice
        return self._collected and there and not self._closing

    # what the pool asks for

    def begin(self) -> None:
        """Start a worker, which collects and then waits to be handed tests."""
        self.busy = True
        self.reason = ""
        self._closing = self._stopped = self._collected = False
        self._taken_back = self._splits = False
        self._absent.clear()
        self._runs.clear()
        self._runs.append(Stretch([]))
        self._open([], self._runs[0])
        self._places = {id(test): place for place, test in enumerate(self._handed)}

    def _offered(self) -> list[Shipped]:
        return self._everything

    def _run_of(self, left: list[Shipped], stretch: Stretch) -> orders.Run:
        if not left:
            return orders.Run(0, 0)
        first, last = self._places[id(left[0])], self._places[id(left[-1])]
        self._told = self._place_of(stretch.following)
        return orders.Run(first, last + 1, stretch.failures, self._told)

    def _place_of(self, following: Following) -> int:
        if isinstance(following, str):
            return len(self._handed)
        return -1 if following is None else self._places.get(id(following), -1)

    def assign(self, tests: list[Shipped], failures: int, following: Following) -> None:
        """Hand it neighbouring tests, to be run after all that it has already."""
        self.tests = [test for test in self.tests if not test.done] + tests
        for test in tests:
            _, event = self._absent.get(id(test), (test, None))
            if event is not None:
                super()._take_event(event)
        left = [test for test in tests if not test.done]
        if not left or self.worker is None:
            return
        self.busy = True
        stretch = Stretch(left, failures, following)
        self._runs.append(stretch)
        self.worker.send(self._run_of(left, stretch))

    def tell(self, following: Following) -> None:
        """Let its worker know whether anything comes after what it was handed, if that is news."""
        place, nothing = self._place_of(following), len(self._handed)
        if not self._runs or self.worker is None or (place == nothing) == (self._told == nothing):
            return
        self._told = place
        self.worker.send(orders.Follows(place))

    def take_back(self, *, splits: bool) -> None:
        """Have its worker give back what it has not begun.

        :param splits: whether the rest of what it is in the midst of is meant, too.
        """
        if self.worker is None or not self._runs or (self._taken_back and self._splits >= splits):
            return
        self._taken_back, self._splits = True, self._splits or splits
        self.worker.send(orders.Withdraw(splits))

    @property
    def takes(self) -> bool:
        """Whether it may be handed more: not while it is asked to give back."""
        return self.ready and not self._taken_back

    @property
    def is_coming(self) -> bool:
        """Whether its worker is on its way, and has nothing to do yet."""
        return self.worker is not None and not self._collected and not (self.owes or self.alone)

    @property
    def owes(self) -> bool:
        """Whether it has tests."""
        return any(stretch.tests for stretch in self._runs)

    def dismiss(self) -> None:
        """Do without a worker that has not come to its first test, and may never."""
        if self.worker is None or self._collected or self.owes:
            return
        threading.Thread(target=self.worker.channel.stop, daemon=True).start()
        self.worker = None
        self._clear()

    def give(self) -> list[Shipped]:
        """Let go of what it has given back; give that."""
        given, self.given_back = self.given_back, []
        return [test for test in given if not test.done]

    # what the worker says

    def _has(self, stretch: Stretch, test: Shipped) -> bool:
        if not stretch.tests:
            return False
        first, last = (self._places[id(end)] for end in (stretch.tests[0], stretch.tests[-1]))
        return first <= self._places[id(test)] <= last

    def open_test(self, place: int) -> Shipped:
        """Find a test that has begun here and has no verdict yet; see :meth:`Lane.open_test`."""
        test = super().open_test(place)
        if not self._is_current(test):
            raise ProtocolError(f"news of {test.item.nodeid!r}, which another worker runs")
        return test

    def _is_current(self, test: Shipped) -> bool:
        return test.worker == (self.worker.name if self.worker else "") and test.started

    def _take_event(self, event: Any) -> None:
        match event:
            case _ if self.retired:
                pass  # it is being ended, and what it had is others' now
            case events.Withdrawn():
                self._take_withdrawal(event)
            case events.NotFound() | events.SkippedThere():
                self._take_absence(event)
            case _:
                super()._take_event(event)

    def _take_absence(self, event: events.NotFound | events.SkippedThere) -> None:
        """Settle a test of its own; keep what is said of another, in case it is handed that one."""
        test = self.test(event.item)
        if any(self._has(stretch, test) for stretch in self._runs):
            if not test.done:
                super()._take_event(event)
        else:
            # it has to be text, now and not when it is needed
            if isinstance(event, events.NotFound):
                from_text(event.text)
            else:
                from_text(event.path)
                from_text(event.reason)
            self._absent[id(test)] = (test, event)

    def _take_start(self, test: Shipped, event: events.Started) -> None:
        asked = self._stopped or (bool(self._runs) and self._has(self._runs[0], test))
        if not asked:
            raise ProtocolError(f"{test.item.nodeid!r} begins, which was not asked for")
        super()._take_start(test, event)

    def _take_withdrawal(self, event: events.Withdrawn) -> None:
        for stretch in list(self._runs)[1:]:
            if self._places[id(stretch.tests[0])] == event.first and self._taken_back:
                self._runs.remove(stretch)
                self._release(stretch.tests)
                self._told = -1
                self._look_again()
                return
        raise ProtocolError(f"a stretch from {event.first} is given back that does not wait")

    def _release(self, tests: list[Shipped]) -> None:
        """Give back those of its tests that have not begun."""
        left = [test for test in tests if not test.done and not test.started]
        self.given_back += left
        gone = {id(test) for test in left}
        self.tests = [test for test in self.tests if id(test) not in gone]

    def _look_again(self) -> None:
        """Be asked again, once what it was asked for has come."""
        if not self._splits and len(self._runs) <= 1:
            self._taken_back = False

    def _take_stretch_end(self, event: events.StretchEnded) -> None:
        reason = from_text(event.reason)
        stretch = self._ended_stretch()
        if stretch is None:
            return
        self._collected = self.served = True
        self.reason = self.reason or reason
        if reason or self._splits:
            self._release(stretch.tests)
        for test in [test for test in stretch.tests if self._owes(test)]:
            self._without_run(test, "the far side ended its stretch without having run this test")
        self._after_run()

    def _owes(self, test: Shipped) -> bool:
        return not test.done and any(test is mine for mine in self.tests)

    def _after_run(self) -> None:
        self.busy = bool(self._runs)
        if not self.busy:
            self._taken_back = self._splits = False
        self._look_again()

    # ends of workers

    def _vacate(self) -> None:
        """Give back what has not begun; see :meth:`Lane._vacate`."""
        self.take_back(splits=True)
        self._serving().send(orders.Finish())

    def _goes_on_elsewhere(self, _reason: str) -> bool:
        """What a stretch leaves is given back anyway."""
        return False

    def lose(
        self, reason: str, *, retry: bool, preempted: bool = False, greeted: bool = False
    ) -> None:
        """Handle the loss of a worker; see :meth:`Lane.lose`: others may go on with its tests."""
        self._doomed = [] if retry else self._running()
        super().lose(reason, retry=retry, preempted=preempted, greeted=greeted)

    def _retry(self, suspects: list[Shipped]) -> None:
        self.alone += suspects
        self._release([test for test in self.tests if test not in suspects])
        self._clear()

    def _clear(self) -> None:
        self.tests = []
        self._runs.clear()
        self.busy = self._collected = self._taken_back = self._splits = False

    def give_up(self, cause: str, verdict: str = "infra") -> None:
        """Take no more tests; give back those that have not begun, unless a limit is reached."""
        if self._limit:
            super().give_up(cause, verdict)
            return
        doomed = [*self._doomed, *(test for test in self._running() if test not in self._doomed)]
        self._release([test for test in self.tests if test not in doomed])
        self.given_back += self.alone
        self.alone = []
        if left := [test for test in doomed if not test.done]:
            for test in fail_all(left, cause, verdict, self._summary):
                self._ready(test)
        self.retired, self.verdict = cause, verdict
        self._clear()
        self._closing = self._stopped = True
        if self.worker is not None:
            self.worker.send(orders.Stop(0.0))
