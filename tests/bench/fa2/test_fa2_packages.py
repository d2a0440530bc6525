"""Columns of FlashAttention-2 and its conventions, on functions that a CPU has."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import attention

from bench.fa2 import kernel_of_ours
from bench.fa2.problems import compressed, sliding
from pytest_remotegpu.bench.fa2 import formula, limits, masks, parity, tensors, ways
from pytest_remotegpu.bench.fa2.columns import BUILT_IN, FLASH_ATTN, FOLDED
from pytest_remotegpu.bench.fa2.rows import FA2, Problem

CPU = limits.Device("cpu", "a CPU")
CARD = limits.Device("cuda", "NVIDIA H200", 9.0)
PROBLEMS = (
    sliding(40, 7),
    sliding(40, 40),
    sliding(40, 99, width=16, value_width=16),
    sliding(40, 1, heads=1, width=8, value_width=16),
    compressed(70, 8, 4),
    compressed(71, 8, 8, heads=1, width=8, value_width=16),
    compressed(64, 16, 24, batch=1),
)


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put functions of ours where torch's and the package's are."""
    varlen: Any = types.ModuleType("torch.nn.attention.varlen")
    varlen.varlen_attn = kernel_of_ours.varlen_attn
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", varlen)
    monkeypatch.setattr(attention, "varlen", varlen, raising=False)
    package: Any = types.ModuleType("flash_attn")
    package.flash_attn_func = kernel_of_ours.flash_attn_func
    package.flash_attn_varlen_func = kernel_of_ours.flash_attn_varlen_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    ways._varlen_options.cache_clear()  # noqa: SLF001 -- it remembers torch's own
    yield
    ways._varlen_options.cache_clear()  # noqa: SLF001 -- likewise


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("name", [FA2, FOLDED, FLASH_ATTN])
def test_columns_compute_what_was_asked_for(name: str, problem: Problem) -> None:
    column = BUILT_IN[name]
    assert column.missing(problem) == ""
    if problem.branch not in column.branches:
        assert "no way to compute" in column.refusal(problem, CARD)
        return
    found = parity.compare(column, problem, CPU)
    # a gradient that the formula sums by heads in float16 is no kernel's
    differs = [check for check in found.checks if not check.passed]
    assert [check for check in differs if not check.what.startswith("gradient")] == []
    way = column.make(problem, "cpu")
    inputs = tensors.make(problem, "cpu").leaves(torch.float64)
    seen = masks.of_problem(problem)
    right = formula.attend(*inputs.three, seen)
    output = way(*inputs.three)
    gradients = [torch.autograd.grad(one, inputs.three, inputs.incoming) for one in (output, right)]
    for one, other in [(output, right), *zip(*gradients, strict=True)]:
        assert torch.allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("name", [FA2, FLASH_ATTN])
@pytest.mark.parametrize("window", [1, 2, 7])
def test_a_window_counts_the_token_itself(
    name: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def banded(queries: int, keys: int, window: tuple[int, int]) -> torch.Tensor:
        given.append(window)
        return made(queries, keys, window)

    made = kernel_of_ours.banded
    monkeypatch.setattr(kernel_of_ours, "banded", banded)
    problem = sliding(12, window)
    BUILT_IN[name].make(problem, "cpu")(*tensors.make(problem, "cpu").three)
    assert set(given) == {(window - 1, 0)}


def test_an_older_torch_has_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(*packed: Any, is_causal: bool = False) -> Any:
        return packed, is_causal

    monkeypatch.setattr(sys.modules["torch.nn.attention.varlen"], "varlen_attn", older)
    ways._varlen_options.cache_clear()  # noqa: SLF001 -- it remembers the newer one
    assert "takes no window; that of 2.11 does" in ways.varlen_missing(PROBLEMS[0])
    assert ways.varlen_missing(PROBLEMS[4]) == ""
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    ways._varlen_options.cache_clear()  # noqa: SLF001 -- likewise
    assert "has no varlen_attn; 2.11 has" in ways.varlen_missing(PROBLEMS[0])
    assert BUILT_IN[FA2].refusal(replace(PROBLEMS[2], width=64, value_width=64), CARD)
