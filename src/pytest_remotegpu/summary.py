"""What ran where, as data: the same summary feeds the terminal and files.

Knows nothing of pytest, of workers or of whoever reads it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field, to_builtins
from msgspec.structs import asdict, replace

from pytest_remotegpu import cost, remains
from pytest_remotegpu.cost import WorkerCost
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.unmet import Unmet

__all__ = ["Phase", "RunSummary", "ShapeSummary"]

MOST_NAMES: Final = 10
MOST_NOTES: Final = 100
MOST_PHASES: Final = 10_000
VERDICTS: Final = {
    "budget": "not run for a limit of the run",
    "crash": "crashed",
    "infra": "not run for want of a far side",
    "timeout": "timed out",
}
MOST_LEAKS: Final = 5
LEAST_LEAK: Final = 2**20
"""Bytes below which memory that stays in use is not worth a line."""


class ShapeSummary(Struct):
    """What ran on one shape.

    :ivar workers: how many were started.
    :ivar tests: how many came back.
    :ivar seconds: of the tests' phases.
    :ivar slowest: the longest test and its seconds.
    :ivar peak: the test that had most GPU memory at once, and those bytes.
    """

    shape: Shape
    workers: int = 0
    tests: int = 0
    seconds: float = 0.0
    slowest: tuple[float, str] = (0.0, "")
    peak: tuple[int, str] = (0, "")

    def add(self, other: ShapeSummary) -> None:
        """Take in what ran on the same shape elsewhere."""
        self.workers += other.workers
        self.tests += other.tests
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)


class Phase(Struct, frozen=True):
    """A part of the run.

    :ivar who: the worker's name; ``here`` for this side.
    :ivar start: seconds since the session began. :ivar seconds: how long it took.
    """

    who: str
    name: str
    start: float
    seconds: float


class RunSummary(Struct):
    """What a session has to say of its far side.

    :ivar where: the far side in words.
    :ivar real: whether GPUs were used at all.
    :ivar cards: those that tests had, in words.
    :ivar software: what the far side is made of, in words.
    :ivar commit: the commit that was run; with ``-dirty-`` and a digest, where files differed from
        it; empty where git knows of none.
    :ivar sent_files: how many files travelled, and in ``sent_bytes``, how many bytes they were.
    :ivar causes: what went wrong apart from tests, once each.
    :ivar status: the exit status that this makes of a session that would be green.
    :ivar leaks: the tests after which most GPU memory stayed in use, and those bytes.
    :ivar verdicts: how many tests came to a ``crash``, a ``timeout``, to nothing for want of a far
        side (``infra``) or for a limit of the run (``budget``); the others have their own outcome.
    :ivar workers: what each worker has cost, once it is gone.
    :ivar dearest: the tests that were charged most: USD, seconds, id.
    :ivar rents: whether workers are paid for, be the price known or not.
    :ivar worst: the most that the run was expected to cost, in USD; ``None`` where nobody knew.
    :ivar more: what else the run as data is to hold, by its key there; values that JSON can carry.
    :ivar left: the machines that are still paid for, or may be: by which name they are ended,
        what each is called, until when it stays (seconds since the epoch) and whether it is known
        to be there, without work, as each process has known it at its end (a machine that had
        ended for it included); ``None`` where nobody knows of any such thing.
    :ivar pages: where a vendor shows the machines, as addresses.
    :ivar unmet: what the project declares and the far side has not, where something failed for it.
    :ivar phases: the parts of the run, in the order in which they were noticed.
    :ivar began: when the session did, in seconds since the epoch.
    """

    where: str = ""
    real: bool = False
    cards: list[str] = field(default_factory=list)
    software: list[str] = field(default_factory=list)
    shapes: dict[Shape, ShapeSummary] = field(default_factory=dict)
    artifacts: int = 0
    artifact_names: list[str] = field(default_factory=list)
    artifacts_dir: str = ""
    commit: str = ""
    sent_files: int = 0
    sent_bytes: int = 0
    causes: list[str] = field(default_factory=list)
    status: int = 0
    notes: list[str] = field(default_factory=list)
    leaks: list[tuple[int, str]] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)
    workers: list[WorkerCost] = field(default_factory=list)
    dearest: list[tuple[float, float, str]] = field(default_factory=list)
    rents: bool = False
    worst: float | None = None
    more: dict[str, Any] = field(default_factory=dict)
    left: list[remains.Left] | None = None
    pages: list[str] = field(default_factory=list)
    unmet: Unmet | None = None
    phases: list[Phase] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    def of(self, shape: Shape) -> ShapeSummary:
        """Give the part of one shape."""
        return self.shapes.setdefault(shape, ShapeSummary(shape))

    def ran(self, shape: Shape, nodeid: str, seconds: float) -> None:
        """Count one test that came back."""
        part = self.of(shape)
        part.tests += 1
        part.seconds += seconds
        part.slowest = max(part.slowest, (seconds, nodeid))

    def used(self, shape: Shape, nodeid: str, peak: int, leaked: int) -> None:
        """Count the GPU memory of one test.

        :param peak: the most bytes that it had at once. :param leaked: those that it left in use.
        """
        part = self.of(shape)
        part.peak = max(part.peak, (peak, nodeid))
        self._leak([(leaked, nodeid)])

    def _leak(self, found: Iterable[tuple[int, str]]) -> None:
        large = [leak for leak in (*self.leaks, *found) if leak[0] > LEAST_LEAK]
        self.leaks = sorted(large, reverse=True)[:MOST_LEAKS]

    def charged(self, found: Iterable[tuple[float, float, str]]) -> None:
        """Keep the dearest of these tests: USD, seconds, id."""
        self.dearest = cost.dearest([*self.dearest, *found])

    def came_to(self, verdict: str, number: int = 1) -> None:
        """Count tests whose outcome is not their own; an empty verdict counts for nothing."""
        if verdict:
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + number

    def blame(self, cause: str) -> None:
        """Keep a cause, once."""
        if cause and cause not in self.causes:
            self.causes.append(cause)

    def fail(self, cause: str, status: int = 1) -> None:
        """Keep a cause for which the session can't be green."""
        self.status = self.status or status or 1
        self.blame(cause)

    def note(self, text: str) -> None:
        """Keep a line for the user, once."""
        if text and text not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(text if len(self.notes) + 1 < MOST_NOTES else "... and more")

    def use(self, cards: Iterable[str]) -> None:
        """Keep the cards that tests have, each once."""
        self.cards += [card for card in dict.fromkeys(cards) if card not in self.cards]

    def equip(self, software: str) -> None:
        """Keep what a far side is made of, once."""
        if software and software not in self.software:
            self.software.append(software)

    def show(self, page: str) -> None:
        """Keep the address of a page that shows the machines, once."""
        if page and page not in self.pages:
            self.pages.append(page)

    def phase(self, who: str, name: str, start: float, seconds: float) -> None:
        """Keep a part of the run; see :class:`Phase`."""
        if len(self.phases) < MOST_PHASES:
            self.phases.append(Phase(who, name, start, seconds))

    # several processes, one session

    def to_plain(self) -> dict[str, Any]:
        """Give it as dicts, lists, tuples, texts and numbers only."""
        parts = to_builtins(list(self.shapes.values()))
        phases = to_builtins(self.phases)
        workers = to_builtins(self.workers)
        unmet = to_builtins(self.unmet)
        plain = {"shapes": parts, "phases": phases, "workers": workers, "unmet": unmet}
        return {**asdict(self), **plain}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> RunSummary:
        """Undo :meth:`to_plain`; tuples may have become lists meanwhile, as in JSON."""
        parts = [_part(part) for part in data["shapes"]]
        phases = [Phase(**phase) for phase in data["phases"]]
        workers = [WorkerCost.from_plain(each, _shape(each["shape"])) for each in data["workers"]]
        shapes = {part.shape: part for part in parts}
        dearest = cost.dearest(data["dearest"])
        unmet = None if data["unmet"] is None else Unmet.from_plain(data["unmet"])
        found = {"shapes": shapes, "phases": phases, "workers": workers, "dearest": dearest}
        return cls(**{**data, **found, "unmet": unmet})

    def add(self, other: RunSummary) -> None:
        """Take in the summary of another process of the same session."""
        self.where = self.where or other.where
        self.real = self.real or other.real
        self.use(other.cards)
        for software in other.software:
            self.equip(software)
        for page in other.pages:
            self.show(page)
        for shape, part in other.shapes.items():
            self.of(shape).add(part)
        self.artifacts += other.artifacts
        self.artifact_names = sorted({*self.artifact_names, *other.artifact_names})
        self.artifacts_dir = self.artifacts_dir or other.artifacts_dir
        self.commit = self.commit or other.commit
        self.sent_files += other.sent_files
        self.sent_bytes += other.sent_bytes
        self._leak(other.leaks)
        for verdict, number in other.verdicts.items():
            self.came_to(verdict, number)
        self.status = self.status or other.status
        for cause in other.causes:
            self.blame(cause)
        for note in other.notes:
            self.note(note)
        later = other.began - self.began
        self.workers += [replace(each, opened=each.opened + later) for each in other.workers]
        self.charged(other.dearest)
        self.rents = self.rents or other.rents
        self.worst = other.worst if self.worst is None else self.worst
        self.more = {**other.more, **self.more}
        if other.unmet is not None:
            self.unmet = other.unmet if self.unmet is None else self.unmet | other.unmet
        if other.left is not None:
            self.left = [*(self.left or ()), *other.left]
        for phase in other.phases:
            self.phase(phase.who, phase.name, phase.start + later, phase.seconds)

    def last(self, seconds: float, living: Sequence[str]) -> None:
        """Have workers last so much longer that had not ended, and whatever they are on.

        :param living: the names of those.
        """
        self.workers = [
            replace(each, idle=each.idle + seconds) if each.name in living else each
            for each in self.workers
        ]
        left = map(_machine, self.left or ())
        self.left = None if self.left is None else remains.later(left, seconds)

    # for people

    def still_there(self) -> list[remains.Left] | None:
        """Give the machines of ``left`` that are there now; ``None`` where nobody knows of any."""
        return None if self.left is None else remains.settle(map(_machine, self.left), time.time())

    def all_notes(self) -> list[str]:
        """Give the lines for the user, the one on what is lacking there among them."""
        return [*self.notes, *([] if self.unmet is None else [self.unmet.words()])]

    def lines(self, *, quiet: bool = False) -> Iterable[str]:
        """Write the closing summary.

        :param quiet: whether to leave the dearest tests out.
        """
        for part in sorted(self.shapes.values(), key=lambda part: part.shape):
            seconds, nodeid = part.slowest
            most, largest = part.peak
            price = cost.total(each for each in self.workers if each.shape == part.shape)
            yield (
                f"{part.shape}   {part.workers} worker{'s' if part.workers != 1 else ''}   "
                f"{part.tests} test{'s' if part.tests != 1 else ''}   {part.seconds:.2f} s   "
                f"{'' if price is None else f'{cost.usd(price)}   '}"
                f"longest {seconds:.2f} s {nodeid}"
            ).rstrip() + (f"   peak {_size(most)} {largest}" if most else "")
        if self.where:
            cards = f": {', '.join(self.cards)}" if self.cards else ""
            yield f"on {self.where}{cards}" + ("" if self.real else " (no GPU was used)")
        if self.real:
            yield from (f"with {software}" for software in self.software)
        yield from self._money_lines(quiet=quiet)
        if self.commit:
            commit, dirty, digest = self.commit.partition("-dirty-")
            yield f"commit {commit[:12]}" + (f" with changes {digest}" if dirty else "")
        if self.sent_files:
            yield f"sent {self.sent_files} files, {self.sent_bytes / 2**10:.1f} KiB"
        yield from self._artifact_lines()
        if self.verdicts:
            counts = ", ".join(f"{n} {VERDICTS[name]}" for name, n in sorted(self.verdicts.items()))
            yield f"apart from outcomes of their own: {counts}"
        yield from (f"note: {text}" for text in self.all_notes())
        for grown, nodeid in self.leaks:
            yield f"note: GPU memory grew by {_size(grown)} in {nodeid} and stayed"
        yield from (f"cause: {text}" for text in self.causes)

    def _money_lines(self, *, quiet: bool) -> Iterable[str]:
        price_words = cost.words(self.workers, self.worst)
        if price_words:
            yield f"cost: {price_words}"
            yield from self._worker_lines()
            yield from () if quiet else self._dearest_lines()
        elif self.rents and self.workers:
            yield f"cost: not known: {cost.lacking({each.shape for each in self.workers})}"
        if self.left is not None and self.workers:
            yield from remains.words(self.still_there() or [])

    def _worker_lines(self) -> Iterable[str]:
        """Write what each worker has cost, where several were rented; the dearest first."""
        known = [(worker.usd, worker) for worker in self.workers if worker.usd is not None]
        known = sorted(known, key=lambda each: -each[0]) if self.rents and len(known) > 1 else []
        for price, worker in known[:MOST_NAMES]:
            yield (
                f"  {worker.name}   {worker.tests} test{'s' if worker.tests != 1 else ''}   "
                f"{worker.seconds:.1f} s   {cost.usd(price)}"
            )
        if len(known) > MOST_NAMES:
            yield f"  ... and {len(known) - MOST_NAMES} more"

    def _dearest_lines(self) -> Iterable[str]:
        """Write which tests were the dearest, where workers are rented and there were several."""
        if self.rents and len(self.dearest) > 1:
            yield "dearest tests:"
            for price, seconds, nodeid in self.dearest:
                yield f"  {cost.usd(price)}   {seconds:.2f} s   {nodeid}"

    def _artifact_lines(self) -> Iterable[str]:
        if self.artifacts:
            yield f"artifacts: {self.artifacts} in {self.artifacts_dir}"
            yield from (f"  {name}" for name in self.artifact_names[:MOST_NAMES])
            if len(self.artifact_names) > MOST_NAMES:
                yield f"  ... and {len(self.artifact_names) - MOST_NAMES} more"


def _size(count: int) -> str:
    """Write a number of bytes as people do."""
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if count >= 2**power:
            return f"{count / 2**power:.1f} {unit}"
    return f"{count / 2**10:.1f} KiB"


def _machine(data: Sequence[Any]) -> remains.Left:
    """Undo what JSON has made of a tuple."""
    of, machine, until, sure = data
    return str(of), str(machine), float(until), bool(sure)


def _part(data: Mapping[str, Any]) -> ShapeSummary:
    fields = {name: _tuples(value) for name, value in data.items() if name != "shape"}
    return ShapeSummary(shape=_shape(data["shape"]), **fields)


def _shape(data: Mapping[str, Any]) -> Shape:
    return Shape(**{name: _tuples(value) for name, value in data.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
