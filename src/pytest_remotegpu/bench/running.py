"""One benchmark from beginning to end: all modes, the card around them, what the numbers mean.

Knows torch through its neighbours only; no pytest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pytest_remotegpu import cards
from pytest_remotegpu.bench import ceilings, states, surroundings
from pytest_remotegpu.bench.contestants import Inputs
from pytest_remotegpu.bench.cuda import CudaTimer, cache_bytes
from pytest_remotegpu.bench.estimates import median
from pytest_remotegpu.bench.measured import Entrant, Rate, Result
from pytest_remotegpu.bench.timing import Budget, Call, CaptureError, Mode, Timing, timed
from pytest_remotegpu.bench.wall import WallTimer
from pytest_remotegpu.errors import RemoteGpuError

__all__ = ["MODES", "FasterThanLightError", "Plan", "run"]

MODES: Final = (Mode.EAGER, Mode.GRAPH)
"""What a card is timed in where nothing else is asked for."""
LIGHT: Final = 1.05
"""So many times the card's ceiling can't be: then something else was timed than was meant."""
HOST_ROUNDS: Final = 10
COLD, WARM = "cold", "warm"
Clock = Callable[[], float]


class FasterThanLightError(RemoteGpuError):
    """Raised when a call seems to do more in a second than its card can."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be timed, and how.

    :ivar functions: by name; the first one is on trial. :ivar inputs: what they are called with.
    :ivar moved: by name, bytes that a call reads and writes. :ivar flops: operations of a call.
    :ivar dtype: such as ``bfloat16``; that of the inputs where it is empty.
    :ivar modes: on a card. :ivar insists: whether each of them has to be possible.
    :ivar flush: whether the card's cache is to be cold.
    """

    functions: Mapping[str, Callable[..., object]]
    inputs: Inputs
    moved: Mapping[str, float] = field(default_factory=dict)
    flops: Mapping[str, float] = field(default_factory=dict)
    dtype: str = ""
    modes: tuple[Mode, ...] = MODES
    insists: bool = False
    flush: bool = True
    budget: Budget = field(default_factory=Budget)
    group: str = ""


def run(plan: Plan, device: Any = None, *, clock: Clock | None = None) -> Result:
    """Time a plan on a device.

    :param device: a ``torch.device``; ``None`` is the CPU.
    :param clock: seconds, for a CPU and for the host; the best one of the system without it.
    :raises UsageError: for a plan that can't be meant.
    :raises CaptureError: where a graph is insisted on, and can't be.
    :raises FasterThanLightError: where a card seems to exceed its ceiling.
    :raises Exception: whatever a contestant raises.
    """
    clock = clock or time.perf_counter
    if device is None or device.type == "cpu":
        return _on_host(plan, WallTimer(clock), clock)
    timer = CudaTimer(device, flush=plan.flush, clock=clock)
    return _on_card(plan, timer, clock)


def _on_host(plan: Plan, timer: WallTimer, clock: Clock) -> Result:
    calls = {name: plan.inputs.call(function) for name, function in plan.functions.items()}
    found = timed(calls, timer, mode=Mode.WALL, budget=plan.budget, clock=clock)
    entrants = {
        name: _rated(plan, name, Entrant(found.first[name], {Mode.WALL: found.times[name]}))
        for name in calls
    }
    dtype = plan.dtype or plan.inputs.dtype()
    return Result(
        entrants,
        {},
        surroundings.of_host(dtype),
        group=plan.group,
        warmup=plan.budget.warmup,
    )


def _on_card(plan: Plan, timer: CudaTimer, clock: Clock) -> Result:
    index = timer.device.index
    uuid = surroundings.uuid_of(index)
    dtype = plan.dtype or plan.inputs.dtype()
    tops = ceilings.of_card(timer, uuid, dtype) if plan.moved or plan.flops else None
    rounds = _Rounds(plan, timer, clock)
    entrants, state = _watched(rounds, uuid)
    again = state.throttled
    if again:
        entrants, state = _watched(rounds, uuid)
    cache = cache_bytes(timer.device)
    rated = {name: _rated(plan, name, one, tops, cache) for name, one in entrants.items()}
    return Result(
        rated,
        rounds.l2(),
        surroundings.of_card(index, uuid, dtype),
        state=state.plain(),
        why=f"the card was held back by {_listed(state.throttled)}" if state.throttled else "",
        notes=(*rounds.notes(), *_seen(state, again), *_doubts(rated)),
        group=plan.group,
        warmup=plan.budget.warmup,
    )


def _watched(rounds: _Rounds, uuid: str) -> tuple[dict[str, Entrant], states.State]:
    before = cards.reading(uuid)
    entrants = rounds.entrants()
    return entrants, states.look(uuid, before)


def _seen(state: states.State, again: Sequence[str]) -> Iterator[str]:
    """Say what was seen of the card.

    :param again: what held it back when all was timed for the first time.
    """
    if again:
        yield f"timed twice: at first the card was held back by {_listed(again)}"
    if state.others:
        many = "another process" if state.others == 1 else f"{state.others} other processes"
        yield f"{many} used the card meanwhile"
    if state.held_back and not state.throttled:
        yield f"the card was held back by {_listed(state.held_back)}"


def _doubts(entrants: Mapping[str, Entrant]) -> Iterator[str]:
    """Name those that move more than memory alone can."""
    for name, one in entrants.items():
        for mode, rates in one.rates.items():
            if "bytes" in rates and (rates["bytes"].share or 0) > LIGHT:
                yield (
                    f"{name} ({mode}) moves more than memory can: some of it may be in the L2 "
                    "cache, or bytes= says too many"
                )
                break


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)


class _Rounds:
    """Times all modes of a plan on a card, once or again."""

    def __init__(self, plan: Plan, timer: CudaTimer, clock: Clock) -> None:
        import torch  # noqa: PLC0415 -- who has a CudaTimer has imported it

        self._plan = plan
        self._timer = timer
        self._clock = clock
        free, _all = torch.cuda.mem_get_info(timer.device)
        cache = cache_bytes(timer.device)
        self._copies = plan.inputs.copies_for(cache, free) if plan.flush else 1
        self._large = plan.inputs.size > ceil_of(cache)
        self._uncaptured: dict[str, str] = {}
        self._first: dict[str, float] = {}
        self._calls = {
            mode: self._bound(self._copies if mode is Mode.GRAPH else 1) for mode in plan.modes
        }

    def _bound(self, copies: int) -> dict[str, Call]:
        inputs, functions = self._plan.inputs, self._plan.functions
        if copies > 1:
            return {name: inputs.turning(function, copies) for name, function in functions.items()}
        return {name: inputs.call(function) for name, function in functions.items()}

    def notes(self) -> Sequence[str]:
        return [f"no graph of {name}: {why}" for name, why in self._uncaptured.items()]

    def l2(self) -> dict[Mode, str]:
        """Say of each mode whether the card's cache is cold."""
        rotates = self._copies > 1 or (self._plan.flush and self._large)
        words = {Mode.EAGER: self._plan.flush, Mode.GRAPH: rotates}
        return {mode: COLD if words[mode] else WARM for mode in self._plan.modes}

    def entrants(self) -> dict[str, Entrant]:
        names = list(self._plan.functions)
        times: dict[str, dict[Mode, tuple[float, ...]]] = {name: {} for name in names}
        host: Mapping[str, float] = {}
        for mode in self._plan.modes:
            found = self._timed(mode)
            for name, one in found.times.items():
                times[name][mode] = one
            self._first = {**found.first, **self._first}
            if mode is Mode.EAGER:
                host = self._host()
        return {
            name: Entrant(
                self._first[name], times[name], host.get(name), self._uncaptured.get(name, "")
            )
            for name in names
        }

    def _host(self) -> dict[str, float]:
        calls = self._calls[Mode.EAGER]
        issued = self._timer.issue(list(calls.values()), HOST_ROUNDS)
        return {name: median(one).mid for name, one in zip(calls, issued, strict=True)}

    def _timed(self, mode: Mode) -> Timing:
        """Time one mode; without those of which there can be no graph, where that is allowed."""
        calls = self._calls[mode]
        while True:
            left = {name: call for name, call in calls.items() if name not in self._uncaptured}
            if mode is not Mode.GRAPH:
                left = calls
            if not left:
                return Timing({}, {})
            try:
                return timed(
                    left, self._timer, mode=mode, budget=self._plan.budget, clock=self._clock
                )
            except CaptureError as error:
                if self._plan.insists or error.contestant not in left:
                    raise
                own = error.__cause__  # which does not name it once more
                self._uncaptured[error.contestant] = getattr(own, "what", str(error))


def ceil_of(cache: int) -> int:
    """Give the bytes of inputs from which on a cache holds nothing of the next call's."""
    return 4 * cache


def _rated(
    plan: Plan,
    name: str,
    entrant: Entrant,
    tops: ceilings.Ceilings | None = None,
    cache: int = 0,
) -> Entrant:
    """Add what was achieved.

    :param cache: bytes that a call may find in the card's cache, or leave there.
    :raises FasterThanLightError: where that is more than the card can.
    """
    moved, flops = plan.moved.get(name), plan.flops.get(name)
    bandwidth = (tops.bandwidth, tops.most_bandwidth) if tops else (None, None)
    speed = (tops.flops, tops.most_flops) if tops else (None, None)
    rates: dict[Mode, dict[str, Rate]] = {}
    for mode, times in entrant.times.items():
        seconds = median(times).mid / 1000
        here = rates[mode] = {}
        if moved:
            by = f"measured {tops.by}" if tops else ""
            here["bytes"] = Rate(moved / seconds, bandwidth[0], by)
            _check(name, mode, "byte/s", max(0, moved - 2 * cache) / seconds, bandwidth[1])
        if flops:
            by = f"measured mm, {tops.dtype}" if tops and tops.dtype else ""
            here["flops"] = Rate(flops / seconds, speed[0], by)
            _check(name, mode, "operation/s", flops / seconds, speed[1])
    return replace(entrant, moved=moved, flops=flops, rates=rates)


def _check(name: str, mode: Mode, unit: str, value: float, most: float | None) -> None:
    if most and value > LIGHT * most:
        raise FasterThanLightError(
            f"{name} ({mode}) would do {value:.3g} {unit}, and this card can do {most:.3g}",
            fix="look whether the call does all of its work, and whether bytes= and flops= are "
            "those of one call",
        )
