"""Money: what workers cost by the second, split into tests, start and idle, and the most of it.

Values in, values out: prices come from the ini file or a backend, times from whoever has a clock.
Must not know backends, workers or pytest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.gpu import Shape

__all__ = [
    "OWN",
    "Bill",
    "Forecast",
    "Rate",
    "WorkerCost",
    "bound",
    "dearest",
    "find_rate",
    "forecast",
    "lacking",
    "total",
    "usd",
    "words",
]

HOUR: Final = 3600.0
OWN: Final = "ini file, remotegpu_prices"
"""The source of a price that the user has given."""
MOST_DEAR: Final = 3
"""Tests that are named as the dearest."""
SLACK: Final = 1e-9
"""The part of an amount by which two that are the same may differ, since they were computed."""
_WAYS: Final = (
    "a shorter --remote-run-timeout{shorter}, fewer workers or a cheaper card would do, "
    "or a larger --remote-max-cost"
)


class Rate(Struct, frozen=True):
    """What one worker costs, with all its GPUs.

    :ivar usd_per_hour: its price. :ivar date: of that price, where it has one.
    :ivar source: where it stands.
    :ivar after: seconds for which it is paid for after its stream has ended.
    :ivar ending: seconds that its end takes longer than on this host.
    """

    usd_per_hour: float
    date: str = ""
    source: str = ""
    after: float = 0.0
    ending: float = 0.0

    def usd(self, seconds: float) -> float:
        """Give the price of so many seconds."""
        return self.usd_per_hour * seconds / HOUR


def find_rate(
    backend: str,
    shape: Shape,
    prices: Mapping[str, float],
    asked: Rate | None,
    *,
    after: float = 0.0,
    ending: float = 0.0,
) -> Rate | None:
    """Find what one worker costs; ``None`` where nobody knows.

    Of what the user has said, an entry for the whole backend, such as ``ssh:gpubox``, stands above
    those for the types of card that the shape names, of which the dearest counts. Both stand above
    the backend's own price, and that above an entry for its kind, such as ``ssh``. A worker that
    offers no GPU is counted as one that offers one.

    :param backend: as it stands in ``--remote=``. :param prices: USD for one GPU and an hour.
    :param asked: the backend's own price. :param after: as of a :class:`Rate`, and so is
        ``ending``: the backend's business, whoever names the price.
    """
    cards = {name.casefold(): price for name, price in prices.items()}
    types = [cards.get(name.casefold()) for name in shape.type]
    known = [price for price in types if price is not None]
    if backend in prices:
        found = prices[backend]
    elif known and len(known) == len(types):
        found = max(known)
    elif asked is not None:
        return asked
    elif (kind := backend.partition(":")[0]) in prices:
        found = prices[kind]
    else:
        return None
    return Rate(found * max(shape.count, 1), source=OWN, after=after, ending=ending)


# ---------------------------------------------------------------- what was spent


class WorkerCost(Struct, frozen=True):
    """What one worker has cost. Its three times together are all that is paid for.

    :ivar gpu: what its tests had, in words. :ivar tests: how many ran there.
    :ivar opened: when it was asked for, in seconds since the session began.
    :ivar start: seconds that are paid for until its first test began.
    :ivar busy: those of its tests.
    :ivar idle: all others, those after its stream had ended included.
    :ivar rate: its price; ``None`` where that is not known.
    """

    name: str
    shape: Shape
    gpu: str
    tests: int
    opened: float
    start: float
    busy: float
    idle: float
    rate: Rate | None = None

    @property
    def seconds(self) -> float:
        """Give the time that is paid for."""
        return self.start + self.busy + self.idle

    @property
    def usd(self) -> float | None:
        """Give its price; ``None`` where that is not known."""
        return None if self.rate is None else self.rate.usd(self.seconds)

    @classmethod
    def from_plain(cls, data: Mapping[str, Any], shape: Shape) -> WorkerCost:
        """Undo :func:`msgspec.to_builtins`.

        :param shape: made of what stands under that name.
        """
        rate = data["rate"]
        return cls(**{**data, "shape": shape, "rate": None if rate is None else Rate(**rate)})


def total(workers: Iterable[WorkerCost]) -> float | None:
    """Add up the workers whose price is known; ``None`` where there is none."""
    known = [worker.usd for worker in workers]
    found = [price for price in known if price is not None]
    return sum(found) if found else None


def dearest(tests: Iterable[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Give the dearest of these tests, the dearest first: USD, seconds, id.

    >>> dearest([(0.1, 1.0, "a"), (0.3, 2.0, "b"), (0.2, 9.0, "c"), (0.0, 0.1, "d")])
    [(0.3, 2.0, 'b'), (0.2, 9.0, 'c'), (0.1, 1.0, 'a')]
    """
    found = [(price, seconds, nodeid) for price, seconds, nodeid in tests]
    return sorted(found, key=lambda each: (-each[0], each[2]))[:MOST_DEAR]


def words(workers: Iterable[WorkerCost], worst: float | None) -> str:
    """Say what workers have cost; empty where that is not known of any.

    :param worst: what was to be expected at most.
    """
    found = list(workers)
    priced = [(worker, worker.rate) for worker in found if worker.rate is not None]
    if not priced:
        return ""
    start, busy, idle = (
        sum(rate.usd(getattr(worker, part)) for worker, rate in priced)
        for part in ("start", "busy", "idle")
    )
    dates = {_origin(rate) for _, rate in priced}
    text = f"about {usd(start + busy + idle)}"
    text += f" (tests {usd(busy)}, start {usd(start)}, idle {usd(idle)})"
    text += "" if worst is None else f" of at most {bound(worst)}"
    text += f", by prices {' and '.join(sorted(dates))}"
    lacking = len(found) - len(priced)
    return text + (f"; the price of {lacking} more is not known" if lacking else "")


def _origin(rate: Rate) -> str:
    """Say where a price is from; an address is left to the record."""
    named = f"({rate.source})" if rate.source and "://" not in rate.source else ""
    return " ".join(filter(None, [f"of {rate.date}" if rate.date else "", named])) or "unnamed"


class Bill(Struct):
    """The running bill of one worker, by one clock.

    :ivar opened: when it was asked for. :ivar first: when its first test began.
    :ivar since: since when it is paid for; ``None`` for not at all, or not yet.
    :ivar after: seconds for which it is paid for after its end. :ivar machine: on which it was.
    :ivar ended: when its stream did. :ivar busy: seconds of its tests, :ivar tests: their number.
    """

    name: str
    shape: Shape
    rate: Rate | None
    opened: float
    since: float | None = None
    after: float = 0.0
    machine: str = ""
    first: float | None = None
    ended: float | None = None
    busy: float = 0.0
    tests: int = 0
    gpu: str = ""

    def wall(self, now: float) -> float:
        """Give the seconds that are paid for until the end of its stream."""
        end = now if self.ended is None else self.ended
        return 0.0 if self.since is None else max(end - self.since, 0.0)

    def begin(self, at: float) -> None:
        """Note when a test begins."""
        self.first = at if self.first is None else self.first

    def take(self, seconds: float, now: float) -> float:
        """Charge a test; no more than the time that is left, whatever the far side says.

        :return: the seconds that were charged.
        """
        charged = max(min(seconds, self.wall(now) - self.busy), 0.0)
        self.busy += charged
        self.tests += 1
        return charged

    def usd(self, now: float) -> float:
        """Give what it has cost until now, and will whatever is done; 0 where that is not known."""
        return 0.0 if self.rate is None else self.rate.usd(self.wall(now) + self.idle)

    @property
    def idle(self) -> float:
        """Give the seconds that are paid for after its end."""
        return 0.0 if self.since is None else self.after

    def before(self, other: Bill) -> None:
        """Take note of the next worker on the same machine, which is paid for once at a time."""
        if self.ended is not None and other.since is not None:
            other.since = max(other.since, self.ended)
            self.after = min(self.after, other.since - self.ended)

    def close(self, now: float, began: float) -> WorkerCost:
        """Make the final bill.

        :param began: when the session did.
        """
        wall = self.wall(now)
        spare = max(wall - self.busy, 0.0)
        since = self.opened if self.since is None else self.since
        start = min(wall if self.first is None else max(self.first - since, 0.0), spare)
        return WorkerCost(
            name=self.name,
            shape=self.shape,
            gpu=self.gpu,
            tests=self.tests,
            opened=self.opened - began,
            start=start,
            busy=self.busy,
            idle=spare - start + self.idle,
            rate=self.rate,
        )


# ---------------------------------------------------------------- what may be spent


class Forecast(Struct, frozen=True):
    """The most that a run can cost.

    :ivar worst: in USD; ``None`` where nothing bounds it, or a price is not known.
    :ivar text: the same for people; empty where nothing is known and nothing was asked.
    :ivar rates: by which that was found, by shape.
    """

    worst: float | None
    text: str
    rates: Mapping[Shape, Rate | None] = field(default_factory=dict)


def forecast(
    workers: Mapping[Shape, int],
    rates: Mapping[Shape, Rate | None],
    *,
    seconds: float,
    most: float,
    least: float,
    rents: bool = False,
) -> Forecast:
    """Say what a run may come to, before anything is rented.

    :param workers: how many there may be at once, by shape. :param rates: of each shape.
    :param seconds: the run limit; 0 for none. :param most: ``--remote-max-cost``; 0 for none.
    :param rents: whether workers are paid for, so that an unknown price is worth a word.
    :param least: seconds that a worker may take to end; they come on top of the limit.
    :raises UsageError: where the run may cost more, or nobody knows what it costs.
    """
    unknown = [shape for shape in workers if rates[shape] is None]
    if most and unknown:
        raise UsageError(
            f"--remote-max-cost={most:g}: {lacking(unknown)} (a line reads TYPE = USD, or what "
            "stands behind --remote= for TYPE, for one GPU and an hour), or leave out "
            "--remote-max-cost"
        )
    hourly = sum(rate.usd_per_hour * workers[shape] for shape, rate in _known(workers, rates))
    after = sum(rate.usd(rate.after) * workers[shape] for shape, rate in _known(workers, rates))
    if len(unknown) == len(workers):
        return Forecast(None, f"not known: {lacking(unknown)}" if rents and unknown else "")
    after += sum(
        rate.usd(least + rate.ending) * workers[shape] for shape, rate in _known(workers, rates)
    )
    worst = hourly * seconds / HOUR + after if seconds else None
    if most:
        worst = _capped(workers, hourly, after, seconds, most)
    return Forecast(None if unknown else worst, _words(worst, hourly, seconds, most, unknown))


def _known(
    workers: Mapping[Shape, int], rates: Mapping[Shape, Rate | None]
) -> list[tuple[Shape, Rate]]:
    return [(shape, rate) for shape in workers if (rate := rates[shape]) is not None]


def lacking(shapes: Iterable[Shape]) -> str:
    """Say of which shapes no price is known, and what to do about it."""
    return f"no price is known for {_names(shapes)}; give one in the ini option remotegpu_prices"


def _names(shapes: Iterable[Shape]) -> str:
    return " and ".join(map(str, sorted(shapes)))


def _capped(
    workers: Mapping[Shape, int],
    hourly: float,
    after: float,
    seconds: float,
    most: float,
) -> float:
    """Give the most that a run with a cap can cost.

    :raises UsageError: where that is more than the cap, or the cap lets no worker end.
    """
    number = sum(workers.values())
    who = f"{number} worker{'s' if number != 1 else ''} at {usd(hourly)} an hour together"
    if after > most * (1 + SLACK):
        raise UsageError(
            f"--remote-max-cost={most:g}: {who} cost {bound(after)} for starting and ending alone; "
            + _WAYS.format(shorter="").partition(", ")[2]
        )
    worst = hourly * seconds / HOUR + after
    if not seconds:
        return most if hourly or after else 0.0
    if worst > most * (1 + SLACK):
        fits = int((most - after) * HOUR / hourly)
        raise UsageError(
            f"--remote-max-cost={most:g}: this run may cost up to {bound(worst)}: {who}, for the "
            f"{seconds:g} s of the run limit; " + _WAYS.format(shorter=f" ({fits} s)")
        )
    return worst


def _words(
    worst: float | None, hourly: float, seconds: float, most: float, unknown: list[Shape]
) -> str:
    if worst is None:
        text = f"{usd(hourly)} an hour, without a limit"
    elif seconds or not most:
        text = f"at most {bound(worst)}, {usd(hourly)} an hour for {seconds:g} s and its end"
    else:
        text = f"at most {bound(worst)} (--remote-max-cost), {usd(hourly)} an hour"
    return f"{text}; no price is known for {_names(unknown)}" if unknown else text


def usd(amount: float) -> str:
    """Write an amount of money as people read it, never less than it is where it is small.

    >>> [usd(amount) for amount in (0, 0.00001, 0.0004, 0.0236, 0.594, 3.9492, 1234.5)]
    ['$0', '$0.0001', '$0.0004', '$0.024', '$0.594', '$3.95', '$1234.50']
    """
    return f"${max(amount, 0.0001):.{_digits(amount)}f}" if amount else "$0"


def bound(amount: float) -> str:
    """Write an amount that something may come to: never less than it is, and as short.

    >>> [bound(amount) for amount in (0, 0.00001, 0.0236, 0.5941, 1.8, 1.8001, 1234.5)]
    ['$0', '$0.0001', '$0.024', '$0.595', '$1.80', '$1.81', '$1234.50']
    """
    shown = 10 ** _digits(amount)
    return usd(math.ceil(round(amount * shown, 6)) / shown)


def _digits(amount: float) -> int:
    return 4 if amount < 0.001 else 3 if amount < 1 else 2  # noqa: PLR2004 -- what is read at ease
