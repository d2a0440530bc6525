"""Problems that are small enough for a CPU, and attention that is written out number by number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pytest_remotegpu.bench.fa2.rows import Branch, Direction, Problem
from pytest_remotegpu.bench.fa2.tensors import Inputs

__all__ = ["by_hand", "compressed", "doubled", "sliding"]


def sliding(length: int = 24, window: int = 5, **changes: Any) -> Problem:
    """Make a problem of a sliding window."""
    return _made(Branch.SLIDING, length, window=window, **changes)


def compressed(length: int = 37, block: int = 8, stride: int = 4, **changes: Any) -> Problem:
    """Make a problem of compressed tokens."""
    return _made(Branch.COMPRESSED, length, block=block, stride=stride, **changes)


def _made(branch: Branch, length: int, **changes: Any) -> Problem:
    usual = {
        "direction": Direction.FORWARD,
        "dtype": "float16",
        "batch": 2,
        "groups": 2,
        "heads": 3,
        "width": 16,
        "value_width": 8,
    }
    return Problem(branch=branch, length=length, **{**usual, **changes})


def doubled(inputs: Inputs) -> Inputs:
    """Give inputs in float64, as leaves of a graph."""
    query, key, value = (one.double().requires_grad_() for one in inputs.three)
    return Inputs(query, key, value, inputs.incoming.double())


def by_hand(inputs: Inputs, sees: Callable[[int, int], bool]) -> torch.Tensor:
    """Compute attention by loops, one number after the other.

    :param sees: whether a query sees a key, by their places.
    """
    query, key, value = (one.tolist() for one in inputs.three)
    batch, tokens, heads = inputs.query.shape[:3]
    shared = heads // inputs.key.shape[2]
    width = inputs.value.shape[3]
    output = torch.zeros(batch, tokens, heads, width, dtype=torch.float64)
    for one in range(batch):
        for place in range(tokens):
            for head in range(heads):
                near = [key for key in range(inputs.key.shape[1]) if sees(place, key)]
                of = head // shared
                asked = query[one][place][head]
                scores = [
                    math.fsum(a * b for a, b in zip(asked, key[one][other][of], strict=True))
                    / math.sqrt(len(asked))
                    for other in near
                ]
                weights = [math.exp(score) for score in scores]
                for column in range(width if near else 0):
                    output[one, place, head, column] = math.fsum(
                        weight * value[one][other][of][column]
                        for weight, other in zip(weights, near, strict=True)
                    ) / math.fsum(weights)
    return output
