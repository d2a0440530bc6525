"""What is told of benchmarks, read: from reports, of which some come from far away, and from files.

Values only; what is not of this shape is refused, never guessed at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from pytest_remotegpu.bench.estimates import Estimate
from pytest_remotegpu.bench.measured import FORMAT, VERSION
from pytest_remotegpu.errors import RemoteGpuError

__all__ = ["MOST", "Benchmark", "Contestant", "Kept", "Timed", "clean", "read"]

MOST: Final = 1000
"""Benchmarks of one test that are taken in."""


class Rate(Struct, frozen=True):
    """What was achieved a second, what could be at most, and how that is known."""

    value: float
    ceiling: float | None
    of: str
    share: float | None


class Timed(Struct, frozen=True):
    """A contestant in one mode.

    :ivar ms: median of its times. :ivar low: of its interval. :ivar high: likewise.
    :ivar times: one a round; empty in a history.
    :ivar speedup: by the other's name, how many times as fast it is: middle, low, high.
    :ivar rates: by ``bytes`` and ``flops``.
    """

    ms: float
    low: float
    high: float
    times: list[float] = []
    speedup: dict[str, tuple[float, float, float]] = {}
    rates: dict[str, Rate] = {}

    def __post_init__(self) -> None:
        for number in (self.ms, self.low, self.high, *self.times):
            if not (math.isfinite(number) and number > 0):
                raise ValueError(f"a time is {number}")
        if not self.low <= self.ms <= self.high:
            raise ValueError(f"{self.ms} is not from {self.low} to {self.high}")

    @property
    def estimate(self) -> Estimate:
        """The median with its interval, in milliseconds."""
        return Estimate(self.ms, self.low, self.high, len(self.times))

    def over(self, other: str) -> Estimate | None:
        """Give the speedup over another contestant; ``None`` where there is none."""
        return Estimate(*self.speedup[other]) if other in self.speedup else None


class Contestant(Struct, frozen=True):
    """One contestant in all modes."""

    name: str
    modes: dict[str, Timed]
    first_ms: float | None = None
    host_ms: float | None = None
    bound: str = ""
    uncaptured: str = ""
    bytes: float | None = None
    flops: float | None = None


class Benchmark(Struct, frozen=True):
    """What one call of ``gpu_benchmark`` has come to, as ``Result.plain`` gives it."""

    format: str
    version: int
    environment: dict[str, Any]
    contestants: list[Contestant]
    group: str = ""
    valid: bool = True
    why: str = ""
    notes: list[str] = []
    warmup: int = 0
    l2: dict[str, str] = {}
    state: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if (self.format, self.version) != (FORMAT, VERSION):
            raise ValueError(
                f"it is {self.format} in version {self.version}, not {FORMAT} in {VERSION}"
            )
        if not self.contestants:
            raise ValueError("it has no contestant")

    def timed(self) -> Iterator[tuple[str, str, Timed]]:
        """Give names of contestants, modes, and the times of each pair."""
        for one in self.contestants:
            for mode, found in one.modes.items():
                yield one.name, mode, found

    @property
    def held_back(self) -> list[str]:
        """What held its card back, in words."""
        found = self.state.get("held_back")
        return sorted(map(str, found)) if isinstance(found, list) else []


class Kept(Struct, frozen=True):
    """A benchmark with the test that it belongs to.

    :ivar test: its id. :ivar index: of the call in that test, from 0.
    :ivar outcome: of the test.
    """

    test: str
    index: int
    outcome: str
    benchmark: Benchmark


def read(test: str, outcome: str, given: Any) -> list[Kept]:
    """Read what a report tells.

    :param given: what a report has as ``gpu_benchmark``.
    :raises RemoteGpuError: for what is none of it.
    """
    if not isinstance(given, Sequence) or len(given) > MOST:
        raise RemoteGpuError(f"{test}: what came as its benchmarks is no list of at most {MOST}")
    try:
        json.dumps(given, allow_nan=False)
        return [
            Kept(test, index, outcome, msgspec.convert(one, Benchmark))
            for index, one in enumerate(given)
        ]
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        raise RemoteGpuError(f"{test}: its benchmark can't be read: {clean(error)}") from None


def clean(value: object) -> str:
    """Give a text of which each character can be printed, and none moves a cursor."""
    return "".join(one if one.isprintable() else "?" for one in str(value))
