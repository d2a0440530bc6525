"""Benchmarks as data, for those who read them."""

from __future__ import annotations

from typing import Any

from pytest_remotegpu.bench.measured import Entrant, Result
from pytest_remotegpu.bench.timing import Mode
from pytest_remotegpu.bench.told import Kept, read

__all__ = ["ENVIRONMENT", "kept", "plain"]

ENVIRONMENT = {
    "device": "NVIDIA X1",
    "host": "Some CPU",
    "threads": 2,
    "python": "3.11.7",
    "torch": "2.11.0",
    "cuda": "13.0",
    "driver": "580.1",
    "dtype": "bfloat16",
    "clock": {"most_sm_mhz": 1980, "set_sm_mhz": None},
}


def plain(
    ms: float = 1.0,
    *,
    mode: Mode = Mode.EAGER,
    spread: float = 0.01,
    held_back: tuple[str, ...] = (),
    l2: str = "cold",
    why: str = "",
    **environment: Any,
) -> dict[str, Any]:
    """Give one contestant of so many milliseconds, measured somewhere."""
    times = tuple(ms * (1 + spread * n) for n in range(-5, 6))
    return Result(
        {"contestant": Entrant(ms, {mode: times})},
        {mode: l2},
        {**ENVIRONMENT, **environment},
        state={"held_back": list(held_back)},
        why=why,
    ).plain()


def kept(
    *data: dict[str, Any], test: str = "test_a.py::test", outcome: str = "passed"
) -> list[Kept]:
    """Read what a test's report tells."""
    return read(test, outcome, list(data))
