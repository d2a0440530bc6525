"""A sweep measured here, from what is asked to the document.

Rows go to stdout in the lines that benchmarks of this kind have long printed, all else to stderr.
The document is written anew now and then, so that what a lost machine has measured is not lost.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.bench import alone
from pytest_remotegpu.bench.estimates import ratio
from pytest_remotegpu.bench.fa2 import answering, asking, document, host
from pytest_remotegpu.bench.fa2.asking import Asked
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import FA2, MASKED, Branch, Parity, Problem, Row
from pytest_remotegpu.bench.fa2.run import Runner, in_words, run
from pytest_remotegpu.bench.lines import Compressed, Sliding
from pytest_remotegpu.errors import UsageError

__all__ = ["INTERRUPTED", "USAGE", "measure"]

FINE, DIFFERS, USAGE, NOTHING, INTERRUPTED = 0, 1, 2, 5, 130
PAUSE: Final = 20.0
"""Seconds between two writings of a document that is not complete."""


def measure(asked: Asked, where: host.Host) -> int:
    """Measure, and write the document into the folder that was asked for.

    A user's columns are looked for in the working directory, too.

    :raises UsageError: where it can't be meant, or the card does for nothing.
    """
    here = str(Path.cwd())
    if asked.sweep.further and here not in sys.path:
        sys.path.insert(0, here)  # as for a script, so that columns of this project are found
    update = answering.Update(asked.update, dry=asked.dry)
    update.look()
    runner = Runner(asked.sweep, where.timer, where.device, where.look, where.cache)
    folder = Path(asked.out)
    answering.prepare(folder, asking.FOLDER)
    writer = _Writer(asked, where, runner, folder / document.NAME)
    _say(f"{len(asked.sweep.problems())} problems on {where.device.name}")
    try:
        with alone.on(where.place, os.environ):
            run(
                runner,
                writer.take,
                watch=where.watch,
                repetitions=asked.repetitions,
                adaptive=asked.adaptive,
                margin=asked.question.margin,
                reference=asked.question.reference,
            )
    except BaseException:
        writer.write()
        raise
    writer.write(complete=True)
    if not asked.away:
        past, more = asked.history, {"commit": answering.commit(Path.cwd(), os.environ)}
        question = asked.question
        return answering.settle(folder, question, _print, update=update, more=more, past_file=past)
    return _status(writer.measured(complete=True))


def _status(found: Measured) -> int:
    parity, why = found.parity()
    if why:
        _say(why)
    if parity is Parity.FAILED:
        return DIFFERS
    timed = any(row.column == FA2 and row.times for row in found.rows)
    return FINE if timed and parity is Parity.PASSED else NOTHING


def _now() -> str:
    now = dt.datetime.now(dt.UTC)
    return f"{now:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(slots=True)
class _Writer:
    """Takes rows, shows them, and writes them."""

    asked: Asked
    where: host.Host
    runner: Runner
    path: Path
    clock: Callable[[], float] = time.monotonic
    rows: list[Row] = field(default_factory=list)
    began: str = field(default_factory=_now)
    _written: float = 0.0
    _said: set[str] = field(default_factory=set)

    def take(self, rows: Sequence[Row]) -> None:
        """Take the rows of one problem."""
        self.rows += rows
        line = self._line(rows)
        _print(line) if line else None
        self._tell(rows)
        if self.clock() - self._written > PAUSE:
            self.write()

    def _line(self, rows: Sequence[Row]) -> str:
        """Give a problem's line, in the regime that was asked for; nothing where a time lacks."""
        regime = self.asked.question.regime
        times = {row.column: row.times for row in rows if row.regime is regime}
        if not times.get(MASKED) or not times.get(FA2):
            return ""
        masked, fa2 = (sorted(times[name])[len(times[name]) // 2] for name in (MASKED, FA2))
        faster = ratio(times[MASKED], times[FA2]).mid
        return line(rows[0].problem, masked, fa2, faster)

    def _tell(self, rows: Sequence[Row]) -> None:
        """Say on stderr which problem is done, and once of each column why it has no time."""
        problem = rows[0].problem
        timed = [row.column for row in rows if row.times]
        _say(f"{in_words(problem)}: timed {', '.join(dict.fromkeys(timed)) or 'nothing'}")
        for row in rows:
            if row.why and row.why not in self._said:
                self._said.add(row.why)
                _say(f"  {row.column} ({row.regime}): {row.why}")

    def measured(self, *, complete: bool) -> Measured:
        """Give all of it as a value."""
        notes = [] if self.where.device.is_card else [host.NO_CARD]
        return Measured(
            self.where.told(),
            tuple(self.rows),
            self.began,
            _now(),
            self.asked.sweep.to_plain(),
            self.where.environment(self.asked.sweep.dtypes),
            tuple(self.where.states),
            tuple(notes),
            parity_output="\n".join(self.runner.lines()),
            complete=complete,
        )

    def write(self, *, complete: bool = False) -> None:
        """Write the document.

        :raises UsageError: where that can't be done.
        """
        try:
            document.write(self.path, self.measured(complete=complete), self.asked.question)
        except OSError as error:
            raise UsageError(f"{self.path} can't be written: {error.strerror or error}") from error
        self._written = self.clock()


def line(problem: Problem, masked: float, fa2: float, faster: float) -> str:
    """Give the text line of a problem.

    :param masked: milliseconds; :param fa2: likewise. :param faster: how many times.
    """
    times = (masked, fa2, faster)
    if problem.branch is Branch.SLIDING:
        assert problem.window is not None
        return str(Sliding(problem.length, problem.window, *times))
    assert problem.block is not None
    assert problem.stride is not None
    return str(Compressed(problem.length, problem.block, problem.stride, *times))


def _print(text: str) -> Any:
    return sys.stdout.write(f"{text}\n") and sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
