"""Which keys a query sees, as boolean masks, and the two corners that a causal mask can start at.

Where there are as many queries as keys the corners are one. Where there are not, ``is_causal`` of
torch's ``scaled_dot_product_attention`` starts at the top left and FlashAttention, since 2.1, at
the bottom right; windows of FlashAttention go with its corner. Knows problems, and no way to
compute one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pytest_remotegpu.bench.fa2.rows import Branch, Problem
from pytest_remotegpu.bench.thresholds import compressed_length

if TYPE_CHECKING:
    import torch

__all__ = ["Corner", "banded", "blind", "compressed", "keys", "of_problem", "seen_tokens"]


class Corner(StrEnum):
    """Where a causal mask starts."""

    TOP_LEFT = "top-left"
    BOTTOM_RIGHT = "bottom-right"


def keys(problem: Problem) -> int:
    """Give how many keys there are: a sequence's tokens, or its compressed ones."""
    if problem.branch is Branch.SLIDING:
        return problem.length
    assert problem.block is not None
    assert problem.stride is not None
    return compressed_length(problem.length, problem.block, problem.stride)


def blind(problem: Problem) -> int:
    """Give how many queries see nothing: those before the end of the first block."""
    if problem.branch is Branch.SLIDING:
        return 0
    assert problem.block is not None
    return min(problem.block - 1, problem.length)


def seen_tokens(token: int, block: int, stride: int) -> int:
    """Give how many compressed tokens a query sees: those whose block has ended with it.

    Block ``i`` spans the tokens from ``i * stride`` to ``i * stride + block - 1``, both included.
    So the query at ``token``, counted from 0, sees ``(token + 1 - block) // stride + 1`` of them.

    :param token: the query's place.
    :param block: tokens that are compressed into one.
    :param stride: tokens from one block's begin to the next one's.
    """
    return compressed_length(token + 1, block, stride)


def banded(
    queries: int,
    keys: int,
    window: int | None,
    *,
    corner: Corner = Corner.BOTTOM_RIGHT,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Make a causal mask, true where a query sees a key.

    :param queries: how many; :param keys: likewise.
    :param window: how many keys the query sees, its own among them; ``None`` for all before it.
    :param corner: where the mask starts: the first query's own key is the first one, or the last
        query's own key is the last one.
    :return: (queries, keys).
    """
    import torch  # noqa: PLC0415 -- late

    shift = keys - queries if corner is Corner.BOTTOM_RIGHT else 0
    own = torch.arange(queries, device=device)[:, None] + shift
    place = torch.arange(keys, device=device)[None, :]
    seen = place <= own
    return seen if window is None else seen & (place > own - window)


def compressed(
    length: int, block: int, stride: int, *, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Make the mask of the compressed branch, true where a query sees a compressed token.

    The first ``block - 1`` queries see none. See :func:`seen_tokens`.

    :return: (length, compressed tokens).
    """
    import torch  # noqa: PLC0415 -- late

    last = (
        torch.arange(compressed_length(length, block, stride), device=device) * stride + block - 1
    )
    return last[None, :] <= torch.arange(length, device=device)[:, None]


def of_problem(problem: Problem, device: torch.device | str = "cpu") -> torch.Tensor:
    """Make a problem's mask.

    :return: (queries, keys).
    """
    if problem.branch is Branch.SLIDING:
        return banded(problem.length, problem.length, problem.window, device=device)
    assert problem.block is not None
    assert problem.stride is not None
    return compressed(problem.length, problem.block, problem.stride, device=device)
