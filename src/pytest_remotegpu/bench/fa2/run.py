"""The running of a sweep: parity first, then all columns of a problem in turns, in both regimes.

A column that can't be used, differs, falls back to another kernel, can't be captured or lacks
memory gives rows that say so, and takes no other column with it. Timer, device and the look at
kernels are arguments; knows no clock and no command line.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from pytest_remotegpu.bench import maps
from pytest_remotegpu.bench.estimates import Estimate, ratio
from pytest_remotegpu.bench.fa2 import calls, columns, kernels, parity, sizes
from pytest_remotegpu.bench.fa2.columns import Column
from pytest_remotegpu.bench.fa2.limits import Device, refusal
from pytest_remotegpu.bench.fa2.parity import Compared
from pytest_remotegpu.bench.fa2.rows import FA2, MASKED, Branch, Direction, Problem, Regime, Row
from pytest_remotegpu.bench.fa2.sweep import Sweep
from pytest_remotegpu.bench.fa2.ways import Way
from pytest_remotegpu.bench.timing import Budget, CaptureError, Mode, Rotating, Timer, measure
from pytest_remotegpu.errors import UsageError

__all__ = ["Look", "Measures", "Rows", "Runner", "Watch", "in_words", "run", "speedup"]

Look = Callable[[Callable[[], Any]], tuple[str, ...]]
"""Names the kernels of a call."""
Done = Callable[[Sequence[Row]], object]
"""Is given the rows of one problem in one repetition, as soon as they are there."""
Rows = tuple[Row, ...]
Watch = Callable[[Callable[[], Rows]], tuple[Rows, Sequence[str]]]
"""Measures, and says in words what held the card back meanwhile, so that no time counts."""
NO_SPEEDUP: Final = Estimate.exactly(math.nan)
LONGEST: Final = 300
"""Characters of an error that a row keeps."""


class Measures(Protocol):
    """Measures the problems of a sweep one by one, as a :class:`Runner` does."""

    sweep: Sweep

    def rows(self, problem: Problem, repetition: int = 1) -> Rows:
        """Measure one problem in all regimes."""
        ...


@dataclass(frozen=True, slots=True)
class _Ready:
    """A column that can be timed on a problem."""

    column: Column
    call: Rotating
    compared: Compared
    kernels: tuple[str, ...]
    raised: list[BaseException]


@dataclass(slots=True)
class _Known:
    """What is found out once about a column on a problem, and holds for each repetition."""

    compared: Compared
    kernels: tuple[str, ...] = ()
    why: str = ""


@dataclass(slots=True)
class Runner:
    """Measures problems one by one.

    :ivar timer: holds the clock. :ivar device: where it runs.
    :ivar look: names kernels; ``None`` where nobody can, on a CPU.
    :ivar cache: bytes of the device's cache that copies of the inputs have to outgrow; 0 for one
        copy.
    """

    sweep: Sweep
    timer: Timer
    device: Device
    look: Look | None = None
    cache: int = 0
    columns: Mapping[str, Column] = field(default_factory=dict)
    _known: dict[tuple[str, Problem], _Known] = field(default_factory=dict, init=False)
    _compared: dict[tuple[str, Problem], Compared] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Look for the columns.

        :raises UsageError: where a user's column can't be imported, or the card does for nothing.
        """
        if why := refusal(self.device):
            raise UsageError(why)
        if not self.columns:
            found = [columns.found(name, self.sweep.further) for name in self.sweep.names]
            if not self.device.is_card and columns.STAND_IN not in self.sweep.names:
                found.append(columns.BUILT_IN[columns.STAND_IN])
            self.columns = {column.name: column for column in found}

    def rows(self, problem: Problem, repetition: int = 1) -> Rows:
        """Measure one problem in all regimes.

        :return: one row for each column and regime, in this order; always all of them.
        """
        ready, lost = self._prepare(problem)
        found: dict[tuple[str, Regime], Row] = {}
        for regime in self.sweep.regimes:
            times, why = self._times(ready, regime)
            for one in ready:
                name = one.column.name
                found[name, regime] = Row(
                    problem,
                    name,
                    regime,
                    times.get(name, ()),
                    one.kernels,
                    one.compared.parity,
                    why.get(name) or one.compared.why,
                    repetition,
                )
            for name, known in lost.items():
                found[name, regime] = Row(
                    problem,
                    name,
                    regime,
                    kernels=known.kernels,
                    parity=known.compared.parity,
                    why=known.why,
                    repetition=repetition,
                )
        return tuple(found[name, regime] for name in self.columns for regime in self.sweep.regimes)

    # once for each column and problem

    def _prepare(self, problem: Problem) -> tuple[list[_Ready], dict[str, _Known]]:
        """Tell columns that can be timed from those that can't."""
        ready: list[_Ready] = []
        lost: dict[str, _Known] = {}
        inputs: list[Any] = []
        for name, column in self.columns.items():
            known = self._known.get((name, problem)) or self._refused(column, problem)
            if not known.why:
                try:
                    if not inputs:
                        count = calls.copies(problem, self.cache)
                        inputs += calls.make(problem, self.device.kind, count, seed=self.sweep.seed)
                    one = self._ready(column, problem, inputs, known)
                    known = self._known[name, problem]
                    if not known.why:
                        ready.append(one)
                except BaseException as error:  # noqa: BLE001 -- see _reason
                    known.why = _reason(error)
                    self._free()
            self._known[name, problem] = known
            if known.why:
                lost[name] = known
        return ready, lost

    def _refused(self, column: Column, problem: Problem) -> _Known:
        why = column.refusal(problem, self.device) or sizes.lack(column, problem, self.device)
        return _Known(parity.not_checked(why), why=why)

    def _ready(
        self, column: Column, problem: Problem, inputs: Sequence[Any], known: _Known
    ) -> _Ready:
        """Compare a column, make its call, and see which kernels run, unless that is known."""
        first = (column.name, problem) not in self._known
        way = column.make(problem, self.device.kind)
        if first:
            known.compared = self._compare(column, problem, way)
            self._known[column.name, problem] = known
        raised: list[BaseException] = []
        made = [calls.Watched(calls.of(problem, way, one), raised) for one in inputs]
        call = Rotating(made)
        if first and self.look is not None:
            made[0]()
            known.kernels = self.look(made[0])
            known.why = kernels.missing(known.kernels, column.kernels, problem.direction)
        return _Ready(column, call, known.compared, known.kernels, raised)

    def _compare(self, column: Column, problem: Problem, way: Way) -> Compared:
        key = parity.key(column, problem)
        if key not in self._compared:
            self._compared[key] = parity.compare(
                column,
                problem,
                self.device,
                way=way,
                seed=self.sweep.seed,
                gradients=column.gradients or problem.direction is Direction.BACKWARD,
            )
        return self._compared[key]

    # timing

    def _times(
        self, ready: Sequence[_Ready], regime: Regime
    ) -> tuple[dict[str, tuple[float, ...]], dict[str, str]]:
        """Time columns in turns; one that raises is left out, and all others are timed anew."""
        left = {one.column.name: one for one in ready}
        why: dict[str, str] = {}
        while left:
            for one in left.values():
                one.raised.clear()
            contestants = {name: one.call for name, one in left.items()}
            try:
                return self._measured(contestants, regime), why
            except BaseException as error:  # noqa: BLE001 -- see _reason
                for name in _culprits(left.values(), error):
                    one = left.pop(name)
                    own = error if isinstance(error, CaptureError) else None
                    why[name] = _reason(own or next(iter(one.raised), error))
            self._free()
        return {}, why

    def _measured(
        self, contestants: Mapping[str, Callable[[], object]], regime: Regime
    ) -> dict[str, tuple[float, ...]]:
        wanted = Mode.GRAPH if regime is Regime.DEVICE else Mode.EAGER
        mode = wanted if wanted in self.timer.modes else Mode.WALL
        budget = Budget(self.sweep.warmup, self.sweep.rounds)
        return dict(measure(contestants, self.timer, mode=mode, budget=budget))

    def _free(self) -> None:
        """Give memory back that a column which failed has left."""
        if self.device.is_card:
            import torch  # noqa: PLC0415 -- late

            with contextlib.suppress(RuntimeError):  # a context that an error has poisoned
                torch.cuda.empty_cache()

    def lines(self) -> list[str]:
        """Say what the comparisons with float32 have found, a line for each of them."""
        return [
            f"{name} {in_words(problem)}: {compared.parity}"
            + (f": {compared.why}" if compared.why else "")
            for (name, problem), compared in self._compared.items()
        ]


def _culprits(ready: Iterable[_Ready], error: BaseException) -> list[str]:
    """Say whose error ended a measurement; all are lost where nobody knows."""
    names = [one.column.name for one in ready]
    raised = [one.column.name for one in ready if one.raised]
    named = error.contestant if isinstance(error, CaptureError) else ""
    return raised or ([named] if named in names else names)


def _reason(error: BaseException) -> str:
    """Give an error's first line as the reason of a row.

    Whatever a column raises becomes that, since no row may be lost; test frameworks have outcomes
    that are no ``Exception``.

    :raises BaseException: the error, where it is the user's wish to end.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return str(error)[:LONGEST] if isinstance(error, CaptureError) else text[:LONGEST]


def in_words(problem: Problem) -> str:
    """Say what a problem is, in the words of the lines."""
    if problem.branch is Branch.SLIDING:
        place = f"S={problem.length} w={problem.window} sliding"
    else:
        place = f"S={problem.length} l={problem.block} d={problem.stride} compressed"
    return f"{place} {problem.direction} {problem.dtype}"


# the whole


def unwatched(measured: Callable[[], Rows]) -> tuple[Rows, Sequence[str]]:
    """Measure where nobody looks at a card."""
    return measured(), ()


def _watched(runner: Measures, problem: Problem, repetition: int, watch: Watch) -> Rows:
    """Measure a problem, and once more where the card was held back; then no time is kept."""
    rows, held = watch(lambda: runner.rows(problem, repetition))
    if held:
        rows, held = watch(lambda: runner.rows(problem, repetition))
    if not held:
        return rows
    why = f"the card was held back twice, by {', '.join(held)}"
    return tuple(replace(row, times=(), why=row.why or why) for row in rows)


def run(
    runner: Measures,
    done: Done,
    *,
    watch: Watch = unwatched,
    repetitions: int = 1,
    adaptive: bool = False,
    margin: float = 1.2,
    reference: str = MASKED,
) -> None:
    """Run a sweep.

    An adaptive one measures of each map what its rule needs, for each regime: lengths are searched
    by halves. The rule is that of the whole sweep where the advantage grows with the length and
    shrinks with the window.

    :param done: is given rows as they come.
    :param watch: looks at the card; what was measured while that was held back is no time.
    :param margin: that an adaptive search goes by, as well as ``reference``.
    """
    for repetition in range(1, repetitions + 1):

        def measured(problem: Problem, repetition: int = repetition) -> Rows:
            rows = _watched(runner, problem, repetition, watch)
            done(rows)
            return rows

        for series in runner.sweep.series():
            if adaptive:
                _search(series, runner.sweep.regimes, measured, margin, reference)
            else:
                for problem in series:
                    measured(problem)


def _search(
    series: Sequence[Problem],
    regimes: Iterable[Regime],
    measure_one: Callable[[Problem], Rows],
    margin: float,
    reference: str,
) -> None:
    """Measure as much of one map as its rules need."""
    by_size = {_size(problem): problem for problem in series}
    measured: dict[Problem, Rows] = {}

    def at(regime: Regime, length: int, window: int) -> Estimate:
        problem = by_size[length, window]
        if problem not in measured:
            measured[problem] = measure_one(problem)
        return speedup(measured[problem], regime, reference)

    lengths = sorted({length for length, _ in by_size})
    windows = sorted({window for _, window in by_size})
    for regime in regimes:
        maps.search_map(lengths, windows, functools.partial(at, regime), margin=margin)


def _size(problem: Problem) -> tuple[int, int]:
    """Give a problem's place on a map: length and window, both in tokens."""
    return problem.length, problem.window or 0


def speedup(rows: Iterable[Row], regime: Regime, reference: str) -> Estimate:
    """Say how many times faster FlashAttention-2 is in rows of one problem; NaN where not known."""
    times = {row.column: row.times for row in rows if row.regime is regime}
    if not times.get(FA2) or not times.get(reference):
        return NO_SPEEDUP
    return ratio(times[reference], times[FA2])
