"""Several lanes for one shape, which share its tests: who starts, who gets what, when it is over.

Decides nothing that a schedule can decide, and nothing of what becomes of a worker. Looks like one
lane to whoever drives it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from pytest_remotegpu import schedule
from pytest_remotegpu.advice import Refusal
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.lanes import Lane
from pytest_remotegpu.members import Member
from pytest_remotegpu.protocol import events
from pytest_remotegpu.reports import Shipped
from pytest_remotegpu.schedule import Job, Schedule
from pytest_remotegpu.stretch import NOTHING_FOLLOWS, Following, fail_all
from pytest_remotegpu.summary import RunSummary

__all__ = ["Pool", "Serves", "groups", "job_of", "what_fits", "width_of"]

PATIENCE: Final = 0.5
"""Seconds without work after which a worker takes whatever another one has not begun."""
CLASSES: Final = 2
"""Groups of a test that may be named in its id below its module: class and function."""


def job_of(nodeid: str, seconds: float | None) -> Job:
    """Describe a test to a schedule by its id: module, classes, function."""
    path, _, inside = nodeid.partition("::")
    names = inside.partition("[")[0].split("::")
    groups = [path]
    for name in names[:CLASSES]:
        groups.append(f"{groups[-1]}::{name}")
    return Job(tuple(groups), seconds)


class Pool:
    """The lanes of one shape; has the attributes of a :class:`Lane`.

    :param jobs: what a schedule has to know of the tests.
    :param width: how many workers may share them.
    :param make_member: makes one of the lanes; is given whom it tells of verdicts.
    :param on_ready: called with each test that has its verdict.
    :param start: seconds that a worker takes to start on a machine that is rented for it; then none
        is started that would come too late. 0 where workers cost nothing of their own.
    """

    def __init__(
        self,
        shape: Shape,
        tests: list[Shipped],
        jobs: Sequence[Job],
        width: int,
        *,
        make_member: Callable[[Callable[[Shipped], None]], Member],
        on_ready: Callable[[Shipped], None],
        summary: RunSummary,
        start: float = 0.0,
    ) -> None:
        self._start = start
        self.shape = shape
        self.tests = tests
        self.width = width
        self._jobs = jobs
        self._on_ready = on_ready
        self._summary = summary
        self._places = {id(test): place for place, test in enumerate(tests)}
        self._members = [make_member(self._take_verdict) for _ in range(width)]
        self._at_once = 1
        self._schedule = Schedule(jobs, (), width)
        self._last = self._final = self._over = False
        self._failures = self._spent = 0
        self._may_end: set[int] = set()
        self._idle_since: dict[str, float] = {}
        self._splitting: set[str] = set()
        self.busy = False
        self.reason = ""
        self.refusal: Refusal | None = None
        self._limit = ""

    @property
    def members(self) -> Sequence[Lane]:
        """The lanes that each serve one worker."""
        return self._members

    @property
    def in_use(self) -> int:
        """How many GPUs its tests have now."""
        return sum(member.in_use for member in self._members)

    @property
    def ending(self) -> events.Exited | None:
        """How a test has ended the session, if one has."""
        return next((m.ending for m in self._members if m.ending is not None), None)

    @ending.setter
    def ending(self, value: events.Exited | None) -> None:
        for member in self._members:
            member.ending = value

    @property
    def leaves(self) -> bool:
        """Whether a worker still has to say how its session ended."""
        return any(member.leaves for member in self._members)

    # what the session asks for

    def start(
        self,
        tests: list[Shipped],
        failures: int,
        *,
        last: bool,
        following: Following = None,  # noqa: ARG002 -- as a lane's: who knows that drives one only
    ) -> None:
        """Run tests, stopping after so many failures (0: never); see :meth:`Lane.start`."""
        self.busy = True
        self.reason = ""
        self._last, self._failures, self._spent = last, failures, 0
        places = [self._places[id(test)] for test in tests if not test.done]
        self._final = last or len(places) == sum(not test.done for test in self.tests)
        self._schedule = Schedule(self._jobs, places, self.width, in_order=not last)
        self.turn()

    def widen(self, room: int | None) -> None:
        """Let more workers start, as far as there is work for them.

        :param room: how many more there is room for; ``None`` for any number.
        """
        open_ = sum(member.worker is not None for member in self._members)
        self._at_once = self.width if room is None else max(1, min(self.width, open_ + room))
        self.turn()

    def finish(self) -> None:
        """Tell all workers that nothing follows."""
        for member in self._members:
            member.finish()

    def stop(self, grace: float) -> None:
        """Tell all workers to end now."""
        self._over = True
        self.busy = False
        for member in self._members:
            member.stop(grace)

    def expire(self, limit: str, grace: float) -> None:
        """Run nothing more, since a limit of the run is reached; see :meth:`Lane.expire`."""
        self._over, self._limit = True, limit
        for member in self._members:
            member.expire(limit, grace)
        owned = {id(test) for member in self._members for test in member.tests}
        left = [test for test in self.tests if id(test) not in owned and not test.done]
        if left:
            self._fail(left, limit, "budget")
        self._look_whether_busy()

    def _expire_given_back(self) -> None:
        """Past the limit nobody goes on with what a lane could not run."""
        left = [test for m in self._members for test in (*m.give(), *m.alone) if not test.done]
        if left and self._limit:
            self._fail(left, self._limit, "budget")

    def end_at_limit(self) -> None:
        """Wait no longer for workers that were told of the limit."""
        for member in self._members:
            member.end_at_limit()
        self._look_whether_busy()

    def wait_no_more(self, reason: str) -> None:
        """Take workers that do not end for lost."""
        for member in self._members:
            member.wait_no_more(reason)

    def give_up(self, cause: str, verdict: str = "infra") -> None:
        """Make every test that has no verdict an error that says why."""
        self._over = True
        self.busy = False
        for member in self._members:
            member.give_up(cause, verdict)
            member.give()
        self._fail(self.tests, cause, verdict)

    def _fail(self, tests: list[Shipped], cause: str, verdict: str) -> None:
        for test in fail_all(tests, cause, verdict, self._summary):
            test.done = True
            self._on_ready(test)

    # what becomes of tests

    def _take_verdict(self, test: Shipped) -> None:
        """Take note of a verdict; what began after the session had to stop is not shown."""
        self._schedule.done(self._places[id(test)], test.seconds)
        self._spent += sum(report.failed for report in test.reports)
        if not self.reason or id(test) in self._may_end:
            self._on_ready(test)

    def turn(self) -> None:
        """Look at every lane: hand out, take back, start, and notice the end."""
        if self._over:
            self._expire_given_back()
            self._look_whether_busy()
        if self._over or not self.busy:
            return
        for name, member in enumerate(self._members):
            if given := [self._places[id(test)] for test in member.give()]:
                self._schedule.back(given, splits=str(name) in self._splitting)
                self._splitting.discard(str(name))
        self._look_at_refusals()
        if self._failures and self._spent >= self._failures:
            self._stop_handing(f"stopping after {self._failures} failures")
        for member in self._members:
            if member.reason:
                self._stop_handing(member.reason)
        if self.reason or self._schedule.is_over():
            self._wind_up()
        elif not self._over:
            self._serve()

    def _look_whether_busy(self) -> None:
        self.busy = any(member.owes for member in self._members)

    def _look_at_refusals(self) -> None:
        """Go on without workers that can't serve; where none can, end it all."""
        for member in self._members:
            member.excuse, member.refusal = member.refusal or member.excuse, None
        retired = [member for member in self._members if member.retired]
        others = [member for member in self._members if not member.retired]
        alive = any(other.served or other.worker is not None for other in others)
        for member in retired if alive else ():
            head = member.retired.partition("\n")[0]
            self._summary.note(f"a worker for {self.shape} is done without: {head}")
        if retired and not alive:
            if not any(member.served for member in self._members):
                self.refusal = retired[0].excuse
            self.give_up(retired[0].retired, retired[0].verdict)

    def _stop_handing(self, reason: str) -> None:
        """Let what runs come to its end, and nothing else begin."""
        if not self.reason:
            self.reason = reason
            self._may_end = {id(test) for test in self.tests if test.started and not test.done}
        for member in self._members:
            member.take_back(splits=True)

    def _wind_up(self) -> None:
        self._look_whether_busy()
        if not self.busy and self._last:
            for member in self._members:
                member.dismiss()
            self.finish()

    # who gets what

    def _serve(self) -> None:
        self._spare_starts()
        self._start_workers()
        for member in sorted(self._members, key=lambda member: member.busy):
            if member.takes:
                self._feed(member)
        for member in self._members:
            if member.takes and not member.busy:
                self._find_work(member)
            member.tell(self._expected())

    def _names(self, but: Member) -> list[str]:
        others = [other for other in self._members if other is not but]
        return [self._name(other) for other in others if other.ready]

    def _name(self, member: Member) -> str:
        return str(self._members.index(member))

    def _start_workers(self) -> None:
        """Start as many workers as there is room and work for; one that was lost first."""
        open_ = [member for member in self._members if member.worker is not None]
        idle = sum(not member.owes for member in open_)
        work = len(self._schedule.waiting) - idle
        for member in sorted(self._members, key=lambda member: not member.alone):
            if member.retired or member.worker is not None:
                continue
            wanted = bool(member.alone) or (
                work > 0 and len(open_) < self._at_once and self._is_worth_a_start(len(open_))
            )
            if wanted:
                member.begin()
                open_.append(member)
                work -= 1

    def _is_worth_a_start(self, others: int) -> bool:
        """Say whether a worker beside so many others has something left to do once it is there.

        What is not known to take long is not: then each module is worth a worker.
        """
        if not self._start or not others:
            return True
        modules, seconds = self._schedule.worth()
        if seconds == float("inf"):
            coming = sum(member.worker is not None and not member.owes for member in self._members)
            return modules > coming
        return seconds / others > self._start

    def _spare_starts(self) -> None:
        """Do without workers that are still on their way when the others will be done before."""
        coming = [member for member in self._members if member.is_coming]
        others = sum(member.worker is not None for member in self._members) - len(coming)
        if not self._start or not coming or not others:
            return
        _, seconds = self._schedule.worth()
        if seconds / others <= self._start:
            for member in coming:
                member.dismiss()

    def _feed(self, member: Member) -> None:
        name = self._name(member)
        while member.alone and not member.busy:
            test = member.alone.pop(0)
            self._schedule.hold(name, self._places[id(test)])
            self._hand(member, [test])
        if member.alone:
            return
        while piece := self._schedule.take(name, self._names(member)):
            self._hand(member, [self.tests[place] for place in piece.places()])

    def _hand(self, member: Member, tests: list[Shipped]) -> None:
        left = self._failures - self._spent if self._failures else 0
        self._idle_since.pop(self._name(member), None)
        member.assign(tests, left, self._expected())

    def _expected(self) -> Following:
        """Give the test that a worker will run after all that it has, as far as is known."""
        if self._schedule.waiting:
            return self.tests[self._schedule.waiting[0].first]
        return NOTHING_FOLLOWS if self._final else None

    def _find_work(self, member: Member) -> None:
        """Have another worker give back what it has not begun; else this one has done its part."""
        if self._schedule.waiting or member.alone:
            return
        others, now = self._names(member), time.monotonic()
        late = now - self._idle_since.setdefault(self._name(member), now) > PATIENCE
        found = self._schedule.victim(others, late=late)
        if found is not None:
            name, splits = found
            self._members[int(name)].take_back(splits=splits)
            self._splitting |= {name} if splits else set()
        elif self._schedule.may_be_late(others) or any(other.alone for other in self._members):
            pass  # until it is
        elif self._last:
            member.finish()


Serves = Lane | Pool
"""What serves the tests of one shape: by one worker, or by several."""


def width_of(wanted: int, tests: int, count: int, capacity: int | None) -> int:
    """Say how many workers may share tests at the most.

    :param count: the GPUs that each of them needs. :param capacity: those that are known to be all.
    """
    fits = wanted if capacity is None or not count else max(capacity // count, 1)
    return max(min(wanted, tests, fits), 1)


def groups(
    ids: Sequence[str], seconds: Callable[[str], float | None], width: int
) -> list[tuple[float | None, list[str]]]:
    """Give the groups in which workers would take tests, in their order.

    :param seconds: says how long a test took before.
    :return: for each its seconds, ``None`` where not all are known, and its tests.
    """
    jobs = [job_of(nodeid, seconds(nodeid)) for nodeid in ids]
    found: list[tuple[float | None, list[str]]] = []
    for piece in schedule.plan(jobs, range(len(jobs)), width):
        known = all(jobs[place].seconds is not None for place in piece.places())
        found.append((piece.seconds if known else None, [ids[at] for at in piece.places()]))
    return found


def what_fits(width: int, shape: Shape, capacity: int | None, name: str) -> str:
    """Say that there are not GPUs for as many workers as the user has asked for; else nothing.

    :param width: how many those are. :param capacity: GPUs. :param name: the backend's.
    """
    fits = (capacity or 0) // shape.count if shape.count else 0
    if not 0 < fits < width:
        return ""
    return (
        f"--remote-workers={width}: {name} has {capacity} GPU{'s' if capacity != 1 else ''}, so at"
        f" most {fits} worker{'s' if fits != 1 else ''} for {shape} at once"
    )
