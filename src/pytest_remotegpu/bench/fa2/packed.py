"""The two ways to give the compressed branch to kernels that know no mask of its kind.

*Segments*: ``stride`` queries in a row see the same tokens, the first ``j`` of them. They are one
sequence of a packed batch, with a copy of these tokens as its keys. So there is no mask, and
``n * (n + 1) / 2`` copied keys for ``n`` compressed tokens.

*Folded*: the same ``stride`` queries become heads of one query, which share its keys as heads of a
group do anyway. Then query ``j`` of ``n`` sees the first ``j`` of ``n`` keys, which is the causal
mask of a square that each kernel knows, and no key is copied.

What a caller has once (indices, boundaries) is made beforehand; what he pays for each call
(gathering, folding, unfolding) is done in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_remotegpu.bench.fa2 import masks
from pytest_remotegpu.bench.fa2.rows import Problem

if TYPE_CHECKING:
    import torch

__all__ = ["Packed", "folded", "gather", "segments"]

Packed = Callable[..., "torch.Tensor"]
"""``(query, key, value, query_ends, key_ends, longest_query, longest_key) -> output``, packed."""
Square = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Causal attention of as many queries as keys, token-major."""


def segments(problem: Problem, device: torch.device | str, attend: Packed) -> Square:
    """Give the compressed branch by segments.

    :param attend: attention of packed sequences without a mask.
    """
    import torch  # noqa: PLC0415 -- late

    assert problem.stride is not None
    stride, many, skipped = problem.stride, masks.keys(problem), masks.blind(problem)
    queries = problem.length - skipped
    lengths = [min(stride, queries - stride * place) for place in range(many)]
    ends = _ends(lengths * problem.batch, device)
    key_ends = _ends([*range(1, many + 1)] * problem.batch, device)
    places = torch.cat([torch.arange(count + 1) for count in range(many)])
    starts = torch.arange(problem.batch)[:, None] * many
    picked = (starts + places[None, :]).flatten().to(device)

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        seeing = query[:, skipped:].flatten(0, 1)
        key, value = (gather(one.flatten(0, 1), picked) for one in (key, value))
        output = attend(seeing, key, value, ends, key_ends, max(lengths), many)
        return _with_blind(output.unflatten(0, (problem.batch, queries)), skipped)

    return way


def folded(problem: Problem, attend: Square) -> Square:
    """Give the compressed branch by folding.

    :param attend: causal attention of a square, whose query heads share key heads in order.
    """
    import torch  # noqa: PLC0415 -- late

    assert problem.stride is not None
    stride, many, skipped = problem.stride, masks.keys(problem), masks.blind(problem)
    queries = problem.length - skipped
    missing = many * stride - queries
    shape = (problem.groups, problem.heads)

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        seeing = query[:, skipped:]
        if missing:
            seeing = torch.nn.functional.pad(seeing, (0, 0, 0, 0, 0, missing))
        rows = seeing.unflatten(1, (many, stride)).unflatten(3, shape)
        output = attend(rows.transpose(2, 3).flatten(2, 4), key, value)
        unfolded = output.unflatten(2, (shape[0], stride, shape[1])).transpose(2, 3)
        return _with_blind(unfolded.flatten(3, 4).flatten(1, 2)[:, :queries], skipped)

    return way


def _with_blind(output: torch.Tensor, skipped: int) -> torch.Tensor:
    """Put zeros before it, for the queries that see nothing."""
    import torch  # noqa: PLC0415 -- late

    return torch.nn.functional.pad(output, (0, 0, 0, 0, skipped, 0))


def _ends(lengths: list[int], device: torch.device | str) -> torch.Tensor:
    """Give where sequences of these lengths end in a packed batch, with the 0 before the first."""
    import torch  # noqa: PLC0415 -- late

    ends = torch.zeros(len(lengths) + 1, dtype=torch.int32)
    ends[1:] = torch.tensor(lengths, dtype=torch.int32).cumsum(0)
    return ends.to(device)


def gather(rows: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
    """Copy rows, the same one often; its gradient is summed in float32 at least.

    In the dtype of the rows each of up to ``n`` additions would round, and a gradient be wrong in
    more than its last place.

    :param picked: their places.
    """
    copied: torch.Tensor = _gatherer().apply(rows, picked)
    return copied


_MADE: dict[str, Any] = {}


def _gatherer() -> Any:
    """Give the function with a gradient of its own; torch is needed to make its class."""
    if "gather" not in _MADE:
        import torch  # noqa: PLC0415 -- late

        class Gather(torch.autograd.Function):
            """Rows by their places."""

            @staticmethod
            def forward(ctx: Any, rows: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(picked)
                ctx.many = len(rows)
                return rows.index_select(0, picked)

            @staticmethod
            def backward(ctx: Any, *incoming: torch.Tensor) -> tuple[torch.Tensor, None]:
                (picked,) = ctx.saved_tensors
                (one,) = incoming
                wide = torch.promote_types(one.dtype, torch.float32)
                total = one.new_zeros((ctx.many, *one.shape[1:]), dtype=wide)
                return total.index_add_(0, picked, one.to(wide)).to(one.dtype), None

        _MADE["gather"] = Gather
    return _MADE["gather"]
