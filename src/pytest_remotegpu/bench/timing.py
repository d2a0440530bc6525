"""What is timed, how often and in which order; who holds the clock is a :class:`Timer`.

Knows neither torch nor pytest, and no clock of its own.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from pytest_remotegpu.errors import RemoteGpuError, UsageError

__all__ = [
    "FEWEST",
    "Budget",
    "Call",
    "CaptureError",
    "Mode",
    "Rotating",
    "Timer",
    "Timing",
    "measure",
    "order",
    "rotating",
    "timed",
]

Call = Callable[[], object]
"""What is timed: everything that it needs is bound to it, and its result is dropped."""
FEWEST: Final = 5
"""Rounds that an interval needs: the true median lies outside of 5 samples in 1 of 16 cases."""


class Mode(StrEnum):
    """Which time is taken.

    Eager has Python and launches in it, as a caller without CUDA graphs has; graph is the card's
    own time, as the replay of a graph has it; wall is that of a clock on the wall, for a CPU.
    """

    EAGER = "eager"
    GRAPH = "graph"
    WALL = "wall"


class CaptureError(RemoteGpuError):
    """Raised when a call can't be captured as a CUDA graph, with the reason.

    :ivar contestant: whose call it was; empty where it had no name.
    """

    contestant = ""


class Timer(Protocol):
    """Who holds the clock.

    :ivar modes: what it can do.
    """

    modes: tuple[Mode, ...]

    def prepare(self, call: Call, mode: Mode) -> Call:
        """Make a call ready for a mode; it has run once.

        :raises CaptureError: where it can't be captured as a graph.
        """
        ...

    def rounds(self, calls: Sequence[Call], count: int, mode: Mode) -> list[list[float]]:
        """Time all calls in turns; all of it is queued before the one wait.

        :param calls: what :meth:`prepare` gave.
        :param count: rounds.
        :return: milliseconds of one call, by call and round.
        """
        ...

    def settle(self) -> None:
        """Wait until nothing runs any more."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """How often; in calls, since start-up would eat up seconds.

    :ivar warmup: rounds after the first call has ended that are not counted.
    :ivar rounds: that are.
    """

    warmup: int = 20
    rounds: int = 40

    def __post_init__(self) -> None:
        for name, least in (("warmup", 0), ("rounds", FEWEST)):
            number = getattr(self, name)
            if type(number) is not int or number < least:
                why = ", which an interval needs" if name == "rounds" else ""
                raise UsageError(
                    f"{name} is {number!r}", fix=f"give a whole number of {least} or more{why}"
                )


@dataclass(frozen=True, slots=True)
class Timing:
    """What was timed.

    :ivar times: by name, milliseconds of one call, one a round; rounds belong together.
    :ivar first: by name, milliseconds of the first call, in which code is compiled and loaded.
    """

    times: Mapping[str, tuple[float, ...]]
    first: Mapping[str, float]


@dataclass(slots=True)
class Rotating:
    """A call that takes turns through copies, so that a cache does not hold the next one's data.

    :ivar calls: one for each copy.
    """

    calls: Sequence[Call]
    _next: int = field(default=0, init=False)

    def __call__(self) -> object:
        """Call the next copy's."""
        call = self.calls[self._next]
        self._next = (self._next + 1) % len(self.calls)
        return call()


def rotating(make: Callable[[], Call], copies: int) -> Rotating:
    """Give a call that takes turns through several copies of its inputs.

    :param make: gives the same call on inputs of its own, each time that it is called.
    :raises UsageError: for less than one copy.
    """
    if copies < 1:
        raise UsageError(f"copies is {copies!r}", fix="give 1 or more")
    return Rotating([make() for _ in range(copies)])


def order(calls: int, turn: int) -> list[int]:
    """Give the order of so many calls in a round: each one begins in its turn."""
    return [(turn + place) % calls for place in range(calls)]


def measure(
    calls: Mapping[str, Call], timer: Timer, *, mode: Mode, budget: Budget | None = None
) -> dict[str, tuple[float, ...]]:
    """Time contestants in turns; see :func:`timed`, which gives the first calls' times too.

    :return: by name, milliseconds of one call, one a round; rounds of all names belong together.
    """
    return dict(timed(calls, timer, mode=mode, budget=budget).times)


def timed(
    calls: Mapping[str, Call],
    timer: Timer,
    *,
    mode: Mode,
    budget: Budget | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time contestants in turns, after the same warm-up for each.

    The first call of each is apart: what is compiled, loaded and made there is in no round.

    :param calls: by name.
    :param clock: seconds, for the first calls.
    :raises UsageError: where there is nothing to time, or the timer can't do the mode.
    :raises CaptureError: where one can't be captured as a graph; its name is in the message.
    :raises RemoteGpuError: for a time that is no positive finite number.
    :raises Exception: whatever a contestant raises, with a note that names it.
    """
    if not calls:
        raise UsageError("there is nothing to time", fix="give one contestant or more")
    if mode not in timer.modes:
        can = ", ".join(timer.modes)
        raise UsageError(f"{type(timer).__name__} can't time in the mode {mode}", fix=f"give {can}")
    budget = budget or Budget()
    first = {name: _first(name, call, timer, clock) for name, call in calls.items()}
    ready = [_ready(name, call, timer, mode) for name, call in calls.items()]
    with _no_collection():
        if budget.warmup:
            timer.rounds(ready, budget.warmup, mode)
        found = timer.rounds(ready, budget.rounds, mode)
    timer.settle()
    times = {name: tuple(one) for name, one in zip(calls, found, strict=True)}
    for name, one in times.items():
        _check(name, one, budget.rounds)
    return Timing(times, first)


def _first(name: str, call: Call, timer: Timer, clock: Callable[[], float]) -> float:
    timer.settle()
    with _named(name, "in its first call"):
        begun = clock()
        call()
        timer.settle()
        return (clock() - begun) * 1000


def _ready(name: str, call: Call, timer: Timer, mode: Mode) -> Call:
    try:
        with _named(name, f"when it was made ready for the mode {mode}"):
            return timer.prepare(call, mode)
    except CaptureError as error:
        named = CaptureError(f"{name}: {error.what}", fix=error.fix)
        named.contestant = name
        raise named from error


@contextlib.contextmanager
def _named(name: str, when: str) -> Iterator[None]:
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        error.add_note(f"raised by the contestant {name!r} {when}")
        raise


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let no collection of garbage fall into a round."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _check(name: str, times: Sequence[float], count: int) -> None:
    if len(times) != count:
        raise RemoteGpuError(f"the timer gave {len(times)} times of {name!r} for {count} rounds")
    for number in times:
        if not (math.isfinite(number) and number > 0):
            raise RemoteGpuError(
                f"a round of {name!r} took {number} ms, which is no time",
                fix="look whether it does anything, and whether the clock goes",
            )
