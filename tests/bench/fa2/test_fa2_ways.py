"""Ways to compute attention: each gives what loops give, in outputs and in gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fa2.problems import by_hand, compressed, doubled, sliding
from pytest_remotegpu.bench.fa2 import formula, limits, masks, packed, tensors, ways
from pytest_remotegpu.bench.fa2.columns import BUILT_IN, Column
from pytest_remotegpu.bench.fa2.rows import FA2, FLASH, MASKED, Branch, Direction, Problem
from pytest_remotegpu.bench.fa2.tensors import Inputs

SIZES = st.integers(1, 9)


def packed_by_formula(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_ends: torch.Tensor,
    key_ends: torch.Tensor,
    longest_query: int,
    longest_key: int,
) -> torch.Tensor:
    """Stand in for FlashAttention of packed sequences without a mask."""
    spans = [list(itertools.pairwise(ends.tolist())) for ends in (query_ends, key_ends)]
    pieces = []
    for (begin, end), (first, last) in zip(*spans, strict=True):
        assert 0 < end - begin <= longest_query
        assert 0 < last - first <= longest_key
        seen = torch.ones(end - begin, last - first, dtype=torch.bool)
        three = query[None, begin:end], key[None, first:last], value[None, first:last]
        pieces.append(formula.attend(*three, seen)[0])
    assert sum(len(piece) for piece in pieces) == len(query)
    return torch.cat(pieces)


def square(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Stand in for a kernel that knows the causal mask of a square."""
    assert query.shape[1] == key.shape[1]
    return formula.attend(query, key, value, masks.banded(query.shape[1], key.shape[1], None))


def segments(problem: Problem, device: object) -> ways.Way:
    """Give the compressed branch by segments, on the CPU."""
    assert device == "cpu"
    return packed.segments(problem, "cpu", packed_by_formula)


def folded(problem: Problem, device: object) -> ways.Way:
    """Give it by folding, likewise."""
    assert device == "cpu"
    return packed.folded(problem, square)


def agrees(make: Callable[[Problem, object], ways.Way], problem: Problem) -> None:
    """Compare a way with the formula in float64: the output and all gradients."""
    inputs = doubled(tensors.make(problem, "cpu", seed=1))
    seen = masks.of_problem(problem)
    right = formula.attend(*inputs.three, seen)
    found = make(problem, "cpu")(*inputs.three)
    assert found.shape == right.shape
    gradients = [torch.autograd.grad(one, inputs.three, inputs.incoming) for one in (found, right)]
    for one, other in [(found, right), *zip(*gradients, strict=True)]:
        assert torch.allclose(one, other, atol=1e-9), float((one - other).abs().max())


@given(SIZES, SIZES, st.integers(0, 30), st.integers(1, 2), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("make", [segments, folded, ways.masked, ways.chunked])
def test_the_compressed_branch(
    make: Callable[[Problem, object], ways.Way],
    block: int,
    stride: int,
    more: int,
    groups: int,
    heads: int,
) -> None:
    problem = compressed(block + more, block, stride, groups=groups, heads=heads, width=8)
    agrees(make, problem)


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 2), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("make", [ways.masked, ways.chunked])
def test_sliding_windows(
    make: Callable[[Problem, object], ways.Way], length: int, window: int, groups: int, heads: int
) -> None:
    agrees(make, sliding(length, window, groups=groups, heads=heads, width=8))


def test_loops_say_the_same_of_segments() -> None:
    """The formula that all else is compared with is none of the things compared here."""
    inputs = doubled(tensors.make(compressed(), "cpu"))
    expected = by_hand(inputs, lambda query, key: key * 4 + 7 <= query)
    for make in (segments, folded):
        assert torch.allclose(make(compressed(), "cpu")(*inputs.three), expected, atol=1e-12)


@pytest.mark.parametrize(("width", "value_width"), [(16, 8), (8, 16), (8, 8)])
@pytest.mark.parametrize("branch", Branch)
def test_dense_attention_of_torch_on_this_cpu(branch: Branch, width: int, value_width: int) -> None:
    """Pinned to what a CPU has, so that widths, shared heads and folding are seen here too."""
    made = sliding if branch is Branch.SLIDING else compressed
    problem = made(width=width, value_width=value_width)
    real = BUILT_IN[FLASH].computes(problem)
    inputs = doubled(tensors.make(problem, "cpu"))
    found = ways.dense(problem, "cpu", backend="math")(*inputs.three)
    right = formula.attend(*inputs.three, masks.of_problem(real))
    assert torch.allclose(found, right, atol=1e-9)
    assert (real.window == problem.length) is (branch is Branch.SLIDING)


def test_a_pin_is_taken_away_again() -> None:
    states = [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in ways.SDP]
    seen = []

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        seen.append([getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in ways.SDP])
        if len(seen) > 1:
            raise RuntimeError("no kernel")
        return query + key + value

    pinned = ways.allowed(way, ["cudnn"])
    one = torch.ones(1)
    pinned(one, one, one)
    with pytest.raises(RuntimeError, match="no kernel"):
        pinned(one, one, one)
    assert seen == [[name == "cudnn" for name in ways.SDP]] * 2
    assert [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in ways.SDP] == states


def test_a_gathered_gradient_is_a_sum_over_copies() -> None:
    rows = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    picked = torch.tensor([2, 0, 2, 2])
    assert torch.equal(packed.gather(rows, picked), rows[picked])
    incoming = torch.randn(4, 2, dtype=torch.float64)
    (found,) = torch.autograd.grad(packed.gather(rows, picked), rows, incoming)
    expected = torch.stack([incoming[1], torch.zeros(2), incoming[[0, 2, 3]].sum(0)])
    assert torch.allclose(found, expected)


def test_kernels_of_cards_are_reached_with_the_window_that_was_meant() -> None:
    """Which is seen on the CPU by what torch says of the operation that has no kernel there."""
    problem = sliding(dtype="float16", width=16, value_width=16)
    inputs = tensors.make(problem, "cpu")
    if ways.varlen_missing(problem):
        pytest.skip(f"needs torch 2.11 or newer: {ways.varlen_missing(problem)}")
    way = ways.varlen(problem, "cpu")
    with pytest.raises(NotImplementedError, match="_flash_attention_forward"):
        way(*inputs.three)


# columns


CARD = limits.Device("cuda", "NVIDIA H200", 9.0, 140 * 2**30)
OLDER = limits.Device("cuda", "NVIDIA A10", 8.6, 22 * 2**30)
CPU = limits.Device("cpu", "a CPU")


@pytest.mark.parametrize(
    ("problem", "device", "said"),
    [
        (sliding(width=256, value_width=256), OLDER, "up to 128 on NVIDIA A10"),
        (sliding(width=64, value_width=136), OLDER, "value width 136"),
        (sliding(width=60, value_width=64), CARD, "heads of width 60"),
        (sliding(width=264, value_width=64), CARD, "up to 256 on NVIDIA H200"),
        (sliding(width=64, value_width=64), CPU, "sdpa-flash needs a CUDA card"),
        (sliding(width=256, value_width=256), CARD, ""),
        (sliding(width=128, value_width=64), OLDER, ""),
    ],
)
def test_what_flash_attention_refuses(problem: Problem, device: limits.Device, said: str) -> None:
    found = BUILT_IN[FLASH].refusal(problem, device)
    assert said in found
    assert bool(found) == bool(said)


def test_columns_are_for_where_they_run() -> None:
    folding = BUILT_IN["fa2-folded"]
    assert "no way to compute the sliding branch" in folding.refusal(sliding(), CARD)
    assert "for hosts without a card" in BUILT_IN["stand-in"].refusal(sliding(), CARD)
    assert BUILT_IN["stand-in"].refusal(sliding(), CPU) == ""
    assert BUILT_IN[MASKED].refusal(sliding(), CPU) == ""
    alone = Column("mine", "", ways.masked, on_cpu=True, gradients=False)
    assert alone.refusal(sliding(), CPU) == ""
    assert "no gradients" in alone.refusal(sliding(direction=Direction.BACKWARD), CPU)


def test_a_package_that_is_not_there_is_said() -> None:
    problem = sliding(width=64, value_width=64)
    found = BUILT_IN["flash_attn"].refusal(problem, CARD)
    try:
        import flash_attn as _  # noqa: F401, PLC0415 -- an extension that not everybody has
    except ImportError:
        assert "flash_attn can't be imported" in found
    else:
        assert found == ""
    assert "varlen_attn" in BUILT_IN[FA2].about


def test_inputs_go_with_the_seed_alone() -> None:
    one, other = (tensors.make(sliding(), "cpu", seed=seed) for seed in (3, 3))
    assert all(map(torch.equal, one.three, other.three))
    third: Inputs = tensors.make(sliding(), "cpu", seed=4)
    assert not torch.equal(one.query, third.query)
    wide = tensors.make(sliding(dtype="bfloat16"), "cpu", seed=3)
    assert torch.allclose(one.query.float(), wide.query.float(), rtol=2**-7)
