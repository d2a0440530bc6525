"""Reading on from a call: what was had is left out, and failures are borne for a while only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal.outage import STEADY, Outage, steady


class Clock:
    """Goes on by as much as each try lasts."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Service:
    """Breaks off after so many items at each try, each of which lasts for so long."""

    def __init__(self, items: int, breaks: list[tuple[int, float]]) -> None:
        self.items, self.breaks = items, breaks
        self.clock = Clock()
        self.said: list[str] = []
        self.tries = 0

    async def read(self) -> AsyncGenerator[int, None]:
        self.tries += 1
        until, lasts = self.breaks.pop(0) if self.breaks else (self.items, 0.0)
        for item in range(min(until, self.items)):
            yield item
        self.clock.now += lasts
        if until < self.items:
            raise OSError("it is away")

    def all(self, limit: float) -> list[int]:
        found: list[int] = []

        async def collect() -> None:
            outage = Outage(limit, self.said.append, self.clock)
            passes = lambda error: isinstance(error, OSError)  # noqa: E731 -- one word
            async for item in steady(self.read, passes, outage, pause=0.0):
                found.append(item)  # noqa: PERF401 -- what came before an error counts, too

        asyncio.run(collect())
        return found


@given(st.integers(0, 12), st.lists(st.tuples(st.integers(0, 12), st.just(1.0)), max_size=6))
def test_each_item_comes_once(items: int, breaks: list[tuple[int, float]]) -> None:
    assert Service(items, breaks).all(limit=100.0) == list(range(items))


def test_an_outage_is_said_once_and_so_is_its_end() -> None:
    service = Service(5, [(2, 1.0), (2, 1.0), (1, 1.0)])
    assert service.all(limit=45.0) == [0, 1, 2, 3, 4]
    assert service.said == [
        "Modal's service does not answer (it is away); tries for 45 s",
        "Modal's service is there again",
    ]


def test_it_is_borne_for_so_long_only() -> None:
    service = Service(5, [(2, 1.0)] * 100)
    with pytest.raises(OSError, match="it is away"):
        service.all(limit=10.0)
    assert service.tries == 11
    assert service.said == ["Modal's service does not answer (it is away); tries for 10 s"]


def test_a_try_that_lasts_is_none_of_an_outage() -> None:
    """A container that has not started says nothing for long, and two outages are not one."""
    service = Service(5, [(0, 1.0), (0, STEADY + 1), (0, STEADY + 1), (0, 1.0)])
    assert service.all(limit=10.0) == [0, 1, 2, 3, 4]


def test_other_errors_are_not_borne() -> None:
    class Broken(Service):
        async def read(self) -> AsyncGenerator[int, None]:
            yield 0
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Broken(5, []).all(limit=10.0)
