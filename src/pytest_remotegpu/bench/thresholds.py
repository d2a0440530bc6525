"""From which size on one way is worth taking: the rule and its words.

Values in, values out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Final

from pytest_remotegpu.bench.estimates import Estimate

__all__ = [
    "LARGEST",
    "NEVER",
    "OFF",
    "Answer",
    "Span",
    "Threshold",
    "compressed_length",
    "in_words",
    "passes",
    "span",
    "threshold",
    "together",
]

NEVER: Final = 999999
"""What stands for "never" in a configuration: longer than any sequence."""
LARGEST: Final = 10**9
"""Longer than any sequence, whatever a document says."""
OFF: Final = frozenset({-1, 0, 8192, NEVER})
"""Values of configurations that mean "off"; all but the last are read only."""


class Answer(StrEnum):
    """The four things that a rule can say."""

    FROM = "from"
    ALWAYS = "always"
    NEVER = "never"
    NO_DATA = "no data"


@dataclass(frozen=True, slots=True)
class Threshold:
    """From which size on a margin is kept.

    :ivar answer: which of the four.
    :ivar value: the smallest measured size from which it and all larger ones keep the margin; the
        smallest that was measured where the answer is "always", ``None`` for the other two.
    :ivar margin: the factor by which the way had to be faster, for instance 1.2.
    :ivar unit: of sizes, for instance ``S``.
    :ivar why: the reason, in a sentence without its stop.
    """

    answer: Answer
    value: int | None
    margin: float
    unit: str
    why: str

    @property
    def number(self) -> int | None:
        """What a configuration gets; ``None`` where nothing was measured and it stays as it is.

        A size that configurations have for "off" is written as the next one, which is a size more
        than is known to be needed, and no other answer.
        """
        if self.answer is Answer.NEVER:
            return NEVER
        return self.value + 1 if self.value is not None and self.value in OFF else self.value

    def __str__(self) -> str:
        if self.answer is Answer.FROM:
            return f"from {self.unit} = {self.value}{self._told}"
        if self.answer is Answer.ALWAYS:
            return f"always (measured from {self.unit} = {self.value}{self._told})"
        return str(self.answer)

    @property
    def _told(self) -> str:
        written = self.number != self.value
        return f", written as {self.number} since {self.value} stands for off" if written else ""

    def __lt__(self, other: Threshold) -> bool:
        """Whether this one lets the way be taken earlier; unknown is later than anything."""
        return _order(self) < _order(other)


def _order(one: Threshold) -> tuple[int, int]:
    ranks = {Answer.ALWAYS: 0, Answer.FROM: 0, Answer.NEVER: 1, Answer.NO_DATA: 2}
    return ranks[one.answer], one.value or 0


def in_words(margin: float) -> str:
    """Print a margin exactly: ``1.2 (20 % faster)``.

    :raises ValueError: where it is no positive finite number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(f"the margin is {margin}, and has to be a positive finite number")
    percent = (Decimal(repr(float(margin))) - 1) * 100
    return f"{margin:g} ({abs(percent.normalize()):f} % {'faster' if percent >= 0 else 'slower'})"


def compressed_length(length: int, block: int, stride: int) -> int:
    """Give the number of compressed tokens of a sequence, ``(length - block) // stride + 1``.

    :param length: tokens.
    :param block: tokens that are compressed into one.
    :param stride: tokens from one block's begin to the next one's.
    :return: 0 where the sequence is shorter than a block.
    :raises ValueError: where one of them is not positive.
    """
    for name, number in (("length", length), ("block", block), ("stride", stride)):
        if number < 1:
            raise ValueError(f"{name} is {number}, and has to be 1 or more")
    return (length - block) // stride + 1 if length >= block else 0


def passes(speedup: Estimate, margin: float) -> bool:
    """Say whether a speedup keeps a margin for certain: its interval's lower end does.

    What is no number keeps none.
    """
    return speedup.finite and speedup.low >= margin


def threshold(
    speedups: Iterable[tuple[int, Estimate]], *, margin: float, unit: str = "S"
) -> Threshold:
    """Find the smallest size from which it and all larger ones keep the margin.

    A size that comes several times (several windows, several runs) has to keep it each time.

    :param speedups: sizes in ``unit`` and how many times faster the way is there, in any order.
    :param margin: 1.2 asks for 20 % faster.
    :raises ValueError: where the margin is no positive finite number.
    """
    in_words(margin)
    kept: dict[int, bool] = {}
    worst: dict[int, Estimate] = {}
    for size, speedup in speedups:
        kept[size] = kept.get(size, True) and passes(speedup, margin)
        worst[size] = min(worst.get(size, speedup), speedup, key=_certain)
    if not kept:
        return Threshold(Answer.NO_DATA, None, margin, unit, "nothing was measured")
    found, failed = None, None
    for size in sorted(kept, reverse=True):
        if not kept[size]:
            failed = size
            break
        found = size
    if failed is None:
        why = f"each of {len(kept)} measured sizes keeps {margin:g}"
        return Threshold(Answer.ALWAYS, found, margin, unit, why)
    at = f"at {unit} = {failed} the speedup is {worst[failed]}, for certain {_floor(worst[failed])}"
    if found is None:
        return Threshold(
            Answer.NEVER, None, margin, unit, f"{at}: the largest size does not keep {margin:g}"
        )
    return Threshold(Answer.FROM, found, margin, unit, f"{at}: below {margin:g}")


def together(
    groups: Iterable[Iterable[tuple[int, Estimate]]], *, margin: float, unit: str = "S"
) -> Threshold:
    """Find the size from which each of several groups, such as windows, keeps the margin.

    Where all have the same sizes it is that of :func:`threshold` for all of them together. Where
    they have not, a size at which one of them was not measured says nothing about that one, which
    has to keep the margin at a size of its own.

    :param groups: of each its sizes and speedups, in any order.
    :raises ValueError: as :func:`threshold`.
    """
    several = [list(group) for group in groups]
    whole = threshold((each for group in several for each in group), margin=margin, unit=unit)
    alone = [threshold(group, margin=margin, unit=unit) for group in several if group]
    latest = max(alone, default=whole, key=lambda one: (*_order(one), one.why))
    if whole.value is None or latest.value == whole.value:
        return whole
    if latest.value is None:
        return latest
    why = f"{whole.why}; not all were measured from {unit} = {whole.value} on"
    return replace(whole, value=max(whole.value, latest.value), why=why)


def _certain(speedup: Estimate) -> tuple[float, float, float]:
    if not speedup.finite:
        return (-math.inf,) * 3
    return speedup.low, speedup.mid, speedup.high


def _floor(speedup: Estimate) -> str:
    return f"{speedup.low:.3g}" if speedup.finite else "nothing"


# several runs


@dataclass(frozen=True, slots=True)
class Span:
    """What several runs of the same measurement say.

    :ivar first: the earliest of their thresholds.
    :ivar last: the latest, which is the one to be safe with.
    :ivar runs: how many there were.
    """

    first: Threshold
    last: Threshold
    runs: int

    @property
    def agreed(self) -> bool:
        """Whether all runs say the same."""
        return (self.first.answer, self.first.value) == (self.last.answer, self.last.value)

    def __str__(self) -> str:
        times = "one run" if self.runs == 1 else f"{self.runs} runs"
        if self.agreed:
            return f"{self.last} in {times}"
        return f"{self.first} to {self.last} in {times}"


def span(thresholds: Iterable[Threshold]) -> Span:
    """Put the thresholds of several runs together; unequal ones are an interval.

    :raises ValueError: where there is none, or they are of different margins or units.
    """
    found = sorted(thresholds)
    if not found:
        raise ValueError("there is no run to put together")
    kinds = {(one.margin, one.unit) for one in found}
    if len(kinds) > 1:
        raise ValueError(f"runs of different margins or units can't be put together: {kinds}")
    return Span(found[0], found[-1], len(found))
