"""From rows to speedups, from those to maps, and from maps to what a configuration gets.

Values in, values out. The rule itself is that of :mod:`pytest_remotegpu.bench.thresholds`.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pytest_remotegpu.bench import thresholds
from pytest_remotegpu.bench.estimates import Estimate, ratio
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import (
    FA2,
    FLASH,
    MASKED,
    Branch,
    Direction,
    Parity,
    Problem,
    Regime,
    Row,
)
from pytest_remotegpu.bench.lines import Selection, parse
from pytest_remotegpu.bench.maps import Map
from pytest_remotegpu.bench.thresholds import Answer, Span, Threshold, span, threshold, together

__all__ = [
    "KEYS",
    "MARGINS",
    "REFERENCES",
    "Cell",
    "Judgement",
    "Question",
    "Setting",
    "alone",
    "cells",
    "judge",
    "merged",
    "spans",
    "worst",
]

MARGINS: Final = (1.1, 1.2, 1.5)
"""The margins that every document answers for."""
REFERENCES: Final = (MASKED, FLASH)
"""What FlashAttention-2 is compared with."""
WIN, CMP, SEL = KEYS = ("fa2_min_len_win", "fa2_min_len_cmp", "sel_triton_min_L")
"""The scalar keys: of sliding windows, compressed tokens, selected blocks."""
UNITS: Final = {WIN: "S", CMP: "num_cmp", SEL: "L"}


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be decided.

    :ivar regime: which time counts. :ivar margin: how many times faster it has to be.
    :ivar reference: the column that it has to be faster than.
    :ivar windows: those of the user, in tokens; empty for all that were measured.
    :ivar directions: likewise.
    """

    regime: Regime = Regime.EAGER
    margin: float = 1.2
    reference: str = MASKED
    windows: tuple[int, ...] = ()
    directions: tuple[Direction, ...] = ()

    def __str__(self) -> str:
        windows = f", windows {', '.join(map(str, self.windows))}" if self.windows else ""
        directions = f", {' and '.join(self.directions)}" if self.directions else ""
        margin = thresholds.in_words(self.margin)
        return f"{self.regime} time, margin {margin} against {self.reference}{windows}{directions}"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """What problems of one map have in common."""

    direction: Direction
    dtype: str
    batch: int
    groups: int
    heads: int
    width: int
    value_width: int

    @classmethod
    def of(cls, problem: Problem) -> Setting:
        """Take it from a problem."""
        sizes = problem.batch, problem.groups, problem.heads, problem.width, problem.value_width
        return cls(problem.direction, problem.dtype, *sizes)

    def __str__(self) -> str:
        if self == UNKNOWN:
            return "sizes not said"
        return (
            f"{self.direction}, {self.dtype}, B={self.batch} G={self.groups} h={self.heads} "
            f"Dk={self.width} Dv={self.value_width}"
        )


UNKNOWN: Final = Setting(Direction.FORWARD, "", 0, 0, 0, 0, 0)
"""Of documents that others have written, which do not say it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """How many times faster FlashAttention-2 was at one problem, in one repetition.

    :ivar size: in the unit of its threshold: tokens, or compressed tokens.
    :ivar window: in tokens; 0 for the compressed branch.
    :ivar speedup: not finite where it could not be timed, which keeps no margin.
    :ivar reference_ms: median of the reference's times. :ivar own_ms: of FlashAttention-2's.
    :ivar why: the reason where it was not timed. :ivar block: tokens that are compressed into one.
    :ivar stride: tokens from one's begin to the next one's; both 0 for the sliding branch.
    """

    branch: Branch
    setting: Setting
    length: int
    size: int
    window: int
    repetition: int
    speedup: Estimate
    reference_ms: float
    own_ms: float
    why: str = ""
    block: int = 0
    stride: int = 0


def cells(measured: Measured, regime: Regime, reference: str) -> tuple[Cell, ...]:
    """Give the speedups of a regime against a reference, in the order of the sweep.

    A problem that the reference could not compute has none, and neither has any where
    FlashAttention-2 was not there at all. Documents of others are of eager time and have one
    reference only.
    """
    if measured.results and not measured.rows:
        known = (regime, reference) == (Regime.EAGER, MASKED)
        return tuple(_cells_of_others(measured)) if known else ()
    of_reference = {
        (row.problem, row.repetition): row
        for row in measured.rows
        if row.regime is regime and row.column == reference and row.times
    }
    own = [row for row in measured.rows if row.column == FA2]
    if not any(row.times or row.parity is not Parity.NOT_CHECKED for row in own):
        return ()
    return tuple(
        _cell(of_reference[row.problem, row.repetition], row)
        for row in own
        if row.regime is regime and (row.problem, row.repetition) in of_reference
    )


def _cells_of_others(measured: Measured) -> Iterable[Cell]:
    for one in measured.results:
        compressed = one.branch is Branch.COMPRESSED
        block, stride = (one.block, one.stride) if compressed else (0, 0)
        size = _size(one.length, block, stride)
        where = one.branch, UNKNOWN, one.length, size, one.window or 0, 1
        times = Estimate.exactly(one.speedup), one.masked_ms, one.fa2_ms
        yield Cell(*where, *times, block=block, stride=stride)


def _size(length: int, block: int, stride: int) -> int:
    """Give the size in the unit of its threshold."""
    return thresholds.compressed_length(length, block, stride) if block and stride else length


def _cell(reference: Row, own: Row) -> Cell:
    problem = own.problem
    why, block, stride = own.why, problem.block or 0, problem.stride or 0
    size = _size(problem.length, block, stride)
    speedup, trouble = _speedup(reference.times, own.times)
    why = why or trouble
    where = problem.branch, Setting.of(problem), problem.length, size, problem.window or 0
    times = speedup, _middle(reference), _middle(own)
    return Cell(*where, own.repetition, *times, why, block, stride)


@lru_cache(maxsize=2**15)  # the same rows are judged for many margins
def _speedup(reference: tuple[float, ...], own: tuple[float, ...]) -> tuple[Estimate, str]:
    """Divide times, and say why that can't be."""
    try:
        return ratio(reference, own), ""
    except ValueError as error:
        return Estimate.exactly(math.nan), str(error)


def _middle(row: Row) -> float:
    return statistics.median(row.times) if row.times else math.nan


def merged(found: Iterable[Cell]) -> Map:
    """Put the repetitions of one setting together: the middle one's speedup, the widest interval.

    A cell that is not finite in one of them is not finite.
    """
    groups: dict[tuple[int, int], list[Estimate]] = defaultdict(list)
    for cell in found:
        groups[cell.size, cell.window].append(cell.speedup)
    return Map({place: _together(each) for place, each in groups.items()})


def _together(several: list[Estimate]) -> Estimate:
    if not all(one.finite for one in several):
        return Estimate.exactly(math.nan)
    middle = sorted(one.mid for one in several)[(len(several) - 1) // 2]
    low, high = min(one.low for one in several), max(one.high for one in several)
    return Estimate(middle, low, high, sum(one.count for one in several))


def worst(found: Iterable[Cell]) -> Map:
    """Give the map of what is certain in each setting and repetition alike."""
    lowest: dict[tuple[int, int], Estimate] = {}
    for cell in found:
        place = cell.size, cell.window
        lowest[place] = min(lowest.get(place, cell.speedup), cell.speedup, key=_certain)
    return Map(lowest)


def _certain(speedup: Estimate) -> float:
    return speedup.low if speedup.finite else -math.inf


# what a configuration gets


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is decided.

    :ivar parity: whether it may be recommended at all. :ivar trouble: why not; empty where it may.
    :ivar spans: by key, what the repetitions say.
    :ivar map: of sliding windows, what is certain in each setting and repetition.
    :ivar beyond: cells ``(length, window)`` that keep the margin and that no scalar can express.
    :ivar rule: in two dimensions: by window, the length from which it is worth it.
    """

    question: Question
    parity: Parity
    trouble: str
    spans: Mapping[str, Span]
    map: Map
    beyond: tuple[tuple[int, int], ...]
    rule: Mapping[int, int | None]

    def number(self, key: str) -> int | None:
        """Give what a configuration gets; ``None`` where it stays as it is."""
        return None if self.trouble else self.spans[key].last.number

    @property
    def recommendation(self) -> dict[str, int | None]:
        """The same for each key."""
        return {key: self.number(key) for key in KEYS}

    @property
    def status(self) -> int:
        """The exit status: 0 where there is an answer, 1 for parity, 5 where nothing is known."""
        if self.parity is Parity.FAILED:
            return 1
        known = any(self.number(key) is not None for key in KEYS)
        return 0 if known and not self.trouble else 5


def spans(measured: Measured, question: Question) -> dict[str, Span]:
    """Find the thresholds of each key, whatever parity says.

    A window of the user's that was not measured, or a setting that was not in this regime, leaves
    its key without an answer: nobody knows how it would do.
    """
    found = _asked(measured, question)
    kinds = {WIN: Branch.SLIDING, CMP: Branch.COMPRESSED}
    answers = {
        key: span(
            together(_groups(found, branch, n), margin=question.margin, unit=UNITS[key])
            for n in measured.repetitions
        )
        for key, branch in kinds.items()
    }
    for key, branch in kinds.items():
        if why := _lacking(measured, question, branch, found):
            nothing = Threshold(Answer.NO_DATA, None, question.margin, UNITS[key], why)
            answers[key] = span([nothing] * len(measured.repetitions))
    rows = [row for row in parse(measured.selection_output).rows if isinstance(row, Selection)]
    points = ((row.length, Estimate.exactly(row.speedup)) for row in rows)
    return {**answers, SEL: span([threshold(points, margin=question.margin, unit=UNITS[SEL])])}


def _groups(
    found: Iterable[Cell], branch: Branch, repetition: int
) -> Iterable[list[tuple[int, Estimate]]]:
    """Give sizes and speedups of a repetition, by what each has to keep the margin for itself."""
    groups: dict[tuple[Setting, int], list[tuple[int, Estimate]]] = {}
    for cell in found:
        if (cell.branch, cell.repetition) == (branch, repetition):
            groups.setdefault((cell.setting, cell.window), []).append((cell.size, cell.speedup))
    return groups.values()


def _lacking(measured: Measured, question: Question, branch: Branch, found: Iterable[Cell]) -> str:
    """Say what is asked about and was not measured; empty where nothing is."""
    cells_of_it = [cell for cell in found if cell.branch is branch]
    windows = sorted(set(question.windows) - {cell.window for cell in cells_of_it})
    if windows and branch is Branch.SLIDING:
        return f"window {', '.join(map(str, windows))} was not measured"
    settings = {
        Setting.of(row.problem)
        for row in measured.rows
        if row.problem.branch is branch
        and (not question.directions or row.problem.direction in question.directions)
    }
    missing = sorted(settings - {cell.setting for cell in cells_of_it})
    if not missing or not cells_of_it:
        return ""
    return (
        f"{missing[0]} was not measured in {question.regime} time against {question.reference}; "
        "--direction asks about one direction alone"
    )


def _asked(measured: Measured, question: Question) -> list[Cell]:
    """Give the cells that a question is about."""
    return [
        cell
        for cell in cells(measured, question.regime, question.reference)
        if (not question.directions or cell.setting.direction in question.directions)
        and (not cell.window or not question.windows or cell.window in question.windows)
    ]


def judge(measured: Measured, question: Question) -> Judgement:
    """Decide.

    :raises ValueError: where the margin is no positive finite number.
    """
    sliding = worst(cell for cell in _asked(measured, question) if cell.branch is Branch.SLIDING)
    parity, trouble = measured.parity()
    if not measured.device.cuda_available and parity is not Parity.FAILED:
        trouble = "no card was used"
    elif not measured.complete:
        trouble = trouble or "the sweep has not come to its end"
    found, margin = spans(measured, question), question.margin
    known = found[WIN].last.answer is not Answer.NO_DATA
    beyond = sliding.beyond(margin) if known else ()
    rule = sliding.rule(margin) if known else {}
    return Judgement(question, parity, trouble, found, sliding, beyond, rule)


def alone(measured: Measured, question: Question) -> tuple[Direction, ...]:
    """List the directions that can be asked about alone, where a question is about several."""
    found = {row.problem.direction for row in measured.rows}
    asked = tuple(
        each
        for each in Direction
        if each in found and (not question.directions or each in question.directions)
    )
    return asked if len(asked) > 1 else ()
