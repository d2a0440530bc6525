"""What was spent, through whatever becomes of machines, and the most that was said of it before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_remotegpu import spending
from pytest_remotegpu.backends.base import Environment, Price, Rental
from pytest_remotegpu.config import Settings, resolve
from pytest_remotegpu.controller import Controller, Worker
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.runlimit import CUT
from pytest_remotegpu.spending import ENDING, EVERY, LONGEST, Rates, Spending

ONE = Shape(1)
LIMIT = 60.0


class Line:
    """A channel behind which a machine is rented."""

    def __init__(self) -> None:
        self.rental = Rental()

    def send(self, data: bytes) -> None:
        """Hear nothing."""

    def frames(self) -> Iterator[bytes]:
        """Say nothing."""
        yield from ()

    def stop(self) -> None:
        """Be told to end."""

    def diagnosis(self) -> str:
        """Know nothing."""
        return ""


@dataclass
class Rents:
    """A backend that rents machines, at a dollar a second, which stay for a while."""

    name = "rents"
    ships_tree = True
    capacity = None
    one_host = False
    pretends = False
    prompt = False
    where = "nowhere"
    after: float = 20.0
    ending: float = 4.0
    usd: float = 3600.0
    away: bool = False
    asked: int = 0

    def open(self, shape: Shape, environment: Environment) -> Line:  # noqa: ARG002 -- all the same
        """Begin to prepare one."""
        return Line()

    def price(self, shape: Shape) -> Price:
        """Give the price.

        :raises FarSideError: where the service is away.
        """
        self.asked += 1
        if self.away:
            raise FarSideError("the service is away")
        return Price(self.usd * shape.count, "2026-01-01", after=self.after, ending=self.ending)


def settings_of(cap: float) -> Settings:
    return resolve(
        {"remote_run_timeout": f"{LIMIT:g}", "remote_max_cost": f"{cap:g}" if cap else None}, {}, {}
    )


@dataclass
class World:
    """Some lanes with a worker each, one after the other, and a clock."""

    width: int
    backend: Rents
    now: float = 1000.0
    lanes: list[Worker | None] = field(default_factory=list)
    machines: int = 0

    def __post_init__(self) -> None:
        chosen = settings_of(0.0)
        self.controller = Controller(self.backend, Hello.here(), Environment())
        self.spending = Spending(self.backend, chosen, 1, self.now, clock=lambda: self.now)
        said = spending.forecast(self.backend, chosen, {ONE: self.width})
        assert said.worst is not None
        self.worst = said.worst
        self.spending.expect(said)
        self.spending.count(self.controller)
        self.lanes = [None] * self.width

    @property
    def expired(self) -> bool:
        """Whether nothing may go on."""
        began = self.controller.began()
        late = began is not None and self.now >= began + LIMIT
        return late or self.spending.reached()

    def living(self) -> list[Worker]:
        return [worker for worker in self.lanes if worker is not None]

    def do(self, lane: int, what: str, age: float) -> None:
        """Let something happen to the worker of a lane, if it can; ``on`` is what comes next."""
        worker = self.lanes[lane]
        if what == "on":
            rental = None if worker is None else worker.rental
            what = "open" if rental is None else "ask" if rental.asked is None else "greet"
        if what == "open" and worker is None:
            if self.controller.refuses(ONE):
                return
            name = f"rents-{len(self.controller.workers)}"
            opened = self.lanes[lane] = Worker(name, ONE, Line(), self.now)
            self.controller.workers.append(opened)
        if worker is None or worker.rental is None:
            return
        rental = worker.rental
        if what == "ask" and rental.asked is None:
            rental.asked = self.now
        elif what in ("greet", "greet on the last") and rental.asked and not rental.began:
            self.machines += what == "greet" or not self.machines
            # a machine is not given to two at once
            taken = {each.rental.machine for each in self.living() if each.rental}
            name = f"m{self.machines}"
            rental.machine = name if name not in taken else f"m{lane}-{len(taken)}-{self.now}"
            rental.began = max(self.now - age, rental.asked)
        elif what == "lose the machine":
            rental.had, rental.stays = rental.asked is not None, False
            self.end(lane)
        elif what == "end":
            self.end(lane)

    def end(self, lane: int) -> None:
        worker = self.lanes[lane]
        assert worker is not None
        worker.ended = self.now
        self.lanes[lane] = None


WHAT = ["on", "on ", "on  ", "greet on the last", "lose the machine", "end", "wait"]
ONE_AFTER_THE_OTHER = ["on", "on", "on", "end"] * 3 + ["on"] * 3
REOPENED_LATE = [
    *((0.0, 0, "on", 0.0) for _ in range(3)),
    *((1.0, 0, "wait", 0.0) for _ in range(54)),
    *((0.0, 0, what, 0.0) for what in ("end", "on", "on")),
]
"""A worker is lost shortly before the limit, and its machine is not; another one is asked for."""
steps = st.tuples(
    st.floats(0, LONGEST), st.integers(0, 2), st.sampled_from(WHAT), st.floats(0, 100)
)


@given(
    st.integers(1, 3),
    st.sampled_from([0.0, 20.0, 200.0]),
    st.lists(steps, max_size=60),
    st.booleans(),
    st.lists(st.booleans(), max_size=3),
)
@example(1, 200.0, [(1.0, 0, what, 0.0) for what in ONE_AFTER_THE_OTHER], True, [])
@example(1, 20.0, [*REOPENED_LATE, (6.0, 0, "wait", 0.0)], False, [True])
@settings(max_examples=400)
def test_no_run_costs_more_than_was_said(
    width: int,
    after: float,
    events: list[tuple[float, int, str, float]],
    waits: bool,
    late: list[bool],
) -> None:
    """Machines are asked for, speak, are lost with and without their worker, and stay idle."""
    world = World(width, Rents(after))
    for seconds, lane, what, age in events:
        world.now += seconds
        if world.expired:
            break
        world.do(lane % width, what.strip(), age)
    for lane, greets in enumerate(late):  # they are told to end, and may be on their way
        if world.expired and greets:
            world.do(lane % width, "greet", 0.0)
    for _ in range(int(LIMIT) + 1):
        if waits and not world.expired:
            world.now += LONGEST
    # nobody says anything: all are cut off, and take as long as they may
    world.now += (CUT + world.backend.ending) if world.living() else 0.0
    for lane, worker in enumerate(world.lanes):
        if worker is not None:
            world.end(lane)
    spent = sum(each.usd or 0.0 for each in world.spending.close())
    assert spent <= world.worst * (1 + 1e-9)


def test_what_a_worker_may_take_to_end_is_in_the_bound() -> None:
    world = World(1, Rents(after=0.0))
    assert world.worst == pytest.approx(LIMIT + ENDING + world.backend.ending)
    assert CUT + LONGEST <= ENDING


@pytest.mark.parametrize(
    ("events", "spent"),
    [
        (["open"], 0.0),
        (["open", "ask"], 0.0),
        (["open", "ask", "greet"], 1.0 + 20),
        (["open", "ask", "lose the machine"], 1.0),
        (["open", "ask", "greet", "lose the machine"], 1.0),
        (["open", "ask", "greet", "end", "open", "ask", "greet on the last"], 5.0 + 20),
        (["open", "ask", "greet", "end", "open", "ask", "greet"], 1.0 + 20 + 1.0 + 20),
    ],
)
def test_what_is_paid_for(events: list[str], spent: float) -> None:
    """From when a machine began, to its end; nothing where there was none."""
    world = World(1, Rents())
    for what in events:
        world.do(0, what, 0.0)
        world.now += 1
    if world.lanes[0] is not None:
        world.end(0)
    found = world.spending.close()
    assert sum(each.usd or 0.0 for each in found) == pytest.approx(spent)


@pytest.mark.parametrize(("seconds", "refused"), [(40.0, False), (40.5, True)])
def test_another_worker_is_refused_that_would_cost_more_than_was_said(
    seconds: float, *, refused: bool
) -> None:
    """20 s of the machine that was left alone, 32 for the end of another one, of 60 and 32."""
    world = World(1, Rents(after=20.0))
    for what in ("open", "ask", "greet"):
        world.do(0, what, 0.0)
    world.now += seconds
    world.do(0, "end", 0.0)
    assert not world.spending.reached()
    said = world.controller.refuses(ONE)
    assert ("$92.00 are reached that this run was said to cost at most" in said) == refused


def test_whoever_comes_in_the_place_of_a_dead_process_has_what_is_left() -> None:
    world = World(1, Rents(after=20.0))
    world.spending.succeed({ONE}, 10.0, 1)
    assert world.spending.gone == 10.0 + ENDING + 4.0 + 20.0
    assert world.controller.refuses(ONE) == ""
    world.spending.succeed({ONE}, 30.0, 1)  # 62 s of 92 are gone, and its end takes 32
    assert world.controller.refuses(ONE)


# what a backend is asked


def busy(world: World) -> World:
    for what in ("open", "ask", "greet"):
        world.do(0, what, 0.0)
    return world


def total(world: World) -> float:
    return sum(each.usd or 0.0 for each in world.spending.so_far()[0])


def test_no_worker_is_free_while_the_service_is_away() -> None:
    """The last price that was known holds, be that the one of the forecast."""
    world = World(1, Rents(after=0.0))
    world.backend.away = True
    busy(world)
    world.now += 2 * EVERY
    assert total(world) == 2 * EVERY
    world.now += LIMIT
    world.do(0, "end", 0.0)
    assert [each.usd for each in world.spending.close()] == [2 * EVERY + LIMIT]
    assert world.spending.refuses(ONE)


def test_a_price_that_is_not_known_any_more_holds() -> None:
    """And so do the times that come with it, although the user names a price for the kind."""
    backend = Rents(after=20.0)
    now = 0.0
    rates = Rates(backend, {"rents": 36.0}, lambda: now)
    first = rates.of(ONE)
    assert first is not None
    assert first.after == 20.0
    backend.away, now = True, EVERY
    assert rates.of(ONE) == first
    fresh = Rates(backend, {}, lambda: now)
    assert fresh.of(ONE) is None
    backend.away, backend.usd = False, math.nan
    assert fresh.of(ONE) is None
    backend.usd = 72.0
    found = fresh.of(ONE, anew=True)
    assert found is not None
    backend.usd = math.nan
    assert fresh.of(ONE, anew=True) == found


def test_a_price_is_asked_for_now_and_then() -> None:
    """However much happens meanwhile; but a bill is made by the newest one."""
    world = busy(World(1, Rents()))
    asked = world.backend.asked
    for _ in range(1000):
        assert not world.spending.reached()
        assert world.spending.seconds_left() > 0
        world.spending.refuses(ONE)
    assert world.backend.asked == asked
    for _ in range(30):
        world.now += 1
        world.spending.reached()
    assert asked + 2 <= world.backend.asked <= asked + 4
    world.backend.usd *= 2
    world.do(0, "end", 0.0)
    assert sum(each.usd or 0.0 for each in world.spending.close()) == 2 * (30 + 20)
