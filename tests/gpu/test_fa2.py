"""The sweep of FlashAttention-2 on a real card: what ran, whether it is right, graphs, all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_remotegpu.bench.fa2 import (
    __main__,
    calls,
    columns,
    document,
    formula,
    host,
    kernels,
    masks,
    packed,
    parity,
    sweep,
    tensors,
    ways,
)
from pytest_remotegpu.bench.fa2.columns import BUILT_IN, Column
from pytest_remotegpu.bench.fa2.masks import Corner
from pytest_remotegpu.bench.fa2.rows import FA2, FLASH, MASKED, Branch, Direction, Parity, Problem
from pytest_remotegpu.bench.fa2.run import Runner, run
from pytest_remotegpu.bench.fa2.sweep import Shape, Sweep
from pytest_remotegpu.bench.timing import Budget, Mode, measure

pytestmark = [
    pytest.mark.gpu(min_capability=8.0),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),  # torch has some of its own on a card
]

OURS = (MASKED, FLASH, columns.CUDNN, FA2, columns.FOLDED, columns.FLASH_ATTN)
SHAPES = (
    Shape(),
    Shape(batch=2, groups=1, heads=8, width=128, value_width=128),
    Shape(heads=1, width=64, value_width=32),
    Shape(heads=3, width=64, value_width=128),
)


@pytest.fixture
def here(gpu_device: Any) -> Iterator[host.Host]:
    """Give this host, with this test's card as torch's current one."""
    torch = pytest.importorskip("torch")
    with torch.cuda.device(gpu_device):
        yield host.this()


def problem_of(branch: Branch, dtype: str = "float16", shape: Shape = SHAPES[0]) -> Problem:
    if branch is Branch.SLIDING:
        return shape.problem(branch, Direction.FORWARD, dtype, 512, window=100)
    return shape.problem(branch, Direction.FORWARD, dtype, 999, block=32, stride=16)


def refused(column: Column, problem: Problem, here: host.Host) -> None:
    """Skip a column that this host lacks, with its reason; a torch that is too old is one."""
    if why := column.refusal(problem, here.device):
        pytest.skip(why)


# right answers


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("branch", Branch)
@pytest.mark.parametrize("name", OURS)
def test_columns_agree_with_float32(name: str, branch: Branch, dtype: str, here: host.Host) -> None:
    column = BUILT_IN[name]
    refused(column, problem_of(branch, dtype), here)
    for shape in SHAPES:
        found = parity.compare(column, problem_of(branch, dtype, shape), here.device)
        print(shape, *found.checks, sep="\n  ")  # noqa: T201 -- shown with what fails
        assert found.parity is Parity.PASSED, found.why


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_window_off_by_one_is_found(by: int, dtype: str, here: host.Host) -> None:
    problem = problem_of(Branch.SLIDING, dtype)
    refused(BUILT_IN[FA2], problem, here)

    def other(problem: Problem, device: Any) -> ways.Way:
        assert problem.window is not None
        return ways.varlen(dataclasses.replace(problem, window=problem.window + by), device)

    found = parity.compare(Column("wrong", "", other), problem, here.device)
    assert found.parity is Parity.FAILED
    assert "mask" in [check.what for check in found.checks if not check.passed]


@pytest.mark.parametrize("window", [None, 3])
def test_flash_attention_starts_at_the_bottom_right(window: int | None, here: host.Host) -> None:
    import torch  # noqa: PLC0415 -- there, as `here` says

    assert here.device.is_card
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    query, key, value = (
        torch.randn(1, tokens, 2, 64, device="cuda", dtype=torch.float16) for tokens in (5, 9, 9)
    )
    ends = [torch.tensor([0, tokens], device="cuda", dtype=torch.int32) for tokens in (5, 9)]
    given = (-1, 0) if window is None else (window - 1, 0)
    found = varlen.varlen_attn(query[0], key[0], value[0], *ends, 5, 9, window_size=given)[None]
    exact = query.float(), key.float(), value.float()
    apart = {}
    for corner in Corner:
        seen = masks.banded(5, 9, window, corner=corner, device="cuda")
        right = formula.attend(*exact, seen)
        apart[corner] = float((found.float() - right).abs().max())
    assert apart[Corner.BOTTOM_RIGHT] < 5e-3
    assert apart[Corner.TOP_LEFT] > 0.1


def test_a_gathered_gradient_is_summed_in_float32(here: host.Host) -> None:
    """In float16, as atomic additions on a card would have it, 2048 and a half is 2048."""
    import torch  # noqa: PLC0415 -- there, as `here` says

    kind = here.device.kind
    rows = torch.zeros(1, 1, dtype=torch.float16, device=kind, requires_grad=True)
    picked = torch.zeros(4097, dtype=torch.long, device=kind)
    incoming = torch.full((4097, 1), 0.5, dtype=torch.float16, device=kind)
    incoming[0] = 2048.0
    (found,) = torch.autograd.grad(packed.gather(rows, picked), rows, incoming)
    assert float(found) == 2048 + 4096 * 0.5


# what ran


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("branch", Branch)
@pytest.mark.parametrize("name", OURS)
def test_the_kernel_that_was_asked_for_ran(
    name: str, branch: Branch, direction: Direction, here: host.Host
) -> None:
    column = BUILT_IN[name]
    problem = dataclasses.replace(problem_of(branch), direction=direction)
    refused(column, problem, here)
    (inputs,) = calls.make(problem, "cuda", 1, seed=0)
    call = calls.of(problem, column.make(problem, "cuda"), inputs)
    call()
    names = kernels.seen(call)
    print(*names, sep="\n")  # noqa: T201 -- shown with what fails
    assert kernels.missing(names, column.kernels, direction) == ""
    if column.kernels:
        assert kernels.family(names, direction) == column.kernels
    else:
        assert kernels.family(names, direction) not in {"math", "other"}


def test_a_fallback_has_no_number(here: host.Host) -> None:
    def written_out(problem: Problem, device: Any) -> ways.Way:
        return ways.allowed(ways.masked(problem, device), ["math"])

    one = Runner(
        Sweep(lengths=(256,), windows=(64,), branches=(Branch.SLIDING,)),
        here.timer,
        here.device,
        here.look,
        columns={
            MASKED: BUILT_IN[MASKED],
            FA2: Column(FA2, "no FlashAttention", written_out, "flash"),
        },
    )
    masked, _, fallen, _ = one.rows(one.sweep.problems()[0])
    assert masked.times
    assert fallen.times == ()
    assert fallen.parity is Parity.PASSED
    assert fallen.why.startswith("a flash kernel was asked for, and what ran is ")
    assert any("softmax" in name.lower() for name in fallen.kernels)


# times


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("branch", Branch)
def test_graphs_give_what_calls_give(branch: Branch, direction: Direction, here: host.Host) -> None:
    import torch  # noqa: PLC0415 -- there, as `here` says

    problem = dataclasses.replace(problem_of(branch), direction=direction)
    contestants: dict[str, Callable[[], object]] = {}
    for name in OURS:
        column = BUILT_IN[name]
        if column.refusal(problem, here.device):
            continue
        (inputs,) = calls.make(problem, "cuda", 1, seed=0)
        contestants[name] = calls.of(problem, column.make(problem, "cuda"), inputs)
    for name, call in contestants.items():
        kept: list[Any] = []
        expected = _tensors([call()])

        def keep(call: Callable[[], object] = call, kept: list[Any] = kept) -> None:
            kept[:] = [call()]

        replayed = here.timer.prepare(keep, Mode.GRAPH)
        for one in _tensors(kept):
            one.zero_()
        replayed()
        here.timer.settle()
        for one, right in zip(_tensors(kept), expected, strict=True):
            assert torch.allclose(one.float(), right.float(), atol=2e-2), name
    budget = Budget(warmup=3, rounds=9)
    eager, device = (
        measure(contestants, here.timer, mode=mode, budget=budget)
        for mode in (Mode.EAGER, Mode.GRAPH)
    )
    for name in contestants:
        middles = [sorted(times[name])[4] for times in (eager, device)]
        print(f"{name}: eager {middles[0]:.4f} ms, device {middles[1]:.4f} ms")  # noqa: T201
        assert 0 < middles[1] < middles[0] * 1.2


def _tensors(kept: list[Any]) -> list[Any]:
    (result,) = kept
    return list(result) if isinstance(result, tuple | list) else [result]


def test_copies_of_inputs_outgrow_the_cache(here: host.Host) -> None:
    problem = problem_of(Branch.SLIDING)
    count = calls.copies(problem, here.cache)
    made = calls.make(problem, "cuda", count, seed=0)
    size = sum(one.numel() * one.element_size() for one in (*made[0].three, made[0].incoming))
    assert here.cache > 2**20
    assert count * size > 2 * here.cache or count == calls.MOST_COPIES


# the whole


def test_a_small_sweep_from_beginning_to_end(here: host.Host, tmp_path: Path) -> None:
    assert here.device.is_card
    words = [
        *("lengths=256,1024", "windows=64", "compressed-lengths=512", "rounds=9", "warmup=3"),
        "directions=forward,backward",
    ]
    arguments = [word for each in words for word in ("--set", each)]
    status = __main__.main([*arguments, "--away", f"--out={tmp_path}"])
    found = document.read(tmp_path / document.NAME)
    rows = found.measured.rows
    print(*(f"{row.column} {row.problem} {row.why}" for row in rows if row.why), sep="\n")  # noqa: T201
    problems = sweep.changed(Sweep(), words).problems()
    assert len(rows) == len(problems) * len(columns.BUILT_IN.keys() & set(sweep.COLUMNS)) * 2
    for name in (MASKED, FLASH, columns.CUDNN, FA2):
        of_column = [row for row in rows if row.column == name]
        assert all(row.times and row.parity is Parity.PASSED for row in of_column), name
        assert all(row.kernels for row in of_column)
    assert status == 0
    assert found.measured.complete
    assert found.measured.device.device_name == here.device.name
    assert found.measured.states


def test_columns_that_lack_memory_or_break_lose_no_row(here: host.Host) -> None:
    import torch  # noqa: PLC0415 -- there, as `here` says

    def huge(_problem: Problem, _device: Any) -> ways.Way:
        return lambda query, _key, _value: torch.empty(2**50, device=query.device)

    def waiting(problem: Problem, device: Any) -> ways.Way:
        way = ways.masked(problem, device)

        def waits(query: Any, key: Any, value: Any) -> Any:
            torch.cuda.synchronize()
            return way(query, key, value)

        return waits

    one = Runner(
        Sweep(lengths=(256,), windows=(64,), branches=(Branch.SLIDING,), rounds=5, warmup=1),
        here.timer,
        here.device,
        here.look,
        columns={
            MASKED: BUILT_IN[MASKED],
            "huge": Column("huge", "", huge),
            "waiting": Column("waiting", "", waiting),
            FLASH: BUILT_IN[FLASH],
        },
    )
    rows: list[Any] = []
    run(one, rows.extend)
    by_column = {name: [row for row in rows if row.column == name] for name in one.columns}
    assert [len(each) for each in by_column.values()] == [2] * 4
    assert all(row.times for row in (*by_column[MASKED], *by_column[FLASH]))
    assert all("OutOfMemoryError" in row.why for row in by_column["huge"])
    eager, device = by_column["waiting"]
    assert eager.times
    assert device.times == ()
    assert "can't be captured" in device.why


def test_inputs_on_a_card_are_those_of_a_cpu(here: host.Host) -> None:
    problem = problem_of(Branch.COMPRESSED)
    one, other = (tensors.make(problem, kind, seed=5) for kind in ("cpu", here.device.kind))
    assert all((a == b.cpu()).all() for a, b in zip(one.three, other.three, strict=True))
