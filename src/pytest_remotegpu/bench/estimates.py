"""Medians of repeated measurements, with an interval that says how far they can be trusted.

Values in, values out: no clock, no random numbers, no torch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["CONFIDENCE", "Estimate", "median", "ratio"]

CONFIDENCE: Final = 0.95
"""Share of repetitions of the whole measurement in which an interval has the true median."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that was measured several times.

    :ivar mid: the median.
    :ivar low: the lower end of its interval.
    :ivar high: the upper end.
    :ivar count: how often it was measured; 0 where only the number itself is known, which then
        stands in all three places.
    """

    mid: float
    low: float
    high: float
    count: int = 0

    @classmethod
    def exactly(cls, number: float) -> Estimate:
        """Take a number of which no interval is known."""
        return cls(number, number, number)

    @property
    def finite(self) -> bool:
        """Whether all of it are numbers."""
        return all(map(math.isfinite, (self.mid, self.low, self.high)))

    def __str__(self) -> str:
        if not self.count:
            return f"{self.mid:.2f}"
        return f"{self.mid:.2f} ({self.low:.2f} to {self.high:.2f})"


def median(samples: Iterable[float], confidence: float = CONFIDENCE) -> Estimate:
    """Give the median and its bootstrap interval.

    The interval is the percentile bootstrap's, without its noise: of a resample of ``n`` values the
    median is at most the ``k``-th smallest with the probability that a binomial variable of ``n``
    draws and chance ``k / n`` reaches the middle (B. Efron, "Bootstrap methods: another look at the
    jackknife", The Annals of Statistics 7, 1979, section 3; J. S. Maritz and R. G. Jarrett, "A note
    on estimating the variance of the sample median", JASA 73, 1978). So equal samples, in whatever
    order, give equal intervals. For an even count the interval is that of both middle values.

    :param samples: measurements, at least one; in any unit, which is that of the result.
    :param confidence: between 0 and 1, ends excluded.
    :raises ValueError: for no sample, one that is no finite number, or such a confidence.
    """
    found = sorted(samples)
    if not found:
        raise ValueError("a median of no measurement was asked for")
    for number in found:
        if not math.isfinite(number):
            raise ValueError(f"a measurement is {number}, which is no finite number")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, and has to lie between 0 and 1")
    tail = (1 - confidence) / 2
    count = len(found)
    low = found[_rank(count, (count + 1) // 2, tail) - 1]
    high = found[_rank(count, count // 2 + 1, 1 - tail) - 1]
    return Estimate(statistics.median(found), low, high, count)


def _rank(count: int, middle: int, chance: float) -> int:
    """Give the smallest rank that a resample's value of rank ``middle`` reaches so often."""
    low, high = 1, count
    while low < high:
        rank = (low + high) // 2
        if _at_least(count, middle, rank / count) >= chance:
            high = rank
        else:
            low = rank + 1
    return low


def _at_least(count: int, hits: int, chance: float) -> float:
    """Give the probability of so many hits or more in so many draws."""
    if chance >= 1:
        return 1.0
    logs = math.log(chance), math.log1p(-chance)
    total = math.lgamma(count + 1)
    return math.fsum(
        math.exp(
            total
            - math.lgamma(hit + 1)
            - math.lgamma(count - hit + 1)
            + hit * logs[0]
            + (count - hit) * logs[1]
        )
        for hit in range(hits, count + 1)
    )


def ratio(
    reference: Sequence[float], contestant: Sequence[float], confidence: float = CONFIDENCE
) -> Estimate:
    """Say how many times faster a contestant is than its reference.

    Both were timed in turns, so the times of one round belong together: what slows a round down
    slows both, and the median of the rounds' quotients does not see it.

    :param reference: times, one a round, in the same unit as the others.
    :param contestant: times of the same rounds.
    :raises ValueError: where they aren't equally many, or one is no positive finite number.
    """
    if len(reference) != len(contestant):
        raise ValueError(
            f"{len(reference)} rounds of the reference and {len(contestant)} of the contestant: "
            "a ratio needs both in each round"
        )
    for number in (*reference, *contestant):
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"a time is {number}, and has to be a positive finite number")
    return median((a / b for a, b in zip(reference, contestant, strict=True)), confidence)
