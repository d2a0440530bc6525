"""What the workers of one session cost as it goes, and the end that a cap on it puts to them.

Has the clock that ``cost`` has not; knows workers by when they were opened and ended. Called from
the main thread, apart from one thread of its own that looks at the clock.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from pytest_remotegpu import cost, remains
from pytest_remotegpu.backends.base import Backend, Leaves, Price, Prices
from pytest_remotegpu.config import Settings
from pytest_remotegpu.controller import Controller, Worker
from pytest_remotegpu.cost import Bill, Rate, WorkerCost
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events
from pytest_remotegpu.reports import BILLED, Shipped
from pytest_remotegpu.summary import RunSummary

__all__ = ["ENDING", "Spending", "forecast"]

ENDING: Final = 8.0
"""Seconds that each worker may take to end at a limit, and that are kept back from a cap."""
SHORTEST: Final = 0.02
LONGEST: Final = 1.0
"""Seconds between two looks of the thread that minds the cap."""
EVERY: Final = 10.0
"""Seconds after which a backend is asked again what its workers cost, if not sooner: once the first
test of one begins, and at the end."""


def rate_of(backend: Backend, prices: Mapping[str, float], shape: Shape) -> Rate | None:
    """Find what a worker of a shape costs; ``None`` where nobody knows.

    :param prices: what the user says; see :func:`pytest_remotegpu.cost.find_rate`.
    """
    price = None
    with contextlib.suppress(FarSideError):  # then it is not known
        price = _ask(backend, shape)
    return _rate(backend, prices, shape, price)


def _ask(backend: Backend, shape: Shape) -> Price | None:
    return backend.price(shape) if isinstance(backend, Prices) else None


def _rate(
    backend: Backend, prices: Mapping[str, float], shape: Shape, price: Price | None
) -> Rate | None:
    if price is None or not (_is_amount(price.after) and _is_amount(price.ending)):
        return cost.find_rate(backend.name, shape, prices, None)
    asked, times = None, {"after": price.after, "ending": price.ending}
    if price.usd_per_hour is not None and _is_amount(price.usd_per_hour):
        asked = Rate(price.usd_per_hour, price.date, price.source, **times)
    return cost.find_rate(backend.name, shape, prices, asked, **times)


class Rates:
    """What workers cost, by shape, as a backend has last known it: asked for now and then."""

    def __init__(
        self, backend: Backend, prices: Mapping[str, float], clock: Callable[[], float]
    ) -> None:
        self._backend, self._prices, self._clock = backend, prices, clock
        self._known: dict[Shape, Rate] = {}
        self._asked: dict[Shape, float] = {}

    def learn(self, rates: Mapping[Shape, Rate | None]) -> None:
        """Take over what was known before."""
        self._known |= {shape: rate for shape, rate in rates.items() if rate is not None}

    def of(self, shape: Shape, *, anew: bool = False) -> Rate | None:
        """Give the rate of a shape; ``None`` where nobody has known one yet.

        What was known holds where the backend can't be asked now, or knows none any more: no worker
        is free because somebody was away.

        :param anew: whether to ask the backend, which may have learned of another price, although
            that was done a moment ago.
        """
        now = self._clock()
        if anew or now - self._asked.get(shape, -math.inf) >= EVERY:
            self._asked[shape] = now
            self._look(shape)
        return self._known.get(shape)

    def _look(self, shape: Shape) -> None:
        try:
            price = _ask(self._backend, shape)
        except FarSideError:
            if shape in self._known:
                return
            price = None
        found = _rate(self._backend, self._prices, shape, price)
        if found is not None:
            self._known[shape] = found


def _tail(rate: Rate) -> float:
    """Give the seconds for which a worker may be paid for once it has to end."""
    return ENDING + rate.ending + rate.after


def _is_amount(number: float) -> bool:
    return math.isfinite(number) and number >= 0


def forecast(backend: Backend, settings: Settings, workers: Mapping[Shape, int]) -> cost.Forecast:
    """Say the most that a session can cost.

    :param workers: how many there may be at once, by shape.
    :raises UsageError: where that is more than the cap, or a cap is given and nobody knows.
    """
    rates = {shape: rate_of(backend, settings.prices, shape) for shape in workers}
    found = cost.forecast(
        workers,
        rates,
        seconds=settings.run_timeout or getattr(backend, "run_limit", 0.0),
        most=settings.max_cost,
        least=ENDING,
        rents=isinstance(backend, Prices),
    )
    return replace(found, rates=rates)


class Spending:
    """The bills of one session's workers.

    :param processes: how many there are that share one cap: those of pytest-xdist.
    :param began: when the session did, by the monotonic clock.
    :param records: whether reports are to say what was charged.
    :param clock: gives the seconds by which workers are opened and ended.
    :ivar worst: the most that all processes were said to cost; ``None`` where nobody knows.
    :ivar dearest: the tests that were charged most: USD, seconds, id.
    :ivar gone: seconds of the run limit that are gone before the first worker: what dead processes
        in whose place this one has come may have had, the ends of their workers included.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        processes: int,
        began: float,
        *,
        records: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._backend = backend
        self._rates = Rates(backend, settings.prices, clock)
        self._most = settings.max_cost
        self._processes = max(processes, 1)
        self._share = settings.max_cost / self._processes
        self._began = began
        self._records = records
        self._bills: dict[str, Bill] = {}
        self._running: dict[Shipped, float] = {}
        self._spans: dict[Shipped, float] = {}
        self._controller: Controller | None = None
        self._over = threading.Event()
        self._reached = ""
        self._earlier = 0.0
        self._lock = threading.Lock()
        self.worst: float | None = None
        self.dearest: list[tuple[float, float, str]] = []
        self.gone = 0.0

    # what happens

    def expect(self, said: cost.Forecast) -> None:
        """Take note of the most that all processes were said to cost, and at which rates."""
        self.worst = said.worst
        self._rates.learn(said.rates)

    def count(self, controller: Controller) -> None:
        """Begin to count the workers of a controller, and let it have none that is too dear."""
        self._controller = controller
        controller.refuses = self.refuses

    def succeed(self, shapes: Iterable[Shape], seconds: float, ends: int) -> None:
        """Take the place of processes that have died: what they may have cost is gone.

        :param shapes: of which each may have had a worker at a time.
        :param seconds: for which they were there in all. :param ends: how many they were.
        """
        rates = [rate for rate in map(self._rates.of, shapes) if rate is not None]
        self._earlier = sum(rate.usd(seconds + ends * _tail(rate)) for rate in rates)
        self.gone = seconds + ends * max(map(_tail, rates), default=0.0)

    def watch(self, controller: Controller, end: Callable[[float], None]) -> None:
        """Begin to look at the workers of a controller, and at what they may cost.

        :param end: called in a thread, again and again, once a limit is reached; is given the
            seconds since that.
        """
        self.count(controller)
        if self._most or self.worst is not None:
            threading.Thread(target=self._mind, args=(end,), daemon=True).start()

    def _mind(self, end: Callable[[float], None]) -> None:
        since = None
        while not self._over.wait(min(max(self.seconds_left() / 2, SHORTEST), LONGEST)):
            if self.reached():
                since = self._clock() if since is None else since
                end(self._clock() - since)

    def before(self, test: Callable[[int], Shipped], event: events.Event, at: float) -> None:
        """See an event that is about to be taken in.

        :param test: finds a test by its place. :param at: when the event was read.
        """
        if isinstance(event, events.Finished | events.Crashed):
            shipped = test(event.item)
            began = self._running.pop(shipped, None)
            if began is not None:
                self._spans[shipped] = at - began

    def after(self, test: Callable[[int], Shipped], event: events.Event, at: float) -> None:
        """See an event that was taken in; as :meth:`before`."""
        if isinstance(event, events.Started):
            shipped = test(event.item)
            self._running[shipped] = at
            bill = self._bill(shipped.worker)
            if bill is not None:
                if bill.first is None:
                    bill.rate = self._rates.of(bill.shape, anew=True)
                bill.begin(at)
                bill.gpu = shipped.gpu

    def charge(self, test: Shipped) -> None:
        """Charge a test that has its verdict, and let its reports say so.

        Its phases say how long it took. One that was cut short has none that do: then it is the
        time from its start to its end as seen from here.
        """
        now = self._clock()
        began = self._running.pop(test, now)
        span = self._spans.pop(test, now - began)
        bill = self._bill(test.worker)
        if bill is None:
            return
        seconds = bill.take(max(span, test.seconds) if test.verdict else test.seconds, now)
        price = None if bill.rate is None else bill.rate.usd(seconds)
        if price:
            self.dearest = cost.dearest([*self.dearest, (price, seconds, test.item.nodeid)])
        for report in test.reports:
            if price is not None:
                report.user_properties.append(("remotegpu_cost_usd", round(price, 9)))
            if self._records:
                charged = {"seconds": seconds, "gpus": bill.shape.count, "usd": price}
                setattr(report, BILLED, charged)

    # what it comes to

    def _workers(self) -> list[Worker]:
        return list(self._controller.workers) if self._controller is not None else []

    def _bill(self, name: str) -> Bill | None:
        """Give the bill of a worker, brought up to date; ``None`` where there is no such worker."""
        worker = next((each for each in self._workers() if each.name == name), None)
        if worker is not None and worker.rental is None:  # on no machine that it shares with others
            with self._lock:
                return self._refreshed(worker)
        return next((bill for bill in self._up_to_date() if bill.name == name), None)

    def _up_to_date(self) -> list[Bill]:
        """Give all bills, by what is known now of each worker's machine and end."""
        with self._lock:
            last: dict[str, Bill] = {}
            for worker in self._workers():
                bill = self._refreshed(worker)
                if bill.machine in last:
                    last[bill.machine].before(bill)
                if bill.machine:
                    last[bill.machine] = bill
            return list(self._bills.values())

    def _refreshed(self, worker: Worker) -> Bill:
        bill = self._known(worker)
        bill.rate = self._rates.of(bill.shape)
        bill.ended = worker.ended
        rental = worker.rental
        bill.since = worker.started
        bill.after = bill.rate.after if bill.rate is not None else 0.0
        if rental is not None:
            bill.since = rental.since(ended=bill.ended is not None)
            bill.machine = rental.machine
            bill.after *= rental.stays
        return bill

    def _known(self, worker: Worker) -> Bill:
        if worker.name not in self._bills:
            rate = self._rates.of(worker.shape)
            self._bills[worker.name] = Bill(worker.name, worker.shape, rate, worker.started)
        return self._bills[worker.name]

    def _spent(self, now: float) -> tuple[float, float, bool]:
        """Give what was spent so far, endings included, and what a further second costs.

        :return: and whether a machine without work is paid for beside others at work.
        """
        spent, second = self._earlier, 0.0
        idle = living = False
        for bill in self._up_to_date():
            rate = bill.rate
            if rate is None:
                continue
            if bill.ended is not None:
                spent += bill.usd(now)
                idle = idle or bill.idle > 0
                continue
            living = True
            if bill.since is None:  # it is on its way, and will have to come to its end as well
                spent += rate.usd(_tail(rate))
            else:
                spent += bill.usd(now + ENDING + rate.ending)
                second += rate.usd(1.0)
        return spent, second, idle and living

    def reached(self) -> bool:
        """Say whether workers have to end now lest they cost more than they may; then for good.

        That is the cap. What was said to be the most holds by the run limit alone, unless workers
        were lost whose machines are still there while others go on with their tests.
        """
        if not self._most and self.worst is None:
            return False  # nothing was said that could be reached
        spent, _, idle = self._spent(self._clock())
        if self._most and spent >= self._share:
            self._reached = self._reached or self._cap
        elif idle and self.worst is not None and spent >= self.worst / self._processes:
            self._reached = self._reached or self._said
        return bool(self._reached)

    def refuses(self, shape: Shape) -> str:
        """Say why no further worker of a shape may be asked for; nothing where one may.

        It has to be paid for to its end, beside all that is paid for already.
        """
        rate = self._rates.of(shape)
        if self._reached or rate is None:
            return self._reached
        spent = self._spent(self._clock())[0] + rate.usd(_tail(rate))
        if self._most and spent > self._share * (1 + cost.SLACK):
            return self._cap
        said = self.worst is not None and self.worst / self._processes * (1 + cost.SLACK)
        return self._said if said is not False and spent > said else ""

    def refuses_tests(self, shape: Shape) -> str:
        """Say why no tests of a shape may begin: it has no worker, and may have none."""
        living = any(each.shape == shape and each.ended is None for each in self._workers())
        return "" if living else self.refuses(shape)

    def seconds_left(self) -> float:
        """Say after how many seconds that will be, if no worker is opened or ends meanwhile."""
        spent, second, _ = self._spent(self._clock())
        if not self._most or not second:
            return float("inf")
        return max(self._share - spent, 0.0) / second

    @property
    def _cap(self) -> str:
        return f"the cost limit of {cost.bound(self._most)} (--remote-max-cost) is reached"

    @property
    def _said(self) -> str:
        return (
            f"the {cost.bound(self.worst or 0.0)} are reached that this run was said to cost at "
            "most: machines of workers that were lost are still paid for"
        )

    @property
    def text(self) -> str:
        """Name the limit that is reached, or will be."""
        return self._reached or self._cap

    def close(self) -> list[WorkerCost]:
        """Let the cap be, and make the final bills."""
        self._over.set()
        now = self._clock()
        for shape in {bill.shape for bill in self._up_to_date()}:
            self._rates.of(shape, anew=True)
        return [bill.close(now, self._began) for bill in self._up_to_date()]

    def conclude(self, summary: RunSummary) -> None:
        """Let the cap be, and put all that was spent into a summary."""
        summary.workers = self.close()
        summary.charged(self.dearest)
        summary.rents = self.rents

    def so_far(self) -> tuple[list[WorkerCost], list[str]]:
        """Make the bills as if all workers ended now, and name those that have not ended."""
        now = self._clock()
        bills = self._up_to_date()
        living = [bill.name for bill in bills if bill.ended is None]
        return [bill.close(now, self._began) for bill in bills], living

    def left(self) -> list[remains.Left] | None:
        """Say which machines would be there if all ended now; ``None`` where that is no matter."""
        if not isinstance(self._backend, Leaves):
            return None
        return [(each.of, each.machine, each.until, each.sure) for each in self._backend.left()]

    @property
    def rents(self) -> bool:
        """Whether what workers run on is paid for, be the price known or not."""
        return isinstance(self._backend, Prices)
