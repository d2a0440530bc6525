"""What the workers of one session cost as it goes, and the end that a cap on it puts to them.

Has the clock that ``cost`` has not; knows workers by when they were opened and ended. Called from
the main thread, apart from one thread of its own that looks at the clock.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from pytest_remotegpu import cost
from pytest_remotegpu.backends.base import Backend, Prices
from pytest_remotegpu.config import Settings
from pytest_remotegpu.controller import Controller, Worker
from pytest_remotegpu.cost import Bill, Rate, WorkerCost
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events
from pytest_remotegpu.reports import BILLED, Shipped

__all__ = ["ENDING", "Spending", "forecast"]

ENDING: Final = 6.0
"""Seconds of each worker that are kept back from a cap, for it to end in."""
SHORTEST: Final = 0.02
LONGEST: Final = 1.0
"""Seconds between two looks of the thread that minds the cap."""


def rate_of(backend: Backend, prices: Mapping[str, float], shape: Shape) -> Rate | None:
    """Find what a worker of a shape costs; ``None`` where nobody knows.

    :param prices: what the user says; see :func:`pytest_remotegpu.cost.find_rate`.
    """
    asked = None
    with contextlib.suppress(FarSideError):  # then it is not known
        price = backend.price(shape) if isinstance(backend, Prices) else None
        if price is not None and _is_amount(price.usd_per_hour) and _is_amount(price.after):
            asked = Rate(price.usd_per_hour, price.date, price.source, price.after)
    return cost.find_rate(backend.name, shape, prices, asked)


def _is_amount(number: float) -> bool:
    return math.isfinite(number) and number >= 0


def forecast(backend: Backend, settings: Settings, workers: Mapping[Shape, int]) -> cost.Forecast:
    """Say the most that a session can cost.

    :param workers: how many there may be at once, by shape.
    :raises UsageError: where that is more than the cap, or a cap is given and nobody knows.
    """
    return cost.forecast(
        workers,
        {shape: rate_of(backend, settings.prices, shape) for shape in workers},
        seconds=settings.run_timeout or getattr(backend, "run_limit", 0.0),
        most=settings.max_cost,
        least=ENDING,
    )


class Spending:
    """The bills of one session's workers.

    :param processes: how many there are that share one cap: those of pytest-xdist.
    :param began: when the session did, by the monotonic clock.
    :param records: whether reports are to say what was charged.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        processes: int,
        began: float,
        *,
        records: bool = False,
    ) -> None:
        self._backend = backend
        self._prices = settings.prices
        self._most = settings.max_cost
        self._share = settings.max_cost / max(processes, 1)
        self._began = began
        self._records = records
        self._rates: dict[Shape, Rate | None] = {}
        self._bills: dict[str, Bill] = {}
        self._running: dict[Shipped, float] = {}
        self._spans: dict[Shipped, float] = {}
        self._controller: Controller | None = None
        self._over = threading.Event()
        self._reached = False

    # what happens

    def watch(self, controller: Controller, end: Callable[[], None]) -> None:
        """Begin to look at the workers of a controller.

        :param end: called in a thread, perhaps again and again, while the cap is reached.
        """
        self._controller = controller
        if self._most:
            threading.Thread(target=self._mind, args=(end,), daemon=True).start()

    def _mind(self, end: Callable[[], None]) -> None:
        while not self._over.wait(min(max(self.seconds_left() / 2, SHORTEST), LONGEST)):
            if self.reached():
                end()

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
                bill.begin(at)
                bill.gpu = shipped.gpu

    def charge(self, test: Shipped) -> None:
        """Charge a test that has its verdict, and let its reports say so.

        Its phases say how long it took. One that was cut short has none that do: then it is the
        time from its start to its end as seen from here.
        """
        now = time.monotonic()
        began = self._running.pop(test, now)
        span = self._spans.pop(test, now - began)
        bill = self._bill(test.worker)
        if bill is None:
            return
        seconds = bill.take(max(span, test.seconds) if test.verdict else test.seconds, now)
        price = None if bill.rate is None else bill.rate.usd(seconds)
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
        if worker is None:
            return None
        if name not in self._bills:
            rate = self._rate(worker.shape)
            self._bills[name] = Bill(name, worker.shape, rate, worker.started)
        self._bills[name].ended = worker.ended
        return self._bills[name]

    def _rate(self, shape: Shape) -> Rate | None:
        if shape not in self._rates:
            self._rates[shape] = rate_of(self._backend, self._prices, shape)
        return self._rates[shape]

    def _spent(self, now: float) -> tuple[float, float]:
        """Give what was spent so far, endings included, and what a further second costs."""
        spent = second = 0.0
        for worker in self._workers():
            rate = self._rate(worker.shape)
            if rate is None:
                continue
            living = worker.ended is None
            until = now + ENDING if worker.ended is None else worker.ended
            spent += rate.usd(until - worker.started + rate.after)
            second += rate.usd(1.0) if living else 0.0
        return spent, second

    def reached(self) -> bool:
        """Say whether workers have to end now lest they cost more than the cap; then for good."""
        if self._most and self._spent(time.monotonic())[0] >= self._share:
            self._reached = True
        return self._reached

    def allows(self, shape: Shape) -> bool:
        """Say whether tests of a shape may begin: a first worker has to be paid for to its end."""
        rate = self._rate(shape) if self._most else None
        living = any(each.shape == shape and each.ended is None for each in self._workers())
        if rate is None or living:
            return True
        return self._spent(time.monotonic())[0] + rate.usd(ENDING + rate.after) <= self._share

    def seconds_left(self) -> float:
        """Say after how many seconds that will be, if no worker is opened or ends meanwhile."""
        spent, second = self._spent(time.monotonic())
        if not self._most or not second:
            return float("inf")
        return max(self._share - spent, 0.0) / second

    @property
    def text(self) -> str:
        """Name the cap that is reached."""
        return f"the cost limit of {cost.bound(self._most)} (--remote-max-cost) is reached"

    def close(self) -> list[WorkerCost]:
        """Let the cap be, and make the final bills."""
        self._over.set()
        now = time.monotonic()
        found = []
        for worker in self._workers():
            bill = self._bill(worker.name)
            assert bill is not None
            found.append(bill.close(now, self._began))
        return found
