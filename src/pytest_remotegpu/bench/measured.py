"""What a benchmark has come to: numbers with their intervals, verdicts, and all of it as data.

Values only; knows neither torch nor pytest nor any clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_remotegpu.bench.estimates import Estimate, median, ratio
from pytest_remotegpu.bench.timing import Mode
from pytest_remotegpu.errors import UsageError

__all__ = ["FORMAT", "VERSION", "Entrant", "Rate", "Result", "Verdict", "text_of", "time_of"]

FORMAT: Final = "pytest-remotegpu/benchmark"
VERSION: Final = 1
"""Grows where a key goes, or comes to mean something else; not where one is added."""
HOST, DEVICE = "host-bound", "device-bound"
FEW: Final = 0.1
HIDDEN: Final = 1.1
"""So many times the graph's time an eager call lasts at least that waits for its host."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What was achieved, and of what.

    :ivar value: bytes or operations a second. :ivar ceiling: the same, as measured on the card;
        ``None`` where nothing is known. :ivar of: how that was measured, in words.
    """

    value: float
    ceiling: float | None
    of: str = ""

    @property
    def share(self) -> float | None:
        """The part of the ceiling; 1 is all of it."""
        return self.value / self.ceiling if self.ceiling else None

    def plain(self) -> dict[str, Any]:
        """Give it as data."""
        return {
            "value": self.value,
            "ceiling": self.ceiling,
            "of": self.of,
            "share": self.share,
        }


@dataclass(frozen=True, slots=True)
class Entrant:
    """One contestant, timed.

    :ivar first: milliseconds of its first call, with all that is compiled and loaded there.
    :ivar times: by mode, milliseconds of one call, one a round.
    :ivar host: milliseconds that the host takes to issue a call; ``None`` on a CPU.
    :ivar uncaptured: why there is no graph; empty where there is one, or none was wanted.
    :ivar moved: bytes that a call reads and writes. :ivar flops: operations of a call.
    :ivar rates: by mode, achieved bytes (``bytes``) and operations (``flops``) a second.
    """

    first: float
    times: Mapping[Mode, tuple[float, ...]]
    host: float | None = None
    uncaptured: str = ""
    moved: float | None = None
    flops: float | None = None
    rates: Mapping[Mode, Mapping[str, Rate]] = field(default_factory=dict)

    def bound(self) -> str:
        """Say whether its host or its card keeps a call waiting; nothing on a CPU."""
        if self.host is None or Mode.EAGER not in self.times:
            return ""
        eager = median(self.times[Mode.EAGER])
        if Mode.GRAPH not in self.times:
            return HOST if self.host * HIDDEN > eager.mid else DEVICE
        graph = median(self.times[Mode.GRAPH])
        waits = eager.low > HIDDEN * graph.high and self.host >= graph.mid
        return HOST if waits else DEVICE


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one is faster than another by a margin; true or false, and says why.

    :ivar holds: whether it is, for certain.
    :ivar text: both numbers, their quotient with its interval, and the margin.
    """

    holds: bool
    text: str

    def __bool__(self) -> bool:
        return self.holds

    def __repr__(self) -> str:
        return f"<{self.text}>"


def _refuse(why: str) -> None:
    """Let what is not valid be judged all the same; who has a session does better."""
    del why


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """What one call of ``gpu_benchmark`` has come to.

    :ivar entrants: by name; the first one is on trial.
    :ivar l2: by mode, ``cold`` or ``warm``: whether the card's cache held what a call reads;
        nothing on a CPU.
    :ivar environment: what else the numbers depend on, as data.
    :ivar state: what the card was seen to do, as data; empty on a CPU.
    :ivar why: what makes it invalid; empty where nothing does.
    :ivar notes: what else there is to know.
    :ivar refuse: is called with ``why`` where an invalid result is to be judged.
    """

    entrants: Mapping[str, Entrant]
    l2: Mapping[Mode, str]
    environment: Mapping[str, Any]
    state: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    notes: tuple[str, ...] = ()
    group: str = ""
    warmup: int = 0
    refuse: Callable[[str], None] = _refuse

    @property
    def valid(self) -> bool:
        """Whether the numbers can be trusted; of a card that was slowed down they can't."""
        return not self.why

    @property
    def trial(self) -> str:
        """The name of the contestant on trial."""
        return next(iter(self.entrants))

    @property
    def mode(self) -> Mode:
        """The mode that counts where none is named: the first one."""
        return next(iter(self.entrants[self.trial].times))

    def __repr__(self) -> str:
        return f"<benchmark of {', '.join(self.entrants)}>"

    def times(self, name: str | None = None, *, mode: str | None = None) -> tuple[float, ...]:
        """Give the milliseconds of one call, one a round.

        :param name: of a contestant; the one on trial without it.
        :param mode: ``eager``, ``graph`` or ``wall``; the first one without it.
        :raises UsageError: for an unknown name, or a mode that was not timed.
        """
        entrant = self._entrant(self.trial if name is None else name)
        wanted = self.mode if mode is None else mode
        for each, found in entrant.times.items():
            if each == wanted:
                return found
        why = f": {entrant.uncaptured}" if entrant.uncaptured and wanted == Mode.GRAPH else ""
        raise UsageError(
            f"{name or self.trial} was not timed in the mode {wanted!r}{why}",
            fix=f"there is {', '.join(entrant.times)}",
        )

    def ms(self, name: str | None = None, *, mode: str | None = None) -> Estimate:
        """Give the median of a contestant's times with its interval, in milliseconds.

        :raises UsageError: as :meth:`times`.
        """
        return median(self.times(name, mode=mode))

    def speedup(self, over: str, *, of: str | None = None, mode: str | None = None) -> Estimate:
        """Say how many times as fast one contestant is as another, by the rounds' quotients.

        :param over: the one that it is compared with. :param of: the one on trial without it.
        :raises UsageError: as :meth:`times`.
        """
        return ratio(self.times(over, mode=mode), self.times(of, mode=mode))

    def faster_than(
        self, reference: str, *, by: float = 1.0, of: str | None = None, mode: str | None = None
    ) -> Verdict:
        """Judge whether one contestant is faster than another by a margin, for certain.

        The lower end of the quotient's interval has to reach the margin.

        :param reference: the name of the other one. :param by: 1.2 asks for 20 % faster.
        :param of: the one on trial without it. :param mode: the first one without it.
        :raises UsageError: as :meth:`times`; for a margin that is no positive finite number.
        """
        if not (isinstance(by, int | float) and math.isfinite(by) and by > 0):
            raise UsageError(f"by is {by!r}", fix="give a factor: 1.2 asks for 20 % faster")
        name = self.trial if of is None else of
        if name == reference:
            raise UsageError(f"{name} is compared with itself", fix=self._others(name))
        quotient = self.speedup(reference, of=name, mode=mode)
        if not self.valid:
            self.refuse(self.why)
        holds = quotient.low >= by
        used = self.mode if mode is None else mode
        mine, its = self.ms(name, mode=mode), self.ms(reference, mode=mode)
        need = f"{by:g} is {'kept' if holds else 'needed for certain'}"
        text = (
            f"{name} is x{text_of(quotient)} as fast as {reference}, {need}: "
            f"{time_of(mine)} against {time_of(its)}, {used}"
        )
        return Verdict(holds, text)

    def _others(self, name: str) -> str:
        others = ", ".join(other for other in self.entrants if other != name)
        return f"give one of {others}" if others else "hand in a reference as well"

    def _entrant(self, name: str) -> Entrant:
        if name not in self.entrants:
            known = ", ".join(self.entrants)
            raise UsageError(f"there is no contestant {name!r}", fix=f"there is {known}")
        return self.entrants[name]

    def plain(self) -> dict[str, Any]:
        """Give all of it as data that JSON can hold."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "group": self.group,
            "valid": self.valid,
            "why": self.why,
            "notes": list(self.notes),
            "warmup": self.warmup,
            "l2": {str(mode): word for mode, word in self.l2.items()},
            "environment": dict(self.environment),
            "state": dict(self.state),
            "contestants": [self._plain(name) for name in self.entrants],
        }

    def _plain(self, name: str) -> dict[str, Any]:
        entrant = self.entrants[name]
        return {
            "name": name,
            "first_ms": entrant.first,
            "host_ms": entrant.host,
            "bound": entrant.bound(),
            "uncaptured": entrant.uncaptured,
            "bytes": entrant.moved,
            "flops": entrant.flops,
            "modes": {str(mode): self._mode(name, mode) for mode in entrant.times},
        }

    def _mode(self, name: str, mode: Mode) -> dict[str, Any]:
        entrant = self.entrants[name]
        found = self.ms(name, mode=mode)
        speedups = {}
        for other in self.entrants:
            if other != name and mode in self.entrants[other].times:
                quotient = self.speedup(other, of=name, mode=mode)
                speedups[other] = [quotient.mid, quotient.low, quotient.high]
        return {
            "ms": found.mid,
            "low": found.low,
            "high": found.high,
            "times": list(entrant.times[mode]),
            "speedup": speedups,
            "rates": {what: rate.plain() for what, rate in entrant.rates.get(mode, {}).items()},
        }


def text_of(number: Estimate) -> str:
    """Print a median and its interval with four digits that count: ``1.234 (1.201 to 1.260)``."""
    return f"{number.mid:.4g} ({number.low:.4g} to {number.high:.4g})"


def time_of(number: Estimate) -> str:
    """Print milliseconds, or microseconds where there are few: ``81.2 (80.9 to 81.3) us``."""
    if number.mid >= FEW:
        return f"{text_of(number)} ms"
    return f"{text_of(Estimate(1000 * number.mid, 1000 * number.low, 1000 * number.high))} us"
