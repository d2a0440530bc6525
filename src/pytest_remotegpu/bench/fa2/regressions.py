"""Whether a sweep has become slower than a baseline, row by row and beyond what noise explains.

Values in, values out. What has become faster never fails, and measurements of different
environments are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pytest_remotegpu.bench.estimates import Estimate, median
from pytest_remotegpu.bench.fa2 import judging, surroundings
from pytest_remotegpu.bench.fa2.judging import Question, Setting
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import FA2, MASKED, Branch, Parity, Regime
from pytest_remotegpu.bench.thresholds import OFF

__all__ = ["BAND", "Change", "Comparison", "State", "against", "lines"]

BAND: Final = 0.03
"""The share by which times of one machine differ from day to day without a reason in the code."""
NOTHING_KNOWN: Final = 5
"""The exit status where nothing could be compared."""


class State(StrEnum):
    """What became of a row."""

    SLOWER = "slower"
    LOST = "not timed any more"
    FASTER = "faster"
    EQUAL = "equal"
    NEW = "new"
    GONE = "not in the new sweep"


MOST: Final = 10
"""Rows of one kind that are shown; of those that fail, all are."""
FAILING: Final = frozenset({State.SLOWER, State.LOST})


@dataclass(frozen=True, slots=True)
class Change:
    """One row in both sweeps.

    :ivar name: its problem, column and regime, in words.
    :ivar before: milliseconds of the baseline, with the interval of all repetitions; ``None`` where
        it was not timed. :ivar now: likewise.
    """

    name: str
    state: State
    before: Estimate | None
    now: Estimate | None
    why: str = ""

    def __str__(self) -> str:
        if self.before is None or self.now is None:
            return f"{self.state}: {self.name}{f': {self.why}' if self.why else ''}"
        factor = self.now.mid / self.before.mid if self.before.mid else math.nan
        return (
            f"{self.state}: {self.name}: {_ms(self.before)} before, {_ms(self.now)} now, "
            f"{factor:.2f} times"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of it.

    :ivar differences: of the environments; where there are any, nothing was compared.
    :ivar changes: row by row. :ivar thresholds: what became of those, in words.
    :ivar parity: of the new sweep. :ivar trouble: why its times stand for nothing, in words.
    """

    differences: tuple[str, ...]
    changes: tuple[Change, ...]
    thresholds: tuple[str, ...]
    parity: Parity = Parity.PASSED
    trouble: str = ""

    @property
    def status(self) -> int:
        """The exit status: 1 where a row has become slower, 5 where none could be compared.

        So it is where the new sweep is wrong: speed is nothing without parity.
        """
        if self.parity is Parity.FAILED:
            return 1
        if any(change.state in FAILING for change in self.changes):
            return 1
        if self.trouble:
            return NOTHING_KNOWN
        compared = {State.EQUAL, State.FASTER} & {change.state for change in self.changes}
        return 0 if compared else NOTHING_KNOWN


Place = tuple[Any, str, Regime]


def against(
    baseline: Measured, new: Measured, question: Question, *, band: float = BAND
) -> Comparison:
    """Compare a sweep with its baseline.

    A row is slower where its whole interval lies above the baseline's, and above that by the band.

    :param band: a share, 0.03 for 3 %.
    :raises ValueError: for a band that is negative or no number.
    """
    if not (math.isfinite(band) and band >= 0):
        raise ValueError(f"the band is {band}, and has to be 0 or more")
    differences = tuple(surroundings.differences(baseline, new))
    thresholds = tuple(_thresholds(baseline, new, question))
    parity, trouble = _trouble(baseline, new)
    if differences:
        return Comparison(differences, (), thresholds, parity, trouble)
    before, now = _times(baseline), _times(new)
    places = dict.fromkeys((*before, *now))
    changes = tuple(_change(place, before, now, band) for place in places)
    return Comparison((), changes, thresholds, parity, trouble)


def _trouble(baseline: Measured, new: Measured) -> tuple[Parity, str]:
    """Say why the times of a sweep stand for nothing, though those of its baseline may.

    Where a baseline was never compared with float32 either, that is no news.
    """
    parity, why = new.parity()
    if parity is Parity.NOT_CHECKED and baseline.parity()[0] is Parity.NOT_CHECKED:
        why = ""
    return parity, why or ("" if new.complete else "the sweep has not come to its end")


Times = Mapping[Place, tuple[Estimate | None, str]]


def _times(measured: Measured) -> Times:
    """Give by row its time in all repetitions: the widest interval, and why it was not timed."""
    if measured.results and not measured.rows:
        return dict(_of_others(measured))
    times: dict[Place, list[Estimate]] = {}
    whys: dict[Place, str] = {}
    for row in measured.rows:
        place = row.problem, row.column, row.regime
        found = times.setdefault(place, [])
        if row.times and all(math.isfinite(time) and time > 0 for time in row.times):
            found.append(median(row.times))
        elif row.why:
            whys[place] = row.why
    return {place: (_widest(each), whys.get(place, "")) for place, each in times.items()}


def _widest(several: list[Estimate]) -> Estimate | None:
    if not several:
        return None
    middle = sorted(one.mid for one in several)[(len(several) - 1) // 2]
    low, high = min(one.low for one in several), max(one.high for one in several)
    return Estimate(middle, low, high, sum(one.count for one in several))


def _of_others(measured: Measured) -> Iterator[tuple[Place, tuple[Estimate | None, str]]]:
    for one in measured.results:
        name = f"S={one.length} w={one.window}"
        if one.branch is Branch.COMPRESSED:
            name = f"S={one.length} l={one.block} d={one.stride}"
        for column, time in ((MASKED, one.masked_ms), (FA2, one.fa2_ms)):
            known = math.isfinite(time) and time > 0
            found = Estimate.exactly(time) if known else None
            yield (name, column, Regime.EAGER), (found, "" if known else f"its time is {time}")


def _change(place: Place, before: Times, now: Times, band: float) -> Change:
    name = _name(place)
    old, _ = before.get(place, (None, ""))
    new, why = now.get(place, (None, ""))
    if place not in now:
        return Change(name, State.GONE, old, None)
    if old is None:
        return Change(name, State.NEW, None, new, why)
    if new is None:
        return Change(name, State.LOST, old, None, why)
    if new.low > old.high * (1 + band):
        return Change(name, State.SLOWER, old, new)
    if new.high * (1 + band) < old.low:
        return Change(name, State.FASTER, old, new)
    return Change(name, State.EQUAL, old, new)


def _name(place: Place) -> str:
    problem, column, regime = place
    if isinstance(problem, str):
        return f"{column}, {problem}, {regime} time"
    within = f"w={problem.window}"
    if problem.branch is Branch.COMPRESSED:
        within = f"l={problem.block} d={problem.stride}"
    return f"{column}, S={problem.length} {within}, {regime} time, {Setting.of(problem)}"


def _ms(time: Estimate) -> str:
    return f"{time.mid:.4g} ms ({time.low:.4g} to {time.high:.4g})"


def _thresholds(baseline: Measured, new: Measured, question: Question) -> Iterator[str]:
    """Say what became of what a configuration gets; a word for what is off, however written."""
    before, now = (
        {**judging.judge(each, question).recommendation, **each.stated} for each in (baseline, new)
    )
    for key in judging.KEYS:
        old, found = _off(before[key]), _off(now[key])
        if "no answer" in (old, found) and old == found:
            continue
        yield f"{key}: {old}" if old == found else f"{key}: {old} before, {found} now"


def _off(number: int | None) -> str:
    if number is None:
        return "no answer"
    return "off" if number in OFF else str(number)


def lines(found: Comparison) -> Iterator[str]:
    """Write what came of it: each row that changed, and how many did not."""
    if found.differences:
        yield f"not compared, the environments differ: {'; '.join(found.differences)}"
    states = [change.state for change in found.changes]
    for state in State:
        if state is State.EQUAL:
            continue
        texts = [str(change) for change in found.changes if change.state is state]
        most = len(texts) if state in FAILING else MOST
        yield from texts[:most]
        if len(texts) > most:
            yield f"{state}: ... and {len(texts) - most} more"
    if found.trouble:
        yield f"the new times stand for nothing: {found.trouble}"
    if states:
        counts = {state: states.count(state) for state in State if state in states}
        yield ", ".join(f"{number} {state}" for state, number in counts.items())
    yield from found.thresholds
