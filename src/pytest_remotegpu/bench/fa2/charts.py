"""Maps made ready to be shown: which cell says what, in both regimes, and how all of it is worded.

Values in, texts out; knows no terminal, no Markdown and no picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_remotegpu.bench import thresholds
from pytest_remotegpu.bench.estimates import Estimate
from pytest_remotegpu.bench.fa2 import judging
from pytest_remotegpu.bench.fa2.judging import (
    CMP,
    MARGINS,
    REFERENCES,
    SEL,
    WIN,
    Cell,
    Judgement,
    Question,
    Setting,
)
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import Branch, Regime
from pytest_remotegpu.bench.maps import Map
from pytest_remotegpu.bench.thresholds import Answer

__all__ = [
    "KEPT",
    "SOME",
    "Chart",
    "answers",
    "charts",
    "reasons",
    "references",
    "speed",
    "two_dimensions",
]

KEPT, SOME, ABSENT = "✓", "~", "-"
"""What stands beside a speedup that keeps the margin in each repetition, and in some of them; and
for a cell that was not measured."""
HEADS: Final = ("key", "of", "margin", "reference", *(f"{regime} time" for regime in Regime))
"""Of the table of :func:`answers`."""


@dataclass(frozen=True, slots=True)
class Chart:
    """The speedups of one branch and setting against one reference, in both regimes.

    :ivar cells: by regime, those of all repetitions.
    """

    branch: Branch
    setting: Setting
    reference: str
    cells: Mapping[Regime, Sequence[Cell]]

    @property
    def title(self) -> str:
        """What it shows."""
        return f"{self.branch}, {self.setting}: times faster than {self.reference}"

    @property
    def lengths(self) -> dict[int, int]:
        """The lengths of sequences by size, ascending."""
        found = {cell.size: cell.length for each in self.cells.values() for cell in each}
        return dict(sorted(found.items()))

    @property
    def windows(self) -> tuple[int, ...]:
        """All windows, ascending; 0 alone for the compressed branch."""
        return tuple(sorted({cell.window for each in self.cells.values() for cell in each}))

    def map(self, regime: Regime) -> Map:
        """Give the speedups of a regime, its repetitions put together."""
        return judging.merged(self.cells[regime])

    def mark(self, regime: Regime, size: int, window: int, margin: float) -> str:
        """Say whether a cell keeps the margin: in each repetition, in some, or in none (empty)."""
        kept = [
            thresholds.passes(cell.speedup, margin)
            for cell in self.cells[regime]
            if (cell.size, cell.window) == (size, window)
        ]
        if not any(kept):
            return ""
        return KEPT if all(kept) else SOME

    def size(self, size: int) -> str:
        """Name a size by what it is a size of."""
        length = self.lengths[size]
        return f"{length}" if self.branch is Branch.SLIDING else f"{length} (num_cmp {size})"


def references(measured: Measured) -> tuple[str, ...]:
    """List the references that were measured."""
    if measured.results and not measured.rows:
        return REFERENCES[:1]
    found = {row.column for row in measured.rows if row.times}
    return tuple(each for each in REFERENCES if each in found)


def charts(measured: Measured, reference: str) -> list[Chart]:
    """Give a chart for each branch and setting, in the order of the sweep."""
    found: dict[tuple[Branch, Setting], dict[Regime, list[Cell]]] = {}
    for regime in Regime:
        for cell in judging.cells(measured, regime, reference):
            by_regime = found.setdefault((cell.branch, cell.setting), {each: [] for each in Regime})
            by_regime[regime].append(cell)
    return [Chart(*where, reference, by_regime) for where, by_regime in found.items()]


def speed(found: Estimate | None, mark: str = "", *, interval: bool = True) -> str:
    """Write a speedup, with its interval where that is asked for.

    >>> speed(Estimate(1.5, 1.4, 1.6, 9), "✓")
    '1.50 (1.40 to 1.60) ✓'
    >>> speed(None), speed(Estimate.exactly(float("nan")))
    ('-', 'none')
    """
    if found is None:
        return ABSENT
    if not found.finite:
        return "none"
    text = str(found) if interval else f"{found.mid:.2f}"
    return f"{text} {mark}" if mark else text


# thresholds


def answers(measured: Measured, question: Question) -> list[tuple[str, ...]]:
    """Give the table of thresholds: for each key, margin and reference, both regimes side by side.

    Where a question is about several directions, each of them alone has rows, too. A key of which
    nothing was measured is left out.

    :return: the head first; nothing where there is no row.
    """
    rows = list(_answers(measured, question, "all" if judging.alone(measured, question) else ""))
    for direction in judging.alone(measured, question):
        asked = replace(question, directions=(direction,))
        rows += [row for row in _answers(measured, asked, str(direction)) if row[0] != SEL]
    if not rows:
        return []
    table = [HEADS, *sorted(rows, key=lambda row: (WIN, CMP, SEL).index(row[0]))]
    return table if any(row[1] for row in rows) else [(row[0], *row[2:]) for row in table]


def _answers(measured: Measured, question: Question, name: str) -> Iterator[tuple[str, ...]]:
    """Give rows of the table.

    :param name: of the directions that they are of.
    """
    margins = sorted({*MARGINS, question.margin})
    for key in (WIN, CMP):
        for reference in references(measured):
            for margin in margins:
                asked = replace(question, margin=margin, reference=reference)
                found = [
                    judging.spans(measured, replace(asked, regime=regime))[key] for regime in Regime
                ]
                if any(each.last.answer is not Answer.NO_DATA for each in found):
                    yield key, name, thresholds.in_words(margin), reference, *map(str, found)
    for margin in margins:
        last = judging.spans(measured, replace(question, margin=margin))[SEL].last
        if last.answer is not Answer.NO_DATA:
            yield SEL, name, thresholds.in_words(margin), "its reference", str(last), ABSENT


def reasons(judgement: Judgement) -> Iterator[tuple[str, str]]:
    """Say for each key what a configuration gets, and why."""
    for key, found in judgement.spans.items():
        if key == SEL and found.last.answer is Answer.NO_DATA:
            continue
        number = judgement.number(key)
        gets = f"stays as it is: {found}" if number is None else f"{number}: {found}"
        why = [found.last.why]
        if not found.agreed:
            why.append(f"the repetitions differ, and the latest is the one to be safe with; in the "
                       f"first: {found.first.why}")  # fmt: skip
        yield f"{key} {gets}", "; ".join(why)


def two_dimensions(judgement: Judgement) -> Iterator[str]:
    """Say what no scalar can express, and the rule that can."""
    question = judgement.question
    if judgement.beyond:
        cells = ", ".join(f"S={length} w={window}" for length, window in judgement.beyond)
        count = len(judgement.beyond)
        yield (
            f"no scalar can express {count} cell{'s' if count != 1 else ''} that "
            f"keep{'' if count != 1 else 's'} {question.margin:g} too: {cells}"
        )
    if judgement.rule:
        parts = (
            f"w <= {window}: {'never' if start is None else f'from S = {start}'}"
            for window, start in judgement.rule.items()
        )
        yield f"the rule in two dimensions: {'; '.join(parts)}"
