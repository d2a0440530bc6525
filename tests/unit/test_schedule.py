"""Who takes which tests: pieces, hand-outs, what is given back, and when it all ends."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_remotegpu.schedule import Job, Schedule, longest_run, plan

DURATIONS = st.floats(0.001, 100.0)
JOBS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.one_of(st.none(), DURATIONS)),
    min_size=1,
    max_size=40,
).map(
    lambda rows: [
        Job((f"test_{module}.py", f"Test{name}"), seconds)
        for module, name, seconds in sorted_(rows)
    ]
)


def sorted_(rows: list[tuple[int, int, float | None]]) -> list[tuple[int, int, float | None]]:
    """Put the tests of a module, and of a class, together, as a collection does."""
    return sorted(rows, key=lambda row: row[:2])


def module(name: str, *seconds: float | None) -> list[Job]:
    return [Job((name, f"{name}::test_{at}"), each) for at, each in enumerate(seconds)]


# ---------------------------------------------------------------- pieces


@given(JOBS, st.integers(1, 5), st.data())
def test_pieces_hold_each_test_once(jobs: list[Job], workers: int, data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, len(jobs) - 1)))
    pieces = plan(jobs, places, workers)
    assert sorted(place for piece in pieces for place in piece.places()) == sorted(places)


@given(JOBS, st.integers(2, 5))
def test_the_longest_go_first(jobs: list[Job], workers: int) -> None:
    seconds = [piece.seconds for piece in plan(jobs, range(len(jobs)), workers)]
    assert seconds == sorted(seconds, reverse=True)


@given(JOBS, st.integers(1, 5))
def test_or_all_in_order(jobs: list[Job], workers: int) -> None:
    pieces = plan(jobs, range(len(jobs)), workers, in_order=True)
    assert [place for piece in pieces for place in piece.places()] == list(range(len(jobs)))


@given(st.lists(DURATIONS, min_size=1, max_size=40), st.integers(2, 5))
def test_makespan_of_one_module(seconds: list[float], workers: int) -> None:
    """A module that decides when it all ends is cut, as far down as its single tests."""
    pieces = plan(module("test_a.py", *seconds), range(len(seconds)), workers)
    end, _ = longest_run(pieces, workers)
    share = sum(seconds) / workers
    assert end <= (share + max(seconds)) * (1 + 1e-9)


def test_modules_stay_whole() -> None:
    jobs = [*module("a", 1, 2, 3), *module("b", 2, 2, 2), *module("c", 5, 1), *module("d", 6)]
    assert [(p.first, p.last) for p in plan(jobs, range(9), 2)] == [(0, 3), (3, 6), (6, 8), (8, 9)]


def test_a_module_that_is_too_large_is_cut_between_its_classes() -> None:
    jobs = [Job(("a", f"a::Test{at // 4}", str(at)), 1.0) for at in range(8)]
    assert [(p.first, p.last) for p in plan(jobs, range(8), 2)] == [(0, 4), (4, 8)]


def test_a_class_that_is_too_large_is_cut_as_well() -> None:
    jobs = [Job(("a", "a::Test", str(at)), 1.0) for at in range(8)]
    assert [(p.first, p.last) for p in plan(jobs, range(8), 2)] == [(0, 4), (4, 8)]


def test_small_neighbours_go_together() -> None:
    jobs = [job for at in range(1000) for job in module(f"test_{at}.py", 0.001)]
    assert len(plan(jobs, range(1000), 2)) <= 2 * 32 + 2


def test_unknown_tests_are_taken_for_the_mean_of_their_module() -> None:
    jobs = [*module("a", 4.0, None), *module("b", 1.0, 2.0)]
    assert [piece.seconds for piece in plan(jobs, range(4), 2)] == [4.0, 4.0, 2.0, 1.0]


# ---------------------------------------------------------------- workers at work


@dataclass
class World:
    """Workers that run what a schedule hands them, and their clock.

    :ivar events: when which worker ends its running test. :ivar runs: how often each test ended.
    """

    schedule: Schedule
    took: list[float]
    workers: list[str]
    now: float = 0.0
    events: list[tuple[float, str, int]] = field(default_factory=list)
    queues: dict[str, list[int]] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def others(self, name: str) -> list[str]:
        return [worker for worker in self.workers if worker not in {name, *self.lost}]

    def running(self, name: str) -> int | None:
        return next((place for _, worker, place in self.events if worker == name), None)

    def feed(self) -> None:
        """Hand out, take back from the late, and begin."""
        for name in self.workers:
            if name in self.lost:
                continue
            while (piece := self.schedule.take(name, self.others(name))) is not None:
                for place in piece.places():
                    assert self.schedule.holder(place) == name
                    assert not any(place in queue for queue in self.queues.values())
                self.queues.setdefault(name, []).extend(piece.places())
        for name in self.workers:
            idle = name not in self.lost and not self.queues.get(name)
            if idle and self.running(name) is None and not self.schedule.waiting:
                victim = self.schedule.victim(self.others(name))
                if victim is not None:
                    self.take_back(victim[0])
                    self.schedule_again(name)
        for name in self.workers:
            if self.queues.get(name) and self.running(name) is None:
                place = self.queues[name].pop(0)
                heapq.heappush(self.events, (self.now + self.took[place], name, place))

    def schedule_again(self, name: str) -> None:
        piece = self.schedule.take(name, self.others(name))
        if piece is not None:
            self.queues.setdefault(name, []).extend(piece.places())

    def take_back(self, name: str) -> None:
        self.schedule.back(self.queues.pop(name, []))

    def lose(self, name: str) -> None:
        """Lose a worker: what it ran, and all that it had, goes to others."""
        self.lost.add(name)
        mine = [place for _, worker, place in self.events if worker == name]
        self.events = [entry for entry in self.events if entry[1] != name]
        heapq.heapify(self.events)
        self.schedule.back([*mine, *self.queues.pop(name, [])])

    def end_one(self) -> None:
        self.now, name, place = heapq.heappop(self.events)
        assert self.schedule.holder(place) == name
        self.runs[place] = self.runs.get(place, 0) + 1
        self.schedule.done(place, self.took[place])


def world(jobs: list[Job], took: list[float], workers: int) -> World:
    names = [f"w{at}" for at in range(workers)]
    return World(Schedule(jobs, range(len(jobs)), workers), took, names)


@given(JOBS, st.integers(1, 5), st.data())
@settings(max_examples=200)
def test_each_test_ends_once_whoever_is_lost(
    jobs: list[Job], workers: int, data: st.DataObject
) -> None:
    took = data.draw(st.lists(DURATIONS, min_size=len(jobs), max_size=len(jobs)))
    there = world(jobs, took, workers)
    there.feed()
    while there.events:
        alive = there.others("")
        if len(alive) > 1 and data.draw(st.booleans(), label="one is lost"):
            there.lose(data.draw(st.sampled_from(alive)))
        else:
            there.end_one()
        there.feed()
    assert there.schedule.is_over()
    assert there.runs == dict.fromkeys(range(len(jobs)), 1)


@given(st.lists(DURATIONS, min_size=1, max_size=40), st.integers(1, 5))
def test_known_durations_end_in_time(seconds: list[float], workers: int) -> None:
    """No worker idles while a test waits, so that none ends later than this."""
    jobs = [job for at, each in enumerate(seconds) for job in module(f"test_{at}.py", each)]
    there = world(jobs, seconds, workers)
    there.feed()
    while there.events:
        there.end_one()
        there.feed()
    latest = sum(seconds) / workers + 2 * max(seconds)
    assert there.now <= latest * (1 + 1e-9)


def test_one_that_is_late_gives_back_what_waits() -> None:
    jobs = [job for at in range(3) for job in module(f"test_{at}.py", None)]
    schedule = Schedule(jobs, range(3), 2)
    assert schedule.take("a", ["b"]) is not None
    assert schedule.take("b", ["a"]) is not None
    ahead = schedule.take("a", ["b"])
    assert ahead is not None
    schedule.done(1, 0.5)
    assert schedule.take("b", ["a"]) is None
    assert schedule.victim(["a"]) == ("a", False)
    schedule.back(ahead.places())
    assert schedule.take("b", ["a"]) is not None
    assert schedule.holder(ahead.first) == "b"


def test_a_module_that_has_begun_is_split_where_it_is_worth_it() -> None:
    schedule = Schedule(module("test_a.py", 4.0, 4.0, 0.1), range(3), 1)
    assert schedule.take("a", []) is not None
    assert schedule.victim(["a"]) == ("a", True)
    schedule.done(0)
    schedule.done(1)
    assert schedule.victim(["a"]) is None


def test_tests_by_themselves_are_not_waiting_any_more() -> None:
    schedule = Schedule(module("test_a.py", 1.0, 1.0, 1.0), range(3), 1)
    schedule.hold("a", 1)
    assert [(piece.first, piece.last) for piece in schedule.waiting] == [(0, 1), (2, 3)]
    schedule.done(1)
    schedule.done(2)
    assert [(piece.first, piece.last) for piece in schedule.waiting] == [(0, 1)]


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_uneven_tests_come_near_the_best(workers: int) -> None:
    seconds = [0.1 + (at * 7919 % 97) / 25 for at in range(30 * workers)]
    jobs = [Job((f"test_{at // 10}.py", f"test_{at}"), each) for at, each in enumerate(seconds)]
    there = world(jobs, seconds, workers)
    there.feed()
    while there.events:
        there.end_one()
        there.feed()
    assert there.now <= 1.05 * max(*seconds, sum(seconds) / workers)


# whether a further worker is worth its machine


def test_guesses_are_worth_a_worker_for_each_module() -> None:
    jobs = [Job(("a.py",)), Job(("a.py",)), Job(("b.py",))]
    assert Schedule(jobs, range(3), 2).worth() == (2, float("inf"))


def test_what_is_known_is_worth_its_seconds() -> None:
    schedule = Schedule([Job((name,), 4.0) for name in "abc"], range(3), 2)
    assert schedule.worth() == (3, 12.0)
    schedule.take("0", [])
    schedule.done(0, 4.0)
    assert schedule.worth() == (2, 8.0)


def test_guesses_become_known_by_what_is_done() -> None:
    schedule = Schedule([Job((name,)) for name in "abc"], range(3), 1)
    schedule.take("0", [])
    schedule.done(0, 30.0)
    assert schedule.worth() == (2, 60.0)


def test_a_module_that_a_worker_is_at_is_worth_no_further_one() -> None:
    schedule = Schedule([Job(("a.py",)) for _ in range(4)], range(4), 4)
    assert len(schedule.waiting) > 1
    schedule.take("0", [])
    assert schedule.waiting
    assert schedule.worth() == (0, float("inf"))
