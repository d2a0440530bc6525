"""From rows to what a configuration gets: regimes, windows, repetitions, and what blocks it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sweeps import LENGTHS, WINDOWS, compressed, grows, made, sliding
from pytest_remotegpu.bench.fa2 import charts, document, judging
from pytest_remotegpu.bench.fa2.judging import CMP, KEYS, SEL, WIN, Question, judge
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
from pytest_remotegpu.bench.thresholds import NEVER, Answer, compressed_length

EAGER, DEVICE = Regime.EAGER, Regime.DEVICE
SPEEDS = st.dictionaries(
    st.tuples(st.sampled_from(LENGTHS), st.sampled_from(WINDOWS), st.integers(1, 3)),
    st.sampled_from([0.5, 1.0, 1.15, 1.3, 2.0]),
)


def drawn(speeds: dict[tuple[int, int, int], float]) -> Measured:
    """Make a sweep of three repetitions; what was not drawn is 1.3 times faster."""

    def speed(problem: Problem, _regime: Regime, _reference: str, repetition: int) -> float:
        return speeds.get((problem.length, problem.window or 32, repetition), 1.3)

    return made(speed, repetitions=3)


def place(value: int | None) -> float:
    return math.inf if value is None else value


def changed(measured: Measured, *, column: str, at: int | None = None, **changes: Any) -> Measured:
    """Change the rows of a column, of all lengths or of one."""
    rows = (
        replace(row, **changes)
        if row.column == column and at in (None, row.problem.length)
        else row
        for row in measured.rows
    )
    return replace(measured, rows=tuple(rows))


# the rule over repetitions


@given(SPEEDS, st.sampled_from([1.1, 1.2, 1.5]))
def test_repetitions_are_an_interval_whose_end_is_safe(
    speeds: dict[tuple[int, int, int], float], margin: float
) -> None:
    """Its last end is what is certain in each of them; its first what is in one."""
    measured = drawn(speeds)
    found = judging.spans(measured, Question(margin=margin))[WIN]
    assert found.runs == 3
    alone = [
        judging.spans(
            replace(measured, rows=tuple(r for r in measured.rows if r.repetition == n)),
            Question(margin=margin),
        )[WIN].last.value
        for n in (1, 2, 3)
    ]
    assert place(found.first.value) == min(map(place, alone))
    assert place(found.last.value) == max(map(place, alone))
    safe = judge(measured, Question(margin=margin)).map.scalar(margin)
    assert safe.value == found.last.value


@given(SPEEDS, st.sampled_from([1.1, 1.2, 1.5]))
def test_neither_rule_takes_what_fails_in_one_of_them(
    speeds: dict[tuple[int, int, int], float], margin: float
) -> None:
    judgement = judge(drawn(speeds), Question(margin=margin))
    whole = place(judgement.spans[WIN].last.value)
    for length in LENGTHS:
        for window in WINDOWS:
            certain = all(speeds.get((length, window, n), 1.3) >= margin for n in (1, 2, 3))
            assert certain or length < whole
            assert certain or length < place(judgement.rule[window])
            assert certain or (length, window) not in judgement.beyond


@given(SPEEDS, st.randoms(use_true_random=False))
def test_order_of_rows_says_nothing(
    speeds: dict[tuple[int, int, int], float], chance: random.Random
) -> None:
    measured = drawn(speeds)
    rows = list(measured.rows)
    chance.shuffle(rows)
    mixed = replace(measured, rows=tuple(rows))
    one, other = judge(measured, Question()), judge(mixed, Question())
    assert one.recommendation == other.recommendation
    assert (one.rule, one.beyond) == (other.rule, other.beyond)


@given(SPEEDS, st.floats(0.5, 3), st.floats(0.5, 3))
def test_a_larger_margin_never_gives_a_smaller_number(
    speeds: dict[tuple[int, int, int], float], one: float, other: float
) -> None:
    measured = drawn(speeds)
    lenient, strict = (judge(measured, Question(margin=each)) for each in sorted((one, other)))
    for key in (WIN, CMP):
        first, second = lenient.number(key), strict.number(key)
        assert first is not None
        assert second is not None
        assert first <= second


def test_unequal_repetitions_are_said() -> None:
    measured = drawn({(512, 32, 2): 1.0})
    judgement = judge(measured, Question())
    assert str(judgement.spans[WIN]) == (
        "always (measured from S = 256) to from S = 1024 in 3 runs"
    )
    assert judgement.number(WIN) == 1024


# what is asked for


def test_regimes_give_opposite_verdicts() -> None:
    """Launches and Python dominate at short lengths, so eager time has no threshold there."""
    measured = made()
    eager, device = (judge(measured, Question(regime)) for regime in (EAGER, DEVICE))
    assert eager.recommendation == {WIN: NEVER, CMP: NEVER, SEL: None}
    assert device.recommendation == {WIN: 2048, CMP: compressed_length(1024, 32, 16), SEL: None}
    assert (512, 64) in device.beyond
    assert device.rule == {32: 256, 64: 512, 128: 1024, 256: 2048}


def test_references_give_their_own() -> None:
    measured = made()
    flash = judge(measured, Question(DEVICE, reference=FLASH))
    assert flash.number(WIN) == NEVER
    assert flash.number(CMP) == compressed_length(2048, 32, 16)


def test_windows_of_the_user() -> None:
    measured = made()
    assert judge(measured, Question(DEVICE, windows=(32,))).number(WIN) == 256
    assert judge(measured, Question(DEVICE, windows=(32, 64))).number(WIN) == 512
    beyond = judge(measured, Question(DEVICE, windows=(32, 64))).beyond
    assert beyond == ((256, 32),)


def test_a_window_that_was_not_measured_leaves_the_key_alone() -> None:
    judgement = judge(made(), Question(DEVICE, windows=(32, 512)))
    assert judgement.spans[WIN].last.answer is Answer.NO_DATA
    assert judgement.spans[WIN].last.why == "window 512 was not measured"
    assert judgement.number(WIN) is None
    assert judgement.number(CMP) == 63


def test_each_direction_has_to_keep_it() -> None:
    def speed(problem: Problem, regime: Regime, reference: str, repetition: int) -> float:
        slow = 1.0 if problem.direction is Direction.FORWARD else 0.1
        return slow * grows(problem, regime, reference, repetition)

    measured = made(speed, directions=Direction)
    assert judge(measured, Question(DEVICE)).number(WIN) == NEVER
    forward = Question(DEVICE, directions=(Direction.FORWARD,))
    assert judge(measured, forward).number(WIN) == 2048


def test_a_direction_that_was_not_timed_in_a_regime_leaves_its_keys_alone() -> None:
    """What could be captured forward says nothing of what could not be captured backward."""
    measured = made(directions=Direction)
    rows = tuple(
        replace(row, times=(), why="no graph")
        if (row.problem.direction, row.regime) == (Direction.BACKWARD, DEVICE)
        else row
        for row in measured.rows
    )
    measured = replace(measured, rows=rows)
    judgement = judge(measured, Question(DEVICE))
    assert (judgement.number(WIN), judgement.number(CMP), judgement.status) == (None, None, 5)
    assert judgement.spans[WIN].last.why == (
        "backward, bfloat16, B=1 G=2 h=2 Dk=64 Dv=64 was not measured in device time against "
        "masked; --direction asks about one direction alone"
    )
    assert (judgement.beyond, judgement.rule) == ((), {})
    forward = Question(DEVICE, directions=(Direction.FORWARD,))
    assert judge(measured, forward).number(WIN) == 2048
    assert judge(measured, Question(EAGER)).number(WIN) == NEVER
    rows_of = {row[:3] + row[-1:] for row in charts.answers(measured, Question(DEVICE))}
    assert (WIN, "all", "1.2 (20 % faster)", "no data in one run") in rows_of
    assert (WIN, "forward", "1.2 (20 % faster)", "from S = 2048 in one run") in rows_of
    assert not any(row[1] == "of" for row in charts.answers(made(), Question(DEVICE)))
    plain = document.to_plain(measured, Question(DEVICE))
    found = {
        each["direction"]: each["number"]
        for each in plain["by_direction"]
        if (each["key"], each["margin"], each["regime"], each["reference"])
        == (WIN, 1.2, "device", MASKED)
    }
    assert found == {"forward": 2048, "backward": None}


def test_a_length_that_stands_for_off_is_not_written() -> None:
    longer = tuple(
        replace(row, problem=replace(row.problem, length=8192))
        if row.problem.length == 2048
        else row
        for row in made().rows
    )
    judgement = judge(replace(made(), rows=longer), Question(DEVICE))
    assert judgement.number(WIN) == 8193
    ((line, _), *_) = charts.reasons(judgement)
    assert line == (
        "fa2_min_len_win 8193: from S = 8192, written as 8193 since 8192 stands for off in one run"
    )


def test_selected_blocks_are_judged_by_their_lines() -> None:
    line = "dense,N=1,H=1,D=64,Dv=64,L={},streams=1, tri_ms=1.0, ref_ms=1.0, speedup={}x, mae=1e-3"
    text = "\n".join(line.format(*each) for each in ((128, 0.9), (256, 1.2), (512, "inf")))
    assert judge(replace(made(), selection_output=text), Question()).number(SEL) == NEVER
    text = text.replace("infx", "1.5x")
    assert judge(replace(made(), selection_output=text), Question()).number(SEL) == 256


def test_what_is_asked_in_words() -> None:
    question = Question(DEVICE, 1.2, FLASH, (64, 128), (Direction.BACKWARD,))
    assert str(question) == (
        "device time, margin 1.2 (20 % faster) against sdpa-flash, windows 64, 128, backward"
    )


# cells


def test_what_could_not_be_timed_keeps_no_margin() -> None:
    measured = changed(made(), column=FA2, at=2048, times=(), why="out of memory")
    judgement = judge(measured, Question(DEVICE))
    assert judgement.number(WIN) == NEVER
    cells = judging.cells(measured, DEVICE, MASKED)
    assert {cell.why for cell in cells if cell.length == 2048} == {"out of memory"}


def test_what_the_reference_could_not_compute_is_no_cell() -> None:
    measured = changed(made(), column=MASKED, at=2048, times=(), why="out of memory")
    assert {cell.length for cell in judging.cells(measured, DEVICE, MASKED)} == {256, 512, 1024}
    assert judge(measured, Question(DEVICE, windows=(64,))).number(WIN) == 512


@pytest.mark.parametrize("times", [(1.0, 1.0), (0.0,) * 6, (math.nan,) * 6, (math.inf,) * 6])
def test_times_that_can_not_be_divided_keep_no_margin(times: tuple[float, ...]) -> None:
    measured = changed(made(), column=FA2, at=1024, times=times)
    bad = [cell for cell in judging.cells(measured, DEVICE, MASKED) if cell.length == 1024]
    assert bad
    assert all(cell.why and not cell.speedup.finite for cell in bad)
    assert judge(measured, Question(DEVICE, windows=(32,))).number(WIN) == 2048


def test_cells_of_the_compressed_branch_have_sizes_of_their_own() -> None:
    found = [c for c in judging.cells(made(), EAGER, MASKED) if c.branch is Branch.COMPRESSED]
    assert [cell.size for cell in found] == [15, 31, 63, 127]
    assert [cell.length for cell in found] == list(LENGTHS)


def test_repetitions_put_together() -> None:
    measured = drawn({(512, 32, 1): 1.0, (512, 32, 3): 2.0})
    cells = [c for c in judging.cells(measured, EAGER, MASKED) if c.branch is Branch.SLIDING]
    found = judging.merged(cells).cells[512, 32]
    assert (found.mid, found.low, found.high, found.count) == pytest.approx((1.3, 1, 2, 18))
    assert judging.worst(cells).cells[512, 32].mid == pytest.approx(1)


def test_a_window_that_was_not_measured_at_a_size_has_to_keep_it_at_one_of_its_own() -> None:
    """The card was held back at S = 512 with the window of 256 alone, so nothing is known of it."""
    at, wide = 512, 256

    def speed(problem: Problem, _regime: Regime, _reference: str, _repetition: int) -> float:
        return 0.8 if (problem.length, problem.window) == (256, wide) else 1.5

    measured = made(speed)
    assert judge(measured, Question()).number(WIN) == at
    rows = tuple(
        replace(row, times=()) if (row.problem.length, row.problem.window) == (at, wide) else row
        for row in measured.rows
        if row.problem.length in (256, at, 1024)
    )
    ragged = replace(measured, rows=tuple(row for row in rows if row.times))
    judgement = judge(ragged, Question())
    assert judgement.number(WIN) == 1024
    assert judgement.rule == {32: 256, 64: 256, 128: 256, wide: 1024}
    assert "not all were measured from S = 512 on" in judgement.spans[WIN].last.why


def test_a_window_that_keeps_it_nowhere_is_not_outvoted_by_longer_sequences_of_others() -> None:
    def speed(problem: Problem, _regime: Regime, _reference: str, _repetition: int) -> float:
        return 0.9 if problem.window == 256 else 1.5

    measured = made(speed)
    rows = (r for r in measured.rows if (r.problem.length, r.problem.window) != (2048, 256))
    judgement = judge(replace(measured, rows=tuple(rows)), Question())
    assert judgement.number(WIN) == NEVER
    assert judgement.rule[256] is None


# what blocks it


@pytest.mark.parametrize("column", [MASKED, FLASH, FA2])
@pytest.mark.parametrize(
    ("parity", "status", "said"),
    [
        (Parity.FAILED, 1, "differs from float32 at S=512"),
        (Parity.NOT_CHECKED, 5, "was not compared with float32 at S=512"),
    ],
)
def test_parity_blocks_any_recommendation(
    column: str, parity: Parity, status: int, said: str
) -> None:
    measured = changed(made(), column=column, at=512, parity=parity, why="error 0.3")
    judgement = judge(measured, Question(DEVICE))
    assert set(judgement.recommendation.values()) == {None}
    assert said in judgement.trouble
    assert "error 0.3" in judgement.trouble
    assert (judgement.parity, judgement.status) == (parity, status)
    assert judgement.spans[WIN].last.value == 2048  # it is known all the same


def test_a_further_column_that_differs_blocks_nothing() -> None:
    rows = [replace(row, column="mine", parity=Parity.FAILED) for row in made().rows[:6]]
    measured = replace(made(), rows=(*made().rows, *rows))
    assert judge(measured, Question(DEVICE)).status == 0


def test_a_row_that_was_not_timed_claims_nothing() -> None:
    measured = changed(
        made(), column=FLASH, times=(), parity=Parity.NOT_CHECKED, why="no such kernel"
    )
    assert judge(measured, Question(DEVICE)).number(WIN) == 2048


def test_parity_that_was_never_looked_at_is_not_passed() -> None:
    measured = changed(made(), column=FA2, times=(), parity=Parity.NOT_CHECKED)
    judgement = judge(measured, Question())
    assert judgement.parity is Parity.NOT_CHECKED
    assert judgement.trouble == "fa2 was compared with float32 nowhere"
    assert {found.last.answer for found in judgement.spans.values()} == {Answer.NO_DATA}
    assert judge(Measured(measured.device), Question()).status == 5


def test_without_a_card_nothing_is_recommended() -> None:
    judgement = judge(made(device=Device(cuda_available=False)), Question(DEVICE))
    assert judgement.parity is Parity.PASSED
    assert judgement.trouble == "no card was used"
    assert (set(judgement.recommendation.values()), judgement.status) == ({None}, 5)


def test_a_sweep_that_was_cut_off_recommends_nothing() -> None:
    judgement = judge(replace(made(), complete=False), Question(DEVICE))
    assert judgement.trouble == "the sweep has not come to its end"
    assert judgement.status == 5


def test_never_is_an_answer() -> None:
    judgement = judge(made(), Question(EAGER))
    assert judgement.status == 0
    assert judgement.number(WIN) == NEVER
    assert KEYS == ("fa2_min_len_win", "fa2_min_len_cmp", "sel_triton_min_L")


def test_nothing_measured_is_no_answer() -> None:
    """A row of each column for one problem, without times."""
    rows = tuple(
        Row(problem, column, EAGER, (), (), Parity.PASSED)
        for problem in (sliding(256, 64), compressed(256))
        for column in (MASKED, FA2)
    )
    judgement = judge(replace(made(), rows=rows), Question())
    assert {found.last.answer for found in judgement.spans.values()} == {Answer.NO_DATA}
    assert (set(judgement.recommendation.values()), judgement.status) == ({None}, 5)


def test_a_card_that_was_held_back_is_known() -> None:
    states = (
        {"before": {"watts": 70.0}, "held_back": ["power cap"]},
        {"held_back": None},
        {"held_back": ["power cap", "thermal slowdown"]},
    )
    assert replace(made(), states=states).throttled() == ("power cap", "thermal slowdown")
    assert made().throttled() == ()
