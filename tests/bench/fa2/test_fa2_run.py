"""A sweep's rows: none is lost, whatever a column does; and the adaptive search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.fa2.faketimer import Price, Timer, column
from pytest_remotegpu.bench.estimates import ratio
from pytest_remotegpu.bench.fa2 import calls, kernels, limits, run, sizes, ways
from pytest_remotegpu.bench.fa2.columns import BUILT_IN, Column
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
from pytest_remotegpu.bench.fa2.run import Runner
from pytest_remotegpu.bench.fa2.sweep import Shape, Sweep
from pytest_remotegpu.bench.maps import Map
from pytest_remotegpu.bench.timing import Mode
from pytest_remotegpu.errors import UsageError

CPU = limits.Device("cpu", "a CPU")
SMALL = Sweep(
    lengths=(16, 32),
    windows=(4,),
    compressed_lengths=(16, 32),
    blocks=((8, 4),),
    shapes=(Shape(width=8, value_width=8),),
    rounds=5,
    warmup=1,
)


def even(_name: str, _problem: Problem, _mode: Mode) -> float:
    return 1.0


def runner(
    sweep: Sweep = SMALL,
    price: Price = even,
    *,
    broken: Mapping[str, Column] | None = None,
    uncaptured: Sequence[str] = (),
    **more: Any,
) -> Runner:
    """Make a runner with two right columns and others, on a timer that makes its times up."""
    timer = Timer(price, uncaptured=uncaptured)
    usual = {
        MASKED: column(MASKED, lambda: timer.called, make=ways.masked),
        FA2: column(FA2, lambda: timer.called),
    }
    return Runner(
        sweep, timer, more.pop("device", CPU), columns={**usual, **(broken or {})}, **more
    )


def rows(one: Runner, **options: Any) -> list[Row]:
    found: list[Row] = []
    run.run(one, found.extend, **options)
    return found


def raising(error: BaseException, *, after: int = 0) -> Column:
    """Make a column that raises, after so many right answers."""
    left = [after]

    def make(problem: Problem, device: Any) -> ways.Way:
        way = ways.chunked(problem, device)

        def raises(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            left[0] -= 1
            if left[0] < 0:
                raise error
            return way(query, key, value)

        return raises

    return Column("broken", "", make, on_cpu=True)


# all rows


def test_each_problem_column_and_regime_has_a_row() -> None:
    both = replace(SMALL, directions=tuple(Direction))
    found = rows(runner(both), repetitions=2)
    assert len(found) == len(set(found)) == 8 * 2 * 2 * 2
    assert {row.problem for row in found} == set(both.problems())
    assert {row.parity for row in found} == {Parity.PASSED}
    assert {len(row.times) for row in found} == {5}
    assert {row.why for row in found} == {""}
    assert {row.repetition for row in found} == {1, 2}


def test_regimes_are_modes_and_all_columns_are_timed_together() -> None:
    one = runner()
    rows(one)
    timer = one.timer
    assert isinstance(timer, Timer)
    assert timer.asked[:4] == [(Mode.EAGER, 2)] * 2 + [(Mode.GRAPH, 2)] * 2


class Skipped(BaseException):
    """What a test framework ends a test with: no ``Exception``."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("no kernel for this\nand a stack"), "RuntimeError: no kernel for this"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to"), "OutOfMemoryError: CUDA out of"),
        (AssertionError(), "AssertionError"),
        (Skipped("not today"), "Skipped: not today"),
    ],
    ids=["error", "memory", "no text", "skipped"],
)
@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 11, 18], ids=lambda after: f"after {after}")
def test_a_column_that_raises_loses_no_row(error: BaseException, said: str, after: int) -> None:
    """In parity, at its first call, in warm-up, in a round, in one regime only."""
    sweep = replace(SMALL, branches=(Branch.SLIDING,), lengths=(16,))
    found = rows(runner(sweep, broken={"broken": raising(error, after=after)}))
    assert [(row.column, row.regime) for row in found] == [
        (name, regime) for name in (MASKED, FA2, "broken") for regime in Regime
    ]
    for row in found[:4]:
        assert (len(row.times), row.parity, row.why) == (5, Parity.PASSED, "")
    assert found[-1].times == ()
    assert said in found[-1].why
    compared = after >= 3
    assert (found[-1].parity is Parity.PASSED) is compared
    for row in found[4:]:
        assert bool(row.times) is not bool(row.why)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_a_program_ends_the_sweep(error: BaseException) -> None:
    with pytest.raises(type(error)):
        rows(runner(broken={"broken": raising(error)}))


def test_a_column_that_can_not_be_captured_has_its_eager_time() -> None:
    found = rows(runner(uncaptured=[FA2]))
    for row in found:
        lost = row.column == FA2 and row.regime is Regime.DEVICE
        assert bool(row.times) is not lost
        assert ("fa2: it can't be captured: it waits for the card" in row.why) is lost
        assert row.parity is Parity.PASSED


def test_an_error_of_the_timer_loses_times_and_no_row() -> None:
    def price(_name: str, problem: Problem, mode: Mode) -> float:
        return math.nan if problem.length == 16 and mode is Mode.EAGER else 1.0

    found = rows(runner(price=price))
    assert len(found) == 4 * 2 * 2
    for row in found:
        lost = row.problem.length == 16 and row.regime is Regime.EAGER
        assert bool(row.times) is not lost
        assert ("which is no time" in row.why) is lost


def test_a_wrong_answer_is_timed_and_told() -> None:
    def wrong(problem: Problem, device: Any) -> ways.Way:
        way = ways.chunked(problem, device)
        return lambda query, key, value: way(query, key, value) * 1.5

    found = rows(runner(broken={"mine": Column("mine", "", wrong, on_cpu=True)}))
    mine = [row for row in found if row.column == "mine"]
    assert len(mine) == 4 * 2
    assert {row.parity for row in mine} == {Parity.FAILED}
    assert all(row.times and row.why.startswith("output: ") for row in mine)
    assert {row.parity for row in found if row.column != "mine"} == {Parity.PASSED}


def test_what_can_not_be_used_says_so_in_each_row() -> None:
    found = rows(runner(broken={FLASH: BUILT_IN[FLASH]}))
    flash = [row for row in found if row.column == FLASH]
    assert len(flash) == 4 * 2
    for row in flash:
        assert (row.times, row.parity) == ((), Parity.NOT_CHECKED)
        assert row.why == "sdpa-flash needs a CUDA card, and this is a CPU"


def test_columns_that_do_not_fit_are_not_tried() -> None:
    device = limits.Device("cpu", "a small one", memory=2**16)
    long = replace(SMALL, lengths=(16, 256), branches=(Branch.SLIDING,))
    found = rows(runner(long, device=device))
    for row in found:
        lost = row.column == MASKED and row.problem.length == 256
        assert bool(row.times) is not lost
        assert ("it needs 0.0 GiB at least (a mask of queries x keys" in row.why) is lost


def test_comparisons_are_made_once_and_can_be_read() -> None:
    one = runner(replace(SMALL, directions=tuple(Direction)))
    rows(one, repetitions=2)
    lines = one.lines()
    assert len(lines) == 4 * 2
    assert "fa2 S=16 w=4 sliding forward float16: passed" in lines
    assert "masked S=32 l=8 d=4 compressed forward float16: passed" in lines


# kernels


def test_a_silent_fallback_has_no_number() -> None:
    ran = {FA2: ("at::native::softmax",), MASKED: ("fmha_cutlassF_f16",)}
    one = runner(look=lambda _call: ())
    timer = one.timer
    assert isinstance(timer, Timer)

    def look(call: Callable[[], Any]) -> tuple[str, ...]:
        call()
        return ran[timer.called[-1][0]]

    one.look = look
    one.columns = {
        name: replace(each, kernels="flash" if name == FA2 else "")
        for name, each in one.columns.items()
    }
    found = rows(one)
    for row in found:
        assert row.kernels == ran[row.column]
        assert row.parity is Parity.PASSED
        assert bool(row.times) is (row.column == MASKED)
        if row.column == FA2:
            assert row.why == ("a flash kernel was asked for, and what ran is at::native::softmax")


@pytest.mark.parametrize("capability", [7.5, 7.0])
def test_cards_before_ampere_are_refused_with_advice(capability: float) -> None:
    old = limits.Device("cuda", "Tesla T4", capability, 2**34)
    with pytest.raises(UsageError, match=r"Tesla T4 has 7\.\d: take L4, A10 or A100"):
        runner(device=old)
    assert limits.refusal(limits.Device("cuda", "NVIDIA A10", 8.6)) == ""
    assert limits.refusal(CPU) == ""


def test_a_cpu_gets_a_stand_in_beside_the_columns() -> None:
    one = Runner(SMALL, Timer(even), CPU)
    assert list(one.columns) == [*SMALL.columns, "stand-in"]
    card = Runner(SMALL, Timer(even), limits.Device("cuda", "NVIDIA H200", 9.0))
    assert list(card.columns) == list(SMALL.columns)
    with pytest.raises(UsageError, match="mine:way', which can't be imported"):
        Runner(replace(SMALL, further={"mine": "mine:way"}), Timer(even), CPU)


# a card that is held back


def test_a_card_that_is_held_back_is_tried_twice_and_then_has_no_times() -> None:
    held = iter([(), ("thermal slowdown",), (), ("thermal slowdown",), ("hardware slowdown",), ()])
    sweep = replace(SMALL, lengths=(16, 32, 48, 64), branches=(Branch.SLIDING,))

    def watch(measure: Callable[[], run.Rows]) -> tuple[run.Rows, Sequence[str]]:
        return measure(), next(held)

    found = rows(runner(sweep), watch=watch)
    by_length = {
        length: [row for row in found if row.problem.length == length] for length in sweep.lengths
    }
    for length, each in by_length.items():
        assert len(each) == 4
        lost = length == 48
        assert all(bool(row.times) is not lost for row in each)
        assert ("held back twice, by hardware slowdown" in each[0].why) is lost


# adaptive


LENGTHS = (16, 32, 48, 64, 80, 96, 112, 128)
WINDOWS = (4, 8, 16)
STARTS = st.lists(st.integers(0, len(LENGTHS)), min_size=3, max_size=3).map(sorted)


class Priced:
    """Gives the rows of a sweep without measuring it.

    :ivar starts: for each regime and window the place of the length from which on
        FlashAttention-2 is faster, and more so beyond it.
    """

    def __init__(self, sweep: Sweep, starts: Mapping[Regime, Sequence[int]]) -> None:
        self.sweep = sweep
        self.starts = starts

    def rows(self, problem: Problem, repetition: int = 1) -> run.Rows:
        return tuple(
            Row(problem, name, regime, (ms,) * 5, repetition=repetition)
            for regime in self.sweep.regimes
            for name, ms in ((MASKED, 3.0), (FA2, self._price(problem, regime)))
        )

    def _price(self, problem: Problem, regime: Regime) -> float:
        place = LENGTHS.index(problem.length)
        start = self.starts[regime][WINDOWS.index(problem.window) if problem.window else 0]
        return 2.0 / (1 + place - start) if place >= start else 4.0


def tables(found: Sequence[Row], branch: Branch, regime: Regime) -> Map:
    by_problem: dict[Problem, dict[str, Row]] = {}
    for row in found:
        if row.regime is regime and row.problem.branch is branch:
            by_problem.setdefault(row.problem, {})[row.column] = row
    return Map(
        {
            (problem.length, problem.window or 0): ratio(each[MASKED].times, each[FA2].times)
            for problem, each in by_problem.items()
        }
    )


@given(STARTS, STARTS, st.sampled_from([1.1, 1.2, 1.5]))
def test_adaptive_finds_what_the_grid_finds(
    eager: list[int], device: list[int], margin: float
) -> None:
    sweep = replace(SMALL, lengths=LENGTHS, windows=WINDOWS, compressed_lengths=LENGTHS)
    one = Priced(sweep, {Regime.EAGER: eager, Regime.DEVICE: device})
    grid: list[Row] = []
    adaptive: list[Row] = []
    run.run(one, grid.extend)
    run.run(one, adaptive.extend, adaptive=True, margin=margin)
    assert {row.problem for row in grid} == set(sweep.problems())
    asked = {row.problem for row in adaptive}
    assert len(adaptive) == len(asked) * 2 * 2
    assert len(asked) < len(sweep.problems()) * 0.75
    for regime in Regime:
        for branch in Branch:
            whole, part = (tables(found, branch, regime) for found in (grid, adaptive))
            answers = [
                [
                    (window, found.answer == "never", found.value)
                    for window, found in sorted(table.by_window(margin).items())
                ]
                for table in (whole, part)
            ]
            assert answers[0] == answers[1]


def test_an_adaptive_sweep_measures_what_it_needs() -> None:
    def price(name: str, _problem: Problem, _mode: Mode) -> float:
        return 3.0 if name == MASKED else 4.0

    sweep = replace(SMALL, lengths=(16, 32, 48), compressed_lengths=(16, 32, 48))
    found = rows(runner(sweep, price), adaptive=True)
    assert {row.problem.length for row in found} == {48}
    assert len(found) == 2 * 2 * 2


def test_a_way_that_was_not_timed_is_no_advantage() -> None:
    found = rows(runner(uncaptured=[FA2]))
    for problem in SMALL.problems():
        of_problem = [row for row in found if row.problem == problem]
        assert run.speedup(of_problem, Regime.EAGER, MASKED).mid == 1.0
        assert not run.speedup(of_problem, Regime.DEVICE, MASKED).finite
        assert not run.speedup(of_problem, Regime.EAGER, FLASH).finite


# names of kernels


def test_names_are_shortened_and_known() -> None:
    names = [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Traits<64, 128>, false>(Params)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*, int)",
        "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)",
    ]
    short = [kernels.short(name) for name in names]
    assert short == [
        "pytorch_flash::flash_fwd_kernel",
        "at::native::anonymous::cunn_SoftMaxForward",
        "fmha_cutlassF_f16_aligned_64x64_rf_sm80",
    ]
    families = [kernels.family([name], Direction.FORWARD) for name in short]
    assert families == ["flash", "math", "efficient"]
    assert kernels.family(short[:1], Direction.BACKWARD) == "other"
    assert kernels.missing(short[:1], "flash", Direction.FORWARD) == ""
    assert "no kernel at all" in kernels.missing([], "flash", Direction.FORWARD)
    assert kernels.missing(["triton_tem_fused_0"], "triton", Direction.FORWARD) == ""
    assert kernels.missing([], "", Direction.FORWARD) == ""


# sizes


def test_copies_of_small_inputs_outgrow_a_cache() -> None:
    (small, *_) = SMALL.problems()
    cache = 2**20
    count = calls.copies(small, cache)
    assert count == calls.MOST_COPIES
    large = replace(small, length=4096, width=128, value_width=128)
    assert calls.copies(large, cache) == 1 + 2 * cache // sizes.inputs(large) == 1
    middle = replace(small, length=256, width=64, value_width=64)
    assert calls.copies(middle, cache) * sizes.inputs(middle) > 2 * cache
    assert calls.copies(small, 0) == 1
    made = calls.make(middle, "cpu", 3, seed=0)
    places = {one.query.data_ptr() for one in made}
    assert len(places) == 3
    assert all(torch.equal(made[0].key, one.key) for one in made)


def test_a_mask_is_what_needs_memory() -> None:
    problem = replace(SMALL.problems()[0], length=2**17, width=64, value_width=64)
    card = limits.Device("cuda", "NVIDIA L4", 8.9, 22 * 2**30)
    assert "it needs 48.3 GiB at least (a mask" in sizes.lack(BUILT_IN[MASKED], problem, card)
    assert "has 22.0 GiB" in sizes.lack(BUILT_IN[MASKED], problem, card)
    assert sizes.lack(BUILT_IN[FA2], problem, card) == ""
    packed = replace(
        problem, branch=Branch.COMPRESSED, window=None, block=32, stride=16, length=2**18
    )
    assert "a copy of the keys for each segment" in sizes.lack(BUILT_IN[FA2], packed, card)
    assert sizes.lack(BUILT_IN["fa2-folded"], packed, card) == ""
    unknown = replace(card, memory=0)
    assert sizes.lack(BUILT_IN[MASKED], problem, unknown) == ""


# calls


@pytest.mark.parametrize("direction", Direction)
def test_backward_alone_is_a_gradient_on_a_graph_that_is_kept(direction: Direction) -> None:
    problem = replace(SMALL.problems()[0], direction=direction)
    forward = [0]
    way = ways.chunked(problem, "cpu")

    def counted(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        forward[0] += 1
        return way(query, key, value)

    (inputs,) = calls.make(problem, "cpu", 1, seed=0)
    call = calls.of(problem, counted, inputs)
    found: list[Any] = [call() for _ in range(3)]
    if direction is Direction.FORWARD:
        assert forward == [3]
        assert torch.equal(found[0], found[2])
        assert not found[0].requires_grad
        return
    assert forward == [1]
    assert all(map(torch.equal, found[0], found[2]))
    own = inputs.leaves()
    expected = torch.autograd.grad(way(*own.three), own.three, own.incoming)
    assert all(torch.equal(*pair) for pair in zip(found[0], expected, strict=True))
    assert all(one.grad is None and not one.requires_grad for one in inputs.three)
