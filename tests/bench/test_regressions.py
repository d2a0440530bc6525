"""Two sweeps beside each other: what has become slower, and what can't be compared at all."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sweeps import CARD, grows, made
from pytest_remotegpu.bench.fa2 import compare, regressions
from pytest_remotegpu.bench.fa2.document import Document, from_plain
from pytest_remotegpu.bench.fa2.judging import Question
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.regressions import Comparison, State, against, lines
from pytest_remotegpu.bench.fa2.rows import FA2, MASKED, Parity, Problem, Regime

DEVICE = Question(Regime.DEVICE)


def scaled(measured: Measured, factor: float, column: str = "", noise: float = 0.0) -> Measured:
    """Make times longer: of one column, or of all; by turns a little more and less."""
    rows = (
        replace(
            row,
            times=tuple(
                time * factor * (1 + (noise if n % 2 else -noise))
                for n, time in enumerate(row.times)
            ),
        )
        if column in ("", row.column)
        else row
        for row in measured.rows
    )
    return replace(measured, rows=tuple(rows))


def compared(before: Measured, now: Measured, **more: Any) -> Comparison:
    return against(before, now, DEVICE, **more)


def states(found: Comparison) -> Counter[State]:
    return Counter(change.state for change in found.changes)


def test_the_same_again_is_equal() -> None:
    found = compared(made(), made())
    assert states(found) == {State.EQUAL: 120}
    assert found.status == 0
    assert list(lines(found)) == ["120 equal", "fa2_min_len_win: 2048", "fa2_min_len_cmp: 63"]


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"parity": Parity.FAILED}, 1, "fa2 differs from float32"),
        ({"parity": Parity.NOT_CHECKED}, 5, "fa2 was not compared with float32"),
        ({}, 5, "the sweep has not come to its end"),
    ],
)
def test_a_sweep_that_is_wrong_is_no_equal(change: dict[str, Any], status: int, said: str) -> None:
    rows = (replace(row, **change) if row.column == FA2 else row for row in made().rows)
    now = replace(made(), rows=tuple(rows), complete=bool(change))
    found = compared(made(), now)
    assert found.status == status
    assert any(line.startswith(f"the new times stand for nothing: {said}") for line in lines(found))
    if change.get("parity") is Parity.NOT_CHECKED:
        assert compared(now, now).status == 0  # as it was before


@given(st.floats(0.001, 1))
def test_what_has_become_faster_never_fails(factor: float) -> None:
    found = compared(made(), scaled(made(), factor))
    assert found.status == 0
    assert set(states(found)) <= {State.EQUAL, State.FASTER}


@given(st.floats(1.1, 1000))
def test_what_has_become_slower_is_named(factor: float) -> None:
    found = compared(made(), scaled(made(), factor, FA2))
    assert states(found) == {State.EQUAL: 80, State.SLOWER: 40}
    assert found.status == 1
    slower = [change for change in found.changes if change.state is State.SLOWER]
    assert all(change.name.startswith("fa2, S=") for change in slower)


@given(st.floats(0, 0.2), st.floats(0.98, 1.02))
def test_noise_is_no_reason(noise: float, factor: float) -> None:
    """Intervals that touch, or lie no more than the band apart, are equal."""
    noisy = scaled(made(), 1.0, noise=noise)
    assert states(compared(noisy, scaled(noisy, factor))) == {State.EQUAL: 120}


def test_the_band_is_the_users() -> None:
    slower = scaled(made(), 1.2)
    assert compared(made(), slower).status == 1
    assert compared(made(), slower, band=0.3).status == 0
    for band in (-0.1, math.nan):
        with pytest.raises(ValueError, match="the band is"):
            compared(made(), made(), band=band)


def test_a_faster_reference_is_no_regression_of_anything() -> None:
    """The threshold moves, and is told; nothing has become slower."""
    found = compared(made(), scaled(made(), 0.5, MASKED))
    assert found.status == 0
    assert "fa2_min_len_win: 2048 before, off now" in found.thresholds


def test_a_row_that_is_not_timed_any_more_fails() -> None:
    rows = tuple(
        replace(row, times=(), why="out of memory") if row.column == FA2 else row
        for row in made().rows
    )
    found = compared(made(), replace(made(), rows=rows))
    assert found.status == 1
    assert states(found)[State.LOST] == 40
    assert any(line.endswith("Dv=64: out of memory") for line in lines(found))


def test_another_sweep_is_compared_where_both_have_rows() -> None:
    half = replace(made(), rows=tuple(r for r in made().rows if r.problem.length > 512))
    assert states(compared(made(), half)) == {State.EQUAL: 60, State.GONE: 60}
    assert states(compared(half, made())) == {State.EQUAL: 60, State.NEW: 60}
    assert compared(half, made()).status == 0
    told = list(lines(compared(half, made())))
    assert len([line for line in told if line.startswith("new: ")]) == 11
    assert "new: ... and 50 more" in told
    assert len([t for t in lines(compared(made(), scaled(made(), 2))) if "slower: " in t]) == 120
    other = replace(made(), rows=tuple(r for r in made().rows if r.problem.length <= 512))
    assert compared(half, other).status == 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device": replace(CARD, device_name="NVIDIA A100")}, "card: NVIDIA H200 and NVIDIA A100"),
        ({"device": replace(CARD, torch_version="2.14.0")}, "torch: 2.13.0 and 2.14.0"),
        ({"device": replace(CARD, cuda_version="13.1")}, "CUDA: 13.0 and 13.1"),
        ({"environment": {"driver": "1"}}, "driver: 580.65.06 and 1"),
        ({"states": ({"held_back": ["power cap"]},)}, "held back: no and power cap"),
    ],
)
def test_other_environments_are_not_compared(change: dict[str, Any], said: str) -> None:
    found = compared(made(), replace(scaled(made(), 9), **change))
    assert (found.differences, found.changes, found.status) == ((said,), (), 5)
    assert next(iter(lines(found))) == f"not compared, the environments differ: {said}"


def test_what_only_one_says_is_no_difference() -> None:
    assert compared(made(), replace(made(), environment={})).status == 0


# documents of others


def foreign(time: Any = 0.2, **more: Any) -> Measured:
    result = {
        "branch": "sliding",
        "sequence_length": 512,
        "window_size": 64,
        "speedup": 1.5,
        "masked_ms": 0.3,
        "fa2_ms": time,
    }
    device = {"cuda_available": True, "device_name": "A100"}
    data = {"results": [result], "parity_passed": True, "device_info": device, **more}
    return from_plain(data).measured


def test_documents_of_others_are_compared() -> None:
    assert states(compared(foreign(), foreign(0.21))) == {State.EQUAL: 1, State.SLOWER: 1}
    assert states(compared(foreign(), foreign(None))) == {State.EQUAL: 1, State.LOST: 1}
    assert states(compared(foreign(math.inf), foreign())) == {State.EQUAL: 1, State.NEW: 1}


@pytest.mark.parametrize("off", [-1, 0, 8192, 999999])
def test_each_word_for_off_is_off(off: int) -> None:
    before = foreign(recommendation={"fa2_min_len_win": off})
    now = foreign(recommendation={"fa2_min_len_win": 999999})
    assert compared(before, now).thresholds == ("fa2_min_len_win: off",)
    now = foreign(recommendation={"fa2_min_len_win": 512})
    assert compared(before, now).thresholds == ("fa2_min_len_win: off before, 512 now",)


# several beside each other


def test_documents_side_by_side() -> None:
    other = replace(
        scaled(made(), 2, FA2),
        device=replace(CARD, device_name="NVIDIA A100"),
        environment={"commit": "fedcba9876543210", "driver": "580.65.06"},
    )
    documents = [
        Document("a.json", made()),
        Document("b.json", other),
        Document("c.json", foreign()),
    ]
    text = "".join(f"{line}\n" for line in compare.compare(documents, DEVICE))
    assert "[2]  b.json  2026-05-25T14:09:40Z  NVIDIA A100, torch 2.13.0, fedcba987654 " in text
    assert "[1] and [2] are of different environments: card: NVIDIA H200 and NVIDIA A100\n" in text
    assert "times faster than masked in device time" in text
    assert "S=512 w=32        4.00   2.00 [2.00]  -\n" in text
    assert "fa2_min_len_win  1.2 (20 % faster)  from S = 2048 in one run " in text
    eager = "".join(f"{line}\n" for line in compare.compare(documents, Question()))
    assert "1.50" in eager


def test_settings_are_told_apart_where_there_are_several() -> None:
    def speed(problem: Problem, regime: Regime, reference: str, repetition: int) -> float:
        return grows(problem, regime, reference, repetition)

    rows = [replace(row, problem=replace(row.problem, dtype="float16")) for row in made(speed).rows]
    both = replace(made(), rows=(*made().rows, *rows))
    text = "\n".join(compare.compare([Document("a", both), Document("b", made())], DEVICE))
    assert "S=512 w=32 forward, float16, B=1 G=2 h=2 Dk=64 Dv=64 " in text
    assert regressions.BAND > 0
