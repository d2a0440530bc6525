"""Arguments with which a check would pass and mean nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from diagnostics.models import PAIR, classify, mlp
from pytest_remotegpu.diagnostics import (
    accumulation_matches,
    attention_parity,
    kernels_parity,
    losses_agree,
    overfit,
)

NUMBERS = torch.ones(1, 2, 4, 8)


@pytest.mark.parametrize("bound", [{"rtol": math.nan}, {"atol": math.inf}, {"rtol": -1.0}])
def test_a_bound_that_nothing_can_break_is_refused(bound: Any) -> None:
    with pytest.raises(ValueError, match="each is a finite number from 0 on"):
        losses_agree(lambda: torch.ones(1) * 2, lambda: torch.ones(1) + 5, **bound)


@pytest.mark.parametrize("nothing", [[], torch.zeros(0)])
def test_results_without_a_number_are_refused(nothing: object) -> None:
    with pytest.raises(ValueError, match="no number at all"):
        losses_agree(lambda: nothing, lambda: nothing)


def test_a_text_is_no_list_of_patterns() -> None:
    with pytest.raises(ValueError, match=r"fixed is the text '0\.\*'; give a list"):
        overfit(mlp, PAIR, loss=classify, fixed="0.*")


def test_attention_of_several_dtypes_or_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="kernels want one alone"):
        attention_parity(NUMBERS, NUMBERS.double(), NUMBERS)
    with pytest.raises(ValueError, match="one without a number"):
        attention_parity(NUMBERS[:0], NUMBERS[:0], NUMBERS[:0])


def test_a_model_is_no_factory_of_models() -> None:
    words = r"make_model is a model, a Sequential; .*: lambda: Sequential\(\.\.\.\)"
    with pytest.raises(TypeError, match=words):
        overfit(mlp(), PAIR, loss=classify)
    with pytest.raises(TypeError, match=words):
        accumulation_matches(mlp(), [PAIR, PAIR], accumulate=print, loss=classify, count=len)
    with pytest.raises(TypeError, match=words):
        kernels_parity(mlp(), PAIR, loss=classify, patch=print)


def test_a_factory_that_gives_nothing_is_named() -> None:
    def forgets() -> Any:
        mlp()

    with pytest.raises(TypeError, match="make_model has given None, and has to return a torch"):
        overfit(forgets, PAIR, loss=classify)
    with pytest.raises(TypeError, match="make_optimizer has given a list, and has to return an op"):
        overfit(mlp, PAIR, loss=classify, make_optimizer=lambda _: [])
