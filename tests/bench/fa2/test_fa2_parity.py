"""Parity: what is right passes, and each planted error is found and named."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from bench.fa2.problems import compressed, sliding
from pytest_remotegpu.bench.fa2 import limits, masks, parity, ways
from pytest_remotegpu.bench.fa2.columns import BUILT_IN, Column
from pytest_remotegpu.bench.fa2.masks import Corner
from pytest_remotegpu.bench.fa2.parity import Check, Compared
from pytest_remotegpu.bench.fa2.rows import Branch, Direction, Parity, Problem

CPU = limits.Device("cpu", "a CPU")
USUAL = {"batch": 1, "heads": 2, "width": 64, "value_width": 64}
PROBLEMS = {
    "sliding": sliding(256, 32, **USUAL),
    "wide": sliding(512, 256, **USUAL),
    "coarse": sliding(512, 256, **{**USUAL, "dtype": "bfloat16"}),
    "compressed": compressed(256, 32, 16, **USUAL),
    "compressed coarse": compressed(512, 32, 16, **{**USUAL, "dtype": "bfloat16"}),
}
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def compare(make: Callable[[Problem, Any], ways.Way], problem: Problem, **options: Any) -> Compared:
    column = Column("fa2", "on trial", make, on_cpu=True)
    return parity.compare(column, problem, CPU, **options)


def after(way: ways.Way, change: Callable[[torch.Tensor], torch.Tensor]) -> ways.Way:
    """Change what a way gives."""
    return lambda query, key, value: change(way(query, key, value))


# what is right


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("column", ["masked", "stand-in"])
def test_what_is_right_passes(name: str, column: str) -> None:
    found = parity.compare(BUILT_IN[column], PROBLEMS[name], CPU)
    assert (found.parity, found.why) == (Parity.PASSED, "")
    names = [check.what for check in found.checks]
    assert names[:4] == [
        "output",
        "gradient of query",
        "gradient of key",
        "gradient of value",
    ]
    assert ("reference in float32" in names) is (column == "masked")
    assert ("output beside SDPA with a mask" in names) is (column != "masked")


@pytest.mark.parametrize("seed", range(5))
def test_other_numbers_pass_as_well(seed: int) -> None:
    for problem in PROBLEMS.values():
        found = parity.compare(BUILT_IN["stand-in"], problem, CPU, seed=seed)
        assert found.parity is Parity.PASSED, found.why


# what is not


def other_window(by: int) -> Callable[[Problem, Any], ways.Way]:
    def make(problem: Problem, device: Any) -> ways.Way:
        assert problem.window is not None
        return ways.masked(replace(problem, window=problem.window + by), device)

    return make


def wrong_corner(problem: Problem, device: Any) -> ways.Way:
    """Give each chunk of queries the causal mask of the top left, as ``is_causal`` has it."""
    assert problem.window is not None
    window = problem.window

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (ways.widened(one, problem.heads) for one in (key, value))
        pieces = []
        for begin in range(0, problem.length, window):
            end, first = min(begin + window, problem.length), max(0, begin - window + 1)
            seen = masks.banded(
                end - begin, end - first, window, corner=Corner.TOP_LEFT, device=device
            )
            three = query[:, begin:end], key[:, first:end], value[:, first:end]
            few = (one.transpose(1, 2) for one in three)
            attend = torch.nn.functional.scaled_dot_product_attention
            pieces.append(attend(*few, attn_mask=seen).transpose(1, 2))
        return torch.cat(pieces, dim=1)

    return way


def one_block_late(problem: Problem, device: Any) -> ways.Way:
    """See a compressed token only when the next token has come."""
    seen = masks.of_problem(problem, device).roll(1, 0)
    seen[0] = False

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (ways.widened(one, problem.heads) for one in (key, value))
        few = (one.transpose(1, 2) for one in (query[:, 32:], key, value))
        attend = torch.nn.functional.scaled_dot_product_attention
        output = attend(*few, attn_mask=seen[32:]).transpose(1, 2)
        return torch.nn.functional.pad(output, (0, 0, 0, 0, 32, 0))

    return way


def all_causal(problem: Problem, device: Any) -> ways.Way:
    return ways.masked(replace(problem, window=problem.length), device)


def wrong_scale(problem: Problem, device: Any) -> ways.Way:
    way = ways.masked(problem, device)
    return lambda query, key, value: way(query * problem.width**-0.5, key, value)


def heads_swapped(problem: Problem, device: Any) -> ways.Way:
    """Share keys as a layout of heads before groups would."""
    way = ways.masked(problem, device)
    order = torch.arange(problem.groups * problem.heads).view(problem.groups, problem.heads)
    mixed = order.T.flatten()
    return lambda query, key, value: way(query[:, :, mixed], key, value)[:, :, mixed]


def one_head_swapped(problem: Problem, device: Any) -> ways.Way:
    way = ways.masked(problem, device)
    return after(way, lambda output: output[:, :, [1, 0, *range(2, output.shape[2])]])


def with_number(number: float) -> Callable[[Problem, Any], ways.Way]:
    def make(problem: Problem, device: Any) -> ways.Way:
        def change(output: torch.Tensor) -> torch.Tensor:
            return torch.where(torch.arange(output.shape[-1]) == 3, number, output)

        return after(ways.masked(problem, device), change)

    return make


def blind_see_a_mean(problem: Problem, device: Any) -> ways.Way:
    way = ways.masked(problem, device)

    def see(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        output, mean = way(query, key, value), ways.widened(value, problem.heads).mean(1)
        return torch.cat([mean[:, None].expand_as(output[:, :31]), output[:, 31:]], dim=1)

    return see


def too_few_rows(problem: Problem, device: Any) -> ways.Way:
    return after(ways.masked(problem, device), lambda output: output[:, 1:])


def gradient_doubled(place: int) -> Callable[[Problem, Any], ways.Way]:
    def make(problem: Problem, device: Any) -> ways.Way:
        way = ways.masked(problem, device)

        def twice(*three: torch.Tensor) -> torch.Tensor:
            changed = [
                2 * one - one.detach() if at == place else one for at, one in enumerate(three)
            ]
            return way(*changed)

        return twice

    return make


def gradient_is_nan(problem: Problem, device: Any) -> ways.Way:
    way = ways.masked(problem, device)

    def poisoned(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        other = key.clone()
        if other.requires_grad:
            other.register_hook(lambda incoming: incoming * math.nan)
        return way(query, other, value)

    return poisoned


def another_answer_each_time(problem: Problem, device: Any) -> ways.Way:
    way, runs = ways.masked(problem, device), [0]

    def drifting(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        runs[0] += 1
        return way(query, key, value) + 3e-4 * (runs[0] % 2)

    return drifting


SLIDING = ("sliding", "wide", "coarse")
COMPRESSED = ("compressed", "compressed coarse")
PLANTED: list[tuple[Callable[[Problem, Any], ways.Way], tuple[str, ...], str]] = [
    (other_window(1), SLIDING, "output"),
    (other_window(-1), SLIDING, "output"),
    (all_causal, SLIDING, "output"),
    (wrong_corner, SLIDING, "output"),
    (one_block_late, COMPRESSED, "output"),
    (wrong_scale, (*SLIDING, *COMPRESSED), "output"),
    (heads_swapped, (*SLIDING, *COMPRESSED), "output"),
    (one_head_swapped, (*SLIDING, *COMPRESSED), "output"),
    (with_number(math.nan), (*SLIDING, *COMPRESSED), "output: has NaN or infinity"),
    (with_number(math.inf), ("sliding",), "output: has NaN or infinity"),
    (blind_see_a_mean, COMPRESSED, "output"),
    (too_few_rows, ("sliding", "compressed"), "output: has the shape (1, 255, 4, 64), not"),
    (gradient_doubled(0), ("sliding", "compressed"), "gradient of query"),
    (gradient_doubled(1), ("sliding", "compressed"), "gradient of key"),
    (gradient_doubled(2), ("sliding", "compressed"), "gradient of value"),
    (gradient_is_nan, ("sliding", "compressed"), "gradient of key: has NaN or infinity"),
    (another_answer_each_time, ("sliding",), "output run again"),
]


@pytest.mark.parametrize(
    ("make", "name", "said"),
    [(make, name, said) for make, names, said in PLANTED for name in names],
)
def test_a_planted_error_is_found(
    make: Callable[[Problem, Any], ways.Way], name: str, said: str
) -> None:
    found = compare(make, PROBLEMS[name])
    assert found.parity is Parity.FAILED
    assert found.why.startswith(said) or f"{said}:" in found.why, found.why


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("name", SLIDING)
def test_a_mask_is_seen_to_be_off_by_one_key_whatever_the_numbers_are(name: str, by: int) -> None:
    """Where a window is wide, one key more or less is no more than roundings in bfloat16 are."""
    found = compare(other_window(by), PROBLEMS[name])
    (of_mask,) = [check for check in found.checks if check.what == "mask"]
    assert not of_mask.passed
    assert 0.9 < of_mask.error < 1.5
    right = compare(ways.masked, PROBLEMS[name])
    (of_mask,) = [check for check in right.checks if check.what == "mask"]
    assert of_mask.error < 0.1


def test_gradients_can_be_left_out_for_what_has_none() -> None:
    found = compare(gradient_doubled(1), PROBLEMS["sliding"], gradients=False)
    assert found.parity is Parity.PASSED
    assert "gradient of key" not in [check.what for check in found.checks]


def test_what_raises_or_was_not_compared_is_no_pass() -> None:
    def make(_problem: Problem, _device: Any) -> ways.Way:
        raise RuntimeError("no kernel")

    with pytest.raises(RuntimeError, match="no kernel"):
        compare(make, PROBLEMS["sliding"])
    assert parity.not_checked("it was skipped") == Compared(
        Parity.NOT_CHECKED, "it was skipped", ()
    )


@pytest.mark.parametrize(
    ("error", "allowed", "passed"),
    [(1.0, 1.0, True), (1.1, 1.0, False), (math.nan, 1.0, False), (math.inf, math.inf, False)],
)
def test_a_check_passes_within_what_is_allowed(
    error: float, allowed: float, *, passed: bool
) -> None:
    check = Check("output", error, allowed, "largest error")
    assert check.passed is passed
    assert ("NaN or infinity" in str(check)) is not math.isfinite(error)


def test_a_comparison_goes_with_both_directions() -> None:
    one, other = (sliding(direction=direction) for direction in Direction)
    column = BUILT_IN["masked"]
    assert one != other
    assert parity.key(column, one) == parity.key(column, other)
    assert parity.key(column, one) != parity.key(BUILT_IN["stand-in"], one)


def test_dense_columns_are_compared_with_what_they_compute() -> None:
    """All causal tokens; with the window they are asked for they would fail, and rightly so."""
    problem = PROBLEMS["sliding"]
    dense = Column("dense", "", all_causal, dense=True, on_cpu=True)
    assert parity.compare(dense, problem, CPU).parity is Parity.PASSED
    assert parity.compare(replace(dense, dense=False), problem, CPU).parity is Parity.FAILED
    assert dense.computes(PROBLEMS["compressed"]) == PROBLEMS["compressed"]
    assert problem.branch is Branch.SLIDING
