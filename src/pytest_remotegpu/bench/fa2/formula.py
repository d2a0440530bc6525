"""Attention written out by its formula, in whatever dtype its inputs have.

In float32 it is what all else is judged by; in the dtype of the problem it is the plain computation
whose error is the measure of an allowed one. Knows no kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pytest_remotegpu.bench.fa2.tensors import Inputs

if TYPE_CHECKING:
    import torch

__all__ = ["MOST", "attend", "exact_products", "output", "parts"]

MOST: Final = 2**29
"""Bytes of scores that are computed at a time; about six times that is held meanwhile."""


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


def parts(
    inputs: Inputs, seen: torch.Tensor, dtype: torch.dtype, *, most: int = MOST
) -> list[torch.Tensor]:
    """Give the output and the gradients of query, key and value, computed in a dtype.

    Queries are taken some at a time, so that long sequences fit; what they add to the gradients of
    keys and values is summed in float32 at least.

    :param most: bytes of scores at a time.
    """
    import torch  # noqa: PLC0415 -- late

    own = inputs.leaves(dtype)
    query, key, value = own.three
    row = query.shape[0] * query.shape[2] * key.shape[1] * dtype.itemsize
    step = max(1, min(query.shape[1], most // row))
    found, sums = [], [torch.zeros_like(one, dtype=_wide(dtype)) for one in (key, value)]
    with exact_products():
        for begin in range(0, query.shape[1], step):
            rows = slice(begin, begin + step)
            few = query[:, rows].detach().requires_grad_()
            output = attend(few, key, value, seen[rows])
            of_few, *of_shared = torch.autograd.grad(
                output, (few, key, value), own.incoming[:, rows]
            )
            found.append((output.detach(), of_few))
            for total, part in zip(sums, of_shared, strict=True):
                total.add_(part)
    outputs, of_query = (torch.cat(pieces, dim=1) for pieces in zip(*found, strict=True))
    return [outputs, of_query, *(total.to(dtype) for total in sums)]


def output(inputs: Inputs, seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Give the output alone, computed in a dtype."""
    import torch  # noqa: PLC0415 -- late

    query, key, value = (one.detach().to(dtype) for one in inputs.three)
    row = query.shape[0] * query.shape[2] * key.shape[1] * dtype.itemsize
    step = max(1, MOST // row)
    with exact_products():
        pieces = [
            attend(query[:, begin : begin + step], key, value, seen[begin : begin + step])
            for begin in range(0, query.shape[1], step)
        ]
    return torch.cat(pieces, dim=1)


def _wide(dtype: torch.dtype) -> torch.dtype:
    import torch  # noqa: PLC0415 -- late

    return torch.promote_types(dtype, torch.float32)


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
