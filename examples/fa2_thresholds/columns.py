"""A column of one's own: attention by a function that is measured beside the others."""

from __future__ import annotations

from typing import Any

from pytest_remotegpu.bench.fa2 import masks
from pytest_remotegpu.bench.fa2.rows import Problem
from pytest_remotegpu.bench.fa2.ways import Way


def by_hand(problem: Problem, device: Any) -> Way:
    """Write attention out: scores, softmax, sum.

    What a caller makes once is made here, as the mask; what each call costs is in the function.

    :param problem: gives lengths, heads, the window.
    :return: gets query, key and value, each (batch, tokens, heads, width), and gives the output.
    """
    seen = masks.of_problem(problem, device)
    blind = ~seen.any(-1, keepdim=True)
    hidden = ~(seen | blind)

    def attend(query: Any, key: Any, value: Any) -> Any:
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        key, value = (one.repeat_interleave(problem.heads, 1) for one in (key, value))
        scores = query @ key.transpose(-2, -1) * problem.width**-0.5
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(blind, 0)
        return (weights @ value).transpose(1, 2)

    return attend


by_hand.on_cpu = True  # type: ignore[attr-defined]
