"""Attention written out by its formula, in whatever dtype its inputs have.

In float32 it is what all else is judged by; in the dtype of the problem it is the plain computation
whose error is the measure of an allowed one. Knows no kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_remotegpu.bench.fa2.tensors import Inputs

if TYPE_CHECKING:
    import torch

__all__ = ["attend", "exact_products", "parts"]


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, seen: torch.Tensor
) -> torch.Tensor:
    """Compute ``softmax(query @ key.T / sqrt(width)) @ value`` over the keys that are seen.

    :param query: (batch, tokens, heads, width); :param key: and :param value: with as many heads,
        or with fewer that are shared.
    :param seen: (queries, keys), true where a query sees a key. A query that sees none gives 0.
    :return: (batch, tokens, heads, value width).
    """
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    shared = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(shared, dim=1) for one in (key, value))
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    any_seen = seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~(seen | ~any_seen), float("-inf"))
    weights = scores.softmax(-1).masked_fill(~any_seen, 0.0)
    return (weights @ value).transpose(1, 2)


def parts(inputs: Inputs, seen: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """Give the output and the gradients of query, key and value, computed in a dtype."""
    import torch  # noqa: PLC0415 -- late

    own = inputs.leaves(dtype)
    with exact_products():
        output = attend(*own.three, seen)
        return [output.detach(), *torch.autograd.grad(output, own.three, own.incoming)]


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Let float32 products have full precision meanwhile, not that of TF32."""
    import torch  # noqa: PLC0415 -- late

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
