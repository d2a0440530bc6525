"""One lane for each shape: its tests, the worker that serves them, what becomes of a worker's end.

Knows pytest reports only through ``reports``; calls no hook. The session drives it and replays
what it gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from pytest_remotegpu import losses
from pytest_remotegpu.advice import Refusal, way_out
from pytest_remotegpu.controller import Controller, Lost, Notice, Worker
from pytest_remotegpu.errors import FarSideError, ProtocolError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.hello import Hello, differences
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.reports import Shipped
from pytest_remotegpu.stretch import Following, Stretch, fail_all, next_test
from pytest_remotegpu.summary import RunSummary

__all__ = ["Lane"]


class Lane:
    """Serves the tests of one shape, one worker at a time.

    :ivar ending: how a test there has ended the session, if one has.
    :ivar refusal: why the far side can't serve this session at all, once that is known.
    :param make_order: builds an order for a worker, these tests and their first stretch.
    :param on_ready: called with each test that has its verdict.
    """

    def __init__(
        self,
        shape: Shape,
        tests: list[Shipped],
        *,
        controller: Controller,
        summary: RunSummary,
        make_order: Callable[[Worker, list[Shipped], orders.Run], orders.Order],
        on_ready: Callable[[Shipped], None],
        required: bool = False,
    ) -> None:
        self.shape = shape
        self.tests = tests
        self._controller = controller
        self._summary = summary
        self._make_order = make_order
        self._on_ready = on_ready
        self._handed: list[Shipped] = []
        self._runs: deque[Stretch] = deque()
        self._losses = losses.Losses()
        self._required = required
        self._stopped = False
        self._limit = ""
        self._spent = 0
        self._gpu = ""
        self._cards: list[str] = []
        self._properties: tuple[tuple[str, object], ...] | None = None
        self.worker: Worker | None = None
        self.busy = False
        self.reason = ""
        self.ending: events.Exited | None = None
        self.refusal: Refusal | None = None
        self._closing = False

    @property
    def members(self) -> list[Lane]:
        """The lanes that each serve one worker: this one."""
        return [self]

    @property
    def in_use(self) -> int:
        """How many GPUs its tests have now."""
        return self.shape.count if self.busy else 0

    # what the session asks for

    def start(
        self,
        tests: list[Shipped],
        failures: int,
        *,
        last: bool,
        following: Following = None,
    ) -> None:
        """Run neighbouring tests of this lane, stopping after so many failures (0: never).

        :param last: whether no further call follows.
        :param following: which test will run next, where that is not the neighbour.
        """
        self.busy = True
        self.reason = ""
        self._closing = last
        self._runs.append(Stretch(tests, failures, following))
        self._spent = 0
        self._next_run()

    def _next_run(self) -> None:
        """Hand the next stretch to the worker, or start one."""
        stretch = self._runs[0]
        left = [test for test in stretch.tests if not test.done]
        if not left:
            self._runs.popleft()
            self._after_run()
        elif self.worker is None:
            self._open(left, stretch)
        elif not self.worker.notice:  # else it is about to end, and another one goes on
            self.worker.send(self._run_of(left, stretch), *self._farewell())

    def _run_of(self, left: list[Shipped], stretch: Stretch) -> orders.Run:
        first = self._handed.index(left[0])
        following = -1
        if isinstance(stretch.following, str):
            following = len(self._handed)
        elif stretch.following in self._handed:
            following = self._handed.index(stretch.following)
        failures = stretch.failures and max(stretch.failures - self._spent, 1)
        return orders.Run(first, first + len(left), failures, following)

    def _farewell(self) -> list[orders.Finish]:
        return [orders.Finish()] if self._closing and len(self._runs) == 1 else []

    def _offered(self) -> list[Shipped]:
        """Give the tests that a worker may be asked for."""
        return self.tests

    def _open(self, left: list[Shipped], stretch: Stretch) -> None:
        self._handed = [test for test in self._offered() if not test.done]
        self.lease([])
        run = self._run_of(left, stretch)
        try:
            self.worker = self._controller.open(
                self.shape,
                lambda worker: self._make_order(worker, self._handed, run),
                *self._farewell(),
            )
        except FarSideError as error:
            self.give_up(str(error), error.verdict)
            return
        self._summary.of(self.shape).workers += 1

    def _after_run(self) -> None:
        if self._runs and not self.reason:
            self._next_run()
            return
        self._runs.clear()
        self.busy = False

    def finish(self) -> None:
        """Tell the worker that nothing follows."""
        if self.worker is not None and not self._closing:
            self.worker.send(orders.Finish())
        self._closing = True

    def stop(self, grace: float) -> None:
        """Tell the worker to end now."""
        self._stopped = True
        self._closing = True
        self._runs.clear()
        self.busy = False
        if self.worker is not None:
            self.worker.send(orders.Stop(grace))

    def expire(self, limit: str, grace: float) -> None:
        """Run nothing more, since a limit of the run is reached.

        A test that runs is ended, and its worker has ``grace`` seconds to say what it did; all
        others become errors.

        :param limit: which one, in words.
        """
        if self.worker is not None:
            self.worker.end_at(limit, grace)
        self._limit = limit
        self._stopped = True
        self._closing = True
        if self.worker is None or not self.busy:
            self.end_at_limit()

    def end_at_limit(self) -> None:
        """Wait no longer for a worker that was told of the limit."""
        for test in self._running():
            self._without_run(test, f"{self._limit}, and its worker did not say what it did")
        if not all(test.done for test in self.tests):
            self.give_up(self._limit, "budget")
        self._runs.clear()
        self.busy = False

    # what the worker says

    def take(self, what: Hello | list[events.Event] | Notice | Lost) -> None:
        """Take in what this lane's worker said, or what was said of it.

        :raises ProtocolError: for events that can't be true; the caller then gives the worker up.
        """
        if isinstance(what, Hello):
            self._take_hello(what)
        elif isinstance(what, Lost):
            self._take_end(what)
        elif isinstance(what, Notice):
            self._vacate()
        else:
            for event in what:
                self._take_event(event)

    def _take_hello(self, hello: Hello) -> None:
        wrong = differences(self._controller.hello, hello)
        if self._required and hello.pretend is not None:
            wrong.append(
                f"--gpu-required: its {hello.pretend} GPUs are pretend ones "
                "(PYTEST_REMOTEGPU_PRETEND_GPUS is set there)"
            )
        if wrong:
            self.refusal = Refusal("\n".join(wrong))
            self.give_up(self.refusal.text)
            return
        self._summary.real = self._summary.real or (bool(hello.gpus) and hello.pretend is None)

    def test(self, place: int) -> Shipped:
        """Find a test by its place in the order.

        :raises ProtocolError: where the order holds no such place.
        """
        if place >= len(self._handed):
            raise ProtocolError(
                f"test {place} was not handed out; the order has {len(self._handed)}"
            )
        return self._handed[place]

    def open_test(self, place: int) -> Shipped:
        """Find a test that has begun and has no verdict yet.

        :raises ProtocolError: where the test of that place is not one.
        """
        test = self.test(place)
        if test.done:
            raise ProtocolError(f"news of {test.item.nodeid!r}, which has its verdict")
        if not test.started:
            raise ProtocolError(f"news of {test.item.nodeid!r}, which has not begun")
        return test

    def _take_event(self, event: Any) -> None:
        """Hand an event to the method for its kind; those of running tests come first."""
        kind = type(event)
        if kind in OF_RUNNING_TESTS:
            getattr(self, OF_RUNNING_TESTS[kind])(self.open_test(event.item), event)
        elif kind in OF_TESTS:
            getattr(self, OF_TESTS[kind])(self.test(event.item), event)
        elif kind in OF_LANES:
            getattr(self, OF_LANES[kind])(event)
        else:
            raise ProtocolError(f"{kind.__name__} is out of place")

    def _take_report(self, test: Shipped, event: events.Report) -> None:
        test.report(event)

    def _take_section(self, test: Shipped, event: events.Section) -> None:
        test.section(event)

    def _take_start(self, test: Shipped, _event: events.Started) -> None:
        if test.started or test.done:
            raise ProtocolError(f"{test.item.nodeid!r} begins a second time")
        worker = self._serving()
        if self._properties is None:
            self._gpu = worker.offer(self._cards)
            self._properties = (
                ("remotegpu_backend", self._controller.backend.name),
                ("remotegpu_gpu", self._gpu),
                ("remotegpu_worker", worker.name),
            )
        test.start(worker.name, self._gpu, self._properties)

    def lease(self, cards: list[str]) -> None:
        """Take note of the cards of the tests that follow, each in words."""
        self._cards = cards
        self._properties = None

    def _serving(self) -> Worker:
        if self.worker is None:
            raise ProtocolError("events came without a worker to say them")
        return self.worker

    def _running(self) -> list[Shipped]:
        return [test for test in self.tests if test.started and not test.done]

    def _take_memory(self, test: Shipped, event: events.Memory) -> None:
        test.measure(event)
        self._summary.used(self.shape, test.item.nodeid, event.allocated, event.leaked)

    def _take_finish(self, test: Shipped, _event: events.Finished) -> None:
        if not test.complete() and self.ending is None:
            phases = ", ".join(str(report.when) for report in test.reports) or "none"
            test.reports.clear()
            test.fail(
                f"the far side ended this test without a report of each phase; it sent: {phases}"
            )
        self._ready(test)

    def _take_crash(self, test: Shipped, event: events.Crashed) -> None:
        said = losses.crash(event, [self.test(place).item.nodeid for place in event.before])
        if event.again:
            test.fail_once(*said)
        else:
            test.fail(*said)
            self._ready(test)

    def _ready(self, test: Shipped) -> None:
        test.done = True
        self._losses.progress(test)
        self._spent += sum(report.failed for report in test.reports)
        self._on_ready(test)

    def _without_run(self, test: Shipped, text: str) -> None:
        if not test.done:
            test.fail(text)
            self._ready(test)

    def _take_not_found(self, test: Shipped, event: events.NotFound) -> None:
        self._without_run(test, from_text(event.text))

    def _take_skip(self, test: Shipped, event: events.SkippedThere) -> None:
        reason = (from_text(event.path), event.lineno, from_text(event.reason))
        if test.started or test.done:
            raise ProtocolError(
                f"{test.item.nodeid!r} can't be skipped as a file once it has begun"
            )
        test.add("setup", "skipped", reason)
        test.add("teardown", "passed", None)
        self._ready(test)

    def _take_exit(self, event: events.Exited) -> None:
        for text in (event.text, event.where[0] if event.where else b""):
            from_text(text)  # it has to be text, now and not at the end
        # where no test asked for it, its tests have not run: that is not green
        self.ending = event if self._running() else replace(event, status=event.status or 1)

    def _ended_stretch(self) -> Stretch | None:
        """Give the stretch that ends; ``None`` where that no longer matters.

        :raises ProtocolError: where none was asked for.
        """
        if not self._runs and not self._stopped:
            raise ProtocolError("a stretch ends that was not asked for")
        return None if self._stopped else self._runs.popleft()

    def _take_stretch_end(self, event: events.StretchEnded) -> None:
        reason = from_text(event.reason)
        if self._goes_on_elsewhere(reason):
            return
        stretch = self._ended_stretch()
        if stretch is None:
            return
        self.reason = reason
        for test in () if reason else stretch.tests:
            self._without_run(test, "the far side ended its stretch without having run this test")
        self._after_run()

    def _take_start_failure(self, event: events.StartFailed) -> None:
        if not self.busy or self.ending is not None:
            return
        text = (
            from_text(event.text).strip() or "the far session could not start and did not say why"
        )
        if event.usage:
            self.refusal = Refusal(text, loading=True)
        self.give_up(text)

    # ends of workers

    def _vacate(self) -> None:
        """Let a worker end after the test that runs, since its machine is taken away."""
        self._serving().send(orders.Withdraw(running=True), orders.Finish())

    def _goes_on_elsewhere(self, reason: str) -> bool:
        """Say whether a stretch ends early, with no reason of its own, since its worker has to."""
        left = any(not test.done for stretch in self._runs for test in stretch.tests)
        return left and not reason and bool(self._serving().notice)

    def _take_end(self, lost: Lost) -> None:
        """A stream has ended: in good order, or with tests that have no verdict."""
        worker, self.worker = self.worker, None
        if not self.busy:
            if lost.reason and not self._stopped:
                name = worker.name if worker else "a worker"
                self._lose_idle(name, lost.reason, hostile=lost.hostile)
            return
        if self._limit:
            self.end_at_limit()
            return
        if lost.kind and not lost.preempted:
            self.refusal = Refusal(lost.reason) if lost.kind == "usage" else None
            self.give_up(lost.reason)
            return
        greeted = worker is None or worker.hello is not None
        passing = worker is not None and getattr(worker.channel, "passing", False)
        if not (greeted or passing or lost.preempted or lost.hostile):
            self.refusal = way_out(lost.reason, self._controller.hello.package)
        reason = lost.reason or "the worker ended before its tests did"
        if lost.preempted and not lost.reason and worker is not None:
            reason = self._controller.hides(worker.channel.diagnosis())
        retry = not lost.hostile and (greeted or passing or lost.preempted)
        self.lose(reason, retry=retry, preempted=lost.preempted, greeted=greeted)

    @property
    def leaves(self) -> bool:
        """Whether its worker still has to say how its session ended."""
        return self.worker is not None and not self._stopped

    def wait_no_more(self, reason: str) -> None:
        """Take a worker that does not end for lost."""
        if self.worker is not None and not self._stopped:
            self._lose_idle(self.worker.name, reason)
        self.worker = None

    def _lose_idle(self, name: str, reason: str, *, hostile: bool = False) -> None:
        """Handle the loss of a worker that owes no verdict; how its session ended, nobody knows."""
        if self._closing or hostile:
            self._summary.fail(f"{name} was lost before it said how its session ended: {reason}")
        else:
            self._summary.note(f"{name} was lost while idle: {reason}")

    def lose(
        self, reason: str, *, retry: bool, preempted: bool = False, greeted: bool = False
    ) -> None:
        """Handle the loss of a worker: a suspect goes on alone first, then the others, in bounds.

        :param preempted: whether it was taken away; then no test is a suspect.
        :param greeted: whether it may have begun a test of which no word has come.
        """
        self.worker = None
        owes = any(not test.done for stretch in self._runs for test in stretch.tests)
        if retry and not owes:
            self._lose_idle(f"a worker for {self.shape}", reason)
        elif retry:
            what = "preempted" if preempted else "lost"
            self._summary.note(f"a worker for {self.shape} was {what}: {reason.splitlines()[0]}")
        running = self._running()
        due = next_test(self._runs) if greeted and retry and not running else []
        self._losses.count(running, due, preempted=preempted)
        settled = [test for test in running or due if self._losses.settle(test, reason)]
        again, cause = retry and not self._losses.too_many, self._losses.why(reason)
        for test in settled:
            self._ready(test)
        if not again:
            self.give_up(cause)
            return
        self._retry([] if preempted else self._losses.alone(running or due))

    def _retry(self, suspects: list[Shipped]) -> None:
        stretch = self._runs.popleft()
        failures = stretch.failures
        if failures and failures <= self._spent:
            self.reason = "stopping after failures"
            self._after_run()
            return
        others = [test for test in stretch.tests if not test.done and test not in suspects]
        if others:
            self._runs.appendleft(Stretch(others, failures, stretch.following))
        if suspects:
            after = None if others else stretch.following
            self._runs.appendleft(Stretch(suspects, failures, after))
        self._after_run()

    def give_up(self, cause: str, verdict: str = "infra") -> None:
        """Make every test of the lane that has no verdict an error that says why."""
        for test in fail_all(self.tests, cause, verdict, self._summary):
            self._ready(test)
        self._runs.clear()
        self.busy = False
        self._closing = self._stopped = True
        if self.worker is not None:
            self.worker.send(orders.Stop(0.0))


OF_RUNNING_TESTS: Final[Mapping[type, str]] = {
    events.Report: "_take_report",
    events.Section: "_take_section",
    events.Memory: "_take_memory",
    events.Finished: "_take_finish",
    events.Crashed: "_take_crash",
}
OF_TESTS: Final[Mapping[type, str]] = {
    events.Started: "_take_start",
    events.NotFound: "_take_not_found",
    events.SkippedThere: "_take_skip",
}
OF_LANES: Final[Mapping[type, str]] = {
    events.StretchEnded: "_take_stretch_end",
    events.StartFailed: "_take_start_failure",
    events.Exited: "_take_exit",
}
"""The methods of a lane for events, by what these concern."""
