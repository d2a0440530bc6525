"""Which tests a worker takes next, where several workers share those of one shape.

Tests are numbered in the order of their collection and have expected seconds. Neighbours that share
fixtures make a piece; the longest pieces go first, each to the worker that asks for one; the last
ones may be taken back from a worker that is late. Values in, values out: knows no clock, no worker
beyond its name, no pytest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

__all__ = ["Job", "Piece", "Schedule", "longest_run", "plan"]

UNKNOWN: Final = 1.0
"""Seconds that a test is taken for where nothing is known of any."""
GOOD: Final = 1.05
"""How much longer than at best it all may take, so that modules stay whole."""
MOST_CUTS: Final = 24
"""Cuts through groups that are tried, for each worker."""
SMALL: Final = 1 / 32
"""The part of a worker's share below which neighbouring groups are handed out together."""
LEAST: Final = 0.2
"""Seconds that are worth a hand-out of their own, where durations are known."""
LOPSIDED: Final = 0.75
"""The part of a piece that one side of a cut along the border of a class may be."""
SOON: Final = 0.5
"""Seconds of work at which a worker is almost done."""
WORTH_TAKING: Final = 0.1
"""Seconds of waiting work that another worker is told to give back."""
WORTH_SPLITTING: Final = 0.5
"""The same of a group that has begun, whose fixtures are then set up once more."""
AS_LONG: Final = 0.7
"""How long the rest of a worker's own group has to be, against the longest piece, to come first."""


class Job(Struct, frozen=True):
    """One test.

    :ivar groups: the names of what it shares fixtures with, the widest first: module, class,
        function. :ivar seconds: how long it took before; ``None`` where that is not known.
    """

    groups: tuple[str, ...]
    seconds: float | None = None


class Piece(Struct, frozen=True, order=True):
    """The tests from number ``first`` up to, not including, ``last``, and their seconds."""

    first: int
    last: int
    seconds: float

    def __len__(self) -> int:
        return self.last - self.first

    def places(self) -> range:
        """Give the numbers of its tests."""
        return range(self.first, self.last)


def expected(jobs: Sequence[Job]) -> list[float]:
    """Give each test's seconds; an unknown one is taken for the mean of its module, or of all."""
    known: dict[str, list[float]] = {}
    for job in jobs:
        if job.seconds is not None:
            known.setdefault(job.groups[0], []).append(job.seconds)
    means = {name: sum(found) / len(found) for name, found in known.items()}
    every = [seconds for found in known.values() for seconds in found]
    usual = sum(every) / len(every) if every else UNKNOWN
    return [means.get(job.groups[0], usual) if job.seconds is None else job.seconds for job in jobs]


# ---------------------------------------------------------------- pieces


class _Cutter:
    """Cuts numbered tests into pieces."""

    def __init__(self, jobs: Sequence[Job], seconds: Sequence[float]) -> None:
        self._jobs = jobs
        self._seconds = seconds

    def piece(self, first: int, last: int) -> Piece:
        return Piece(first, last, sum(self._seconds[first:last]))

    def modules(self, places: Iterable[int]) -> list[Piece]:
        """Cut where the numbers have gaps, and between modules."""
        found: list[list[int]] = []
        for place in sorted(places):
            if found and found[-1][1] == place and not self._is_border(place, 1):
                found[-1][1] = place + 1
            else:
                found.append([place, place + 1])
        return [self.piece(first, last) for first, last in found]

    def _is_border(self, place: int, depth: int) -> bool:
        before, after = self._jobs[place - 1].groups, self._jobs[place].groups
        return before[:depth] != after[:depth]

    def together(self, pieces: list[Piece], enough: float) -> list[Piece]:
        """Put small neighbours together."""
        found: list[Piece] = []
        for piece in pieces:
            last = found[-1] if found else None
            if last is not None and last.last == piece.first:
                seconds = last.seconds + piece.seconds
                if seconds <= enough:
                    found[-1] = Piece(last.first, piece.last, seconds)
                    continue
            found.append(piece)
        return found

    def cut(self, piece: Piece) -> list[Piece]:
        """Cut a piece in two, near its middle, along a border of fixtures where there is one."""
        depths = max(len(job.groups) for job in self._jobs[piece.first : piece.last])
        for depth in range(1, depths + 1):
            places = [
                place
                for place in range(piece.first + 1, piece.last)
                if self._is_border(place, depth)
            ]
            halves = self._halves(piece, places)
            if halves and max(half.seconds for half in halves) <= LOPSIDED * piece.seconds:
                return halves
        return self._halves(piece, range(piece.first + 1, piece.last))

    def _halves(self, piece: Piece, places: Iterable[int]) -> list[Piece]:
        wanted = set(places)
        best, sofar = (float("inf"), -1), 0.0
        for place in piece.places():
            if place in wanted:
                best = min(best, (abs(piece.seconds - 2 * sofar), place))
            sofar += self._seconds[place]
        place = best[1]
        if place < 0:
            return []
        return [self.piece(piece.first, place), self.piece(place, piece.last)]


def longest_run(pieces: Iterable[Piece], workers: int) -> tuple[float, list[Piece]]:
    """Let workers take the pieces in order; give the seconds of the last to end, and its pieces."""
    ends = [(0.0, worker) for worker in range(workers)]
    taken: list[list[Piece]] = [[] for _ in range(workers)]
    for piece in pieces:
        end, worker = heapq.heappop(ends)
        taken[worker].append(piece)
        heapq.heappush(ends, (end + piece.seconds, worker))
    end, worker = max(ends)
    return end, taken[worker]


def _longest_first(pieces: Iterable[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda piece: (-piece.seconds, piece.first))


def plan(
    jobs: Sequence[Job], places: Iterable[int], workers: int, *, in_order: bool = False
) -> list[Piece]:
    """Cut tests into pieces, in the order in which workers are to take them.

    A module stays whole, unless the last worker would end noticeably later for it.

    :param places: the numbers of the tests. :param in_order: as collected, not the longest first.
    """
    seconds = expected(jobs)
    cutter = _Cutter(jobs, seconds)
    pieces = cutter.modules(places)
    total = sum(piece.seconds for piece in pieces)
    least = LEAST if any(job.seconds is not None for job in jobs) else 0.0
    pieces = cutter.together(pieces, max(total / workers * SMALL, min(least, total / workers / 2)))
    if workers == 1:
        return pieces
    longest = max((seconds[place] for piece in pieces for place in piece.places()), default=0.0)
    bound = max(longest, total / workers)
    pieces = _longest_first(pieces)
    for _ in range(MOST_CUTS * workers):
        end, last = longest_run(pieces, workers)
        large = max((p for p in last if len(p) > 1), key=lambda p: p.seconds, default=None)
        if end <= GOOD * bound or large is None:
            break
        pieces.remove(large)
        pieces = _longest_first([*pieces, *cutter.cut(large)])
    return sorted(pieces) if in_order else pieces


# ---------------------------------------------------------------- who has what


class _Held:
    """A piece in the hands of a worker.

    :ivar left: its tests that have no verdict.
    """

    def __init__(self, worker: str, piece: Piece) -> None:
        self.worker = worker
        self.piece = piece
        self.left = set(piece.places())
        self._at = piece.first

    def current(self) -> int:
        """Give the test that runs, or will next: they run in order."""
        while self._at not in self.left:
            self._at += 1
        return self._at


class Schedule:
    """Hands the tests of one shape to workers, and keeps account of them.

    :param jobs: all tests. :param places: the numbers of those to run.
    :param workers: how many may share them.
    :param in_order: as collected, not the longest first; then no worker gets one ahead either.
    :ivar waiting: the pieces that nobody has.
    """

    def __init__(
        self, jobs: Sequence[Job], places: Iterable[int], workers: int, *, in_order: bool = False
    ) -> None:
        self._jobs = jobs
        self._workers = workers
        self._in_order = in_order
        self._seconds = expected(jobs)
        self._cutter = _Cutter(jobs, self._seconds)
        self._left = set(places)
        self._held: dict[int, _Held] = {}
        self._pieces: dict[str, list[_Held]] = {}
        self._ended: dict[str, int] = {}
        self._guessed, self._took = 0.0, 0.0
        self.waiting = plan(jobs, self._left, workers, in_order=in_order)

    # the account

    def done(self, place: int, seconds: float = 0.0) -> None:
        """Take note that a test has its verdict, and how long it took."""
        if place not in self._left:
            return
        self._left.discard(place)
        if place not in self._held:
            self._wait_without({place})
            return
        if self._jobs[place].seconds is None:
            self._guessed += self._seconds[place]
            self._took += seconds
        self._let_go(place)

    def _let_go(self, place: int) -> None:
        held = self._held.pop(place)
        held.left.discard(place)
        if not held.left:
            self._pieces[held.worker].remove(held)

    def _wait_without(self, places: set[int]) -> None:
        waiting: list[Piece] = []
        for piece in self.waiting:
            inside = set(piece.places())
            rest = inside - places
            waiting += [piece] if rest == inside else self._cutter.modules(rest)
        self.waiting = waiting

    def back(self, places: Iterable[int], *, splits: bool = False) -> None:
        """Take tests back that a worker was handed and has not begun.

        :param splits: whether their modules are to be cut, where it all ends sooner then.
        """
        found = {place for place in places if place in self._held}
        for place in found:
            self._let_go(place)
        if not found:
            return
        workers = self._workers if splits else 1
        again = plan(self._jobs, found, workers, in_order=self._in_order)
        pieces = [*self.waiting, *again]
        self.waiting = sorted(pieces) if self._in_order else _longest_first(pieces)

    def holder(self, place: int) -> str | None:
        """Name the worker that has a test."""
        held = self._held.get(place)
        return None if held is None else held.worker

    def is_over(self) -> bool:
        """Say whether every test has its verdict."""
        return not self._left

    def load(self, worker: str) -> float:
        """Give the expected seconds of what a worker has not finished."""
        return sum(self._expect(held.left) for held in self._pieces.get(worker, ()))

    def worth(self) -> tuple[int, float]:
        """Say what a further worker is worth while machines are rented.

        :return: how many modules wait of which no worker has anything; and the seconds of all tests
            that have no verdict, infinite where they are mere guesses.
        """
        held = {self._jobs[place].groups[0] for place in self._held if place in self._left}
        waiting = {
            self._jobs[place].groups[0] for piece in self.waiting for place in piece.places()
        }
        known = bool(self._guessed) or not self._guesses(self._left)
        return len(waiting - held), self._expect(self._left) if known else float("inf")

    def _expect(self, places: Iterable[int]) -> float:
        """Give the expected seconds of tests; guesses go by how long those took that are done."""
        scale = self._took / self._guessed if self._guessed else 1.0
        return sum(
            self._seconds[place] * (scale if self._jobs[place].seconds is None else 1.0)
            for place in places
        )

    # who gets what

    def take(self, worker: str, others: Iterable[str]) -> Piece | None:
        """Hand a worker what it is to do next; nothing, where it has enough or nothing waits.

        :param others: the names of the other workers that could do it.
        """
        pieces = self._pieces.setdefault(worker, [])
        if not self.waiting or len(pieces) > 1:
            return None
        if pieces and (self._in_order or not self._is_almost_done(worker, others)):
            return None
        piece = self._choose(worker)
        self.waiting.remove(piece)
        self._hand(worker, piece)
        return piece

    def _is_almost_done(self, worker: str, others: Iterable[str]) -> bool:
        others = list(others)
        if not all(map(self._pieces.get, others)):
            return False  # who has nothing comes first
        load = self.load(worker)
        return load <= SOON or all(load <= self.load(name) for name in others)

    def _hand(self, worker: str, piece: Piece) -> None:
        held = _Held(worker, piece)
        self._pieces.setdefault(worker, []).append(held)
        self._held.update(dict.fromkeys(held.left, held))
        self._ended[worker] = piece.last

    def _choose(self, worker: str) -> Piece:
        """Take the longest; or one about as long, if the worker's last module goes on in it."""
        first = self.waiting[0]
        last = self._ended.get(worker, 0)
        for piece in self.waiting if last and not self._in_order else ():
            module = self._jobs[piece.first].groups[0]
            goes_on = piece.first == last and module == self._jobs[last - 1].groups[0]
            if goes_on and piece.seconds >= AS_LONG * first.seconds:
                return piece
        return first

    def hold(self, worker: str, place: int) -> None:
        """Hand a worker one test by itself."""
        if place in self._held:
            self._let_go(place)
        self._wait_without({place})
        self._hand(worker, self._cutter.piece(place, place + 1))

    def victim(self, others: Iterable[str], *, late: bool = False) -> tuple[str, bool] | None:
        """Name a worker that is to give back what it has not begun, for one that has nothing to do.

        :param late: whether that one has had nothing to do for a while: then any work is worth it.
        :return: its name, and whether the group that it is in the midst of is to be split.
        """
        ahead, rest = [], []
        for name in others:
            pieces = self._pieces.get(name, [])
            waits = [place for held in pieces[1:] for place in held.left]
            if waits and (late or self._guesses(waits) or self._expect(waits) >= WORTH_TAKING):
                ahead.append((self._expect(waits), name))
            elif pieces and (seconds := self._expect(_rest(pieces[0]))) >= WORTH_SPLITTING:
                rest.append((seconds, name))
        best = max(ahead or rest, default=None)
        return None if best is None else (best[1], not ahead)

    def may_be_late(self, others: Iterable[str]) -> bool:
        """Say whether work may come from another worker yet: some waits, or is a guess."""
        for name in others:
            pieces = self._pieces.get(name, [])
            if len(pieces) > 1 or (pieces and self._guesses(_rest(pieces[0]))):
                return True
        return False

    def _guesses(self, places: Iterable[int]) -> bool:
        return any(self._jobs[place].seconds is None for place in places)


def _rest(held: _Held) -> set[int]:
    """Give the tests of a piece that come after the one that runs."""
    return held.left - {held.current()}
