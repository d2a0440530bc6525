"""Sweeps made up for tests, and strategies that draw some."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from pytest_remotegpu.bench.fa2.measured import Device, Measured
from pytest_remotegpu.bench.fa2.rows import (
    FA2,
    FLASH,
    MASKED,
    Branch,
    Direction,
    Parity,
    Problem,
    Regime,
    Row,
)

__all__ = ["CARD", "LENGTHS", "WINDOWS", "compressed", "made", "measureds", "sliding"]

LENGTHS = (256, 512, 1024, 2048)
WINDOWS = (32, 64, 128, 256)
CARD = Device(True, "NVIDIA H200", "2.13.0", "13.0", True)
ROUNDS = (0.98, 1.0, 1.02, 1.0, 0.99, 1.01)
KERNELS = {
    MASKED: ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80",),
    FLASH: ("pytorch_flash::flash_fwd_kernel<64>",),
    FA2: ("pytorch_flash::flash_fwd_splitkv_kernel<64>",),
}
Speed = Callable[[Problem, Regime, str, int], float]


def sliding(length: int, window: int, direction: Direction = Direction.FORWARD) -> Problem:
    sizes = 1, 2, 2, 64, 64
    return Problem(Branch.SLIDING, direction, "bfloat16", *sizes, length, window=window)


def compressed(length: int, direction: Direction = Direction.FORWARD) -> Problem:
    sizes = 1, 2, 2, 64, 64
    return Problem(Branch.COMPRESSED, direction, "bfloat16", *sizes, length, block=32, stride=16)


def grows(problem: Problem, regime: Regime, reference: str, _repetition: int) -> float:
    """Say how many times faster: the more, the longer the sequence and the smaller the window."""
    over = 1 if reference == MASKED else 2
    slow = 4 if regime is Regime.EAGER else 1
    return max(0.3, problem.length / (problem.window or 128) / (4 * over * slow))


def made(
    speed: Speed = grows,
    *,
    repetitions: int = 1,
    directions: Iterable[Direction] = (Direction.FORWARD,),
    device: Device = CARD,
) -> Measured:
    """Make a sweep.

    :param speed: how many times faster FlashAttention-2 is, by problem, regime, reference and
        repetition.
    """
    rows: list[Row] = []
    for repetition in range(1, repetitions + 1):
        for problem in _problems(directions):
            for regime in Regime:
                rows += _rows(problem, regime, repetition, speed)
    return Measured(
        device,
        tuple(rows),
        began="2026-05-25T14:03:12Z",
        ended="2026-05-25T14:09:40Z",
        sweep={"lengths": list(LENGTHS), "windows": list(WINDOWS), "rounds": len(ROUNDS)},
        environment={
            "card": device.device_name,
            "driver": "580.65.06",
            "torch": device.torch_version,
            "cuda": device.cuda_version,
            "capability": "9.0",
            "package": "0.1.0",
            "commit": "0123456789abcdef",
        },
        states=({"at": "2026-05-25T14:03:12Z", "clock": 1980, "held_back": []},),
        parity_output="masked S=256 w=32: passed\nfa2 S=256 w=32: passed\nfa2 was slow",
    )


def _problems(directions: Iterable[Direction]) -> Iterator[Problem]:
    for direction in directions:
        yield from (sliding(length, w, direction) for length in LENGTHS for w in WINDOWS)
        yield from (compressed(length, direction) for length in LENGTHS)


def _rows(problem: Problem, regime: Regime, repetition: int, speed: Speed) -> Iterator[Row]:
    base = problem.length / 2048
    for column in (MASKED, FLASH, FA2):
        factor = 1.0 if column == FA2 else speed(problem, regime, column, repetition)
        times = tuple(base * factor * each for each in ROUNDS)
        found = Row(problem, column, regime, times, KERNELS[column], Parity.PASSED)
        yield replace(found, repetition=repetition)


# drawn

NUMBERS = (0.5, 1.0, 1.25, 3.0, 1e-3, 0.0, float("inf"), float("nan"))
TEXTS = ("", "a", 'say "é"\n', "S=1 w=2", "\u2028\U0001f600", "nan")
OPEN: tuple[dict[str, Any], ...] = (
    {},
    {"card": "NVIDIA H200", "clock": 1980, "power": 402.5, "idle": True, "fan": None},
    {"held_back": ["power cap"], "nested": {"a": [1, 2, {"b": ""}]}},
)


def measureds() -> st.SearchStrategy[Measured]:
    """Draw sweeps that make no sense, but for their shape: by a number, which is quick."""
    return st.integers(0, 2**32).map(lambda seed: _any(random.Random(seed)))  # noqa: S311 -- no secret


def _any(chance: random.Random) -> Measured:
    pick = chance.choice
    drawn = [row for _ in range(pick((1, 2, 4))) for row in _any_rows(chance)]
    flags = pick((True, False)), pick((True, False))
    return Measured(
        Device(flags[0], pick(TEXTS), pick(TEXTS), pick(TEXTS), flags[1]),
        tuple(drawn),
        began=pick(TEXTS),
        ended=pick(TEXTS),
        sweep=pick(OPEN),
        environment=pick(OPEN),
        states=(pick(OPEN), pick(OPEN)),
        notes=(pick(TEXTS),),
        parity_output=pick(TEXTS),
        selection_output=pick(TEXTS),
        complete=pick((True, False)),
        cost=pick(OPEN),
    )


def _any_rows(chance: random.Random) -> Iterator[Row]:
    """Draw some columns of one problem, in one regime and repetition."""
    pick = chance.choice
    length, direction = chance.randint(1, 9999), pick(list(Direction))
    problem = pick((sliding(length, chance.randint(1, 512), direction), compressed(length)))
    regime, repetition, rounds = pick(list(Regime)), chance.randint(1, 3), chance.randint(0, 4)
    for column in (MASKED, FA2, pick((FLASH, "sdpa-cudnn"))):
        times = tuple(pick(NUMBERS) for _ in range(rounds + pick((0, 0, 0, 1))))
        parity = pick((Parity.PASSED, Parity.PASSED, *Parity))
        names = pick(((), ("flash_fwd_kernel<64>", "é")))
        yield Row(problem, column, regime, times, names, parity, pick(TEXTS), repetition)
