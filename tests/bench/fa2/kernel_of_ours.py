"""FlashAttention's functions with its conventions, by the formula: what a CPU can have of them.

Packed sequences, windows of ``left`` keys before and ``right`` after a query's own one, the causal
corner at the bottom right, shared heads; -1 is no bound.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from pytest_remotegpu.bench.fa2 import formula

__all__ = ["banded", "flash_attn_func", "flash_attn_varlen_func", "varlen_attn"]


def banded(queries: int, keys: int, window: tuple[int, int]) -> torch.Tensor:
    """Give the keys that a query sees, by loops."""
    left, right = window
    seen = torch.zeros(queries, keys, dtype=torch.bool)
    for query, key in itertools.product(range(queries), range(keys)):
        own = query + keys - queries
        seen[query, key] = (left < 0 or key >= own - left) and (right < 0 or key <= own + right)
    return seen


def varlen_attn(  # noqa: PLR0913 -- as torch has it
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """Attend as ``torch.nn.attention.varlen.varlen_attn`` of torch 2.11 does."""
    assert query.shape[-1] == key.shape[-1] == value.shape[-1], "kernels want one width"
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    if scale is not None:
        query = query * (scale * query.shape[-1] ** 0.5)
    spans = [list(itertools.pairwise(ends.tolist())) for ends in (cu_seq_q, cu_seq_k)]
    pieces = []
    for (begin, end), (first, last) in zip(*spans, strict=True):
        assert end - begin <= max_q
        assert last - first <= max_k
        seen = banded(end - begin, last - first, window_size)
        three = query[None, begin:end], key[None, first:last], value[None, first:last]
        pieces.append(formula.attend(*three, seen)[0])
    return torch.cat(pieces)


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,  # noqa: FBT002 -- as the package has it
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """Attend as ``flash_attn.flash_attn_func`` does."""
    assert dropout_p == 0
    window = (window_size[0], 0) if causal else window_size
    batch, tokens, keys = q.shape[0], q.shape[1], k.shape[1]
    ends = [torch.arange(batch + 1, dtype=torch.int32) * length for length in (tokens, keys)]
    query, key, value = (one.flatten(0, 1) for one in (q, k, v))
    packed = varlen_attn(
        query, key, value, ends[0], ends[1], tokens, keys, scale=softmax_scale, window_size=window
    )
    return packed.unflatten(0, (batch, tokens))


def flash_attn_varlen_func(*packed: Any, softmax_scale: float | None = None) -> torch.Tensor:
    """Attend as ``flash_attn.flash_attn_varlen_func`` does, without a mask."""
    return varlen_attn(*packed, scale=softmax_scale)
