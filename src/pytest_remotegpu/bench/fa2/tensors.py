"""What attention is computed of: queries, keys, values, and the gradient that comes in.

All are token-major, as projections of a model give them and as FlashAttention takes them: (batch,
tokens, heads, width). What wants heads first gets a view of it. Query head ``i`` belongs to the
key/value head ``i // heads``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_remotegpu.bench.fa2 import masks
from pytest_remotegpu.bench.fa2.rows import Problem

if TYPE_CHECKING:
    import torch

__all__ = ["NAMES", "Inputs", "make"]

NAMES = ("output", "gradient of query", "gradient of key", "gradient of value")
"""Of what attention gives, in the order of all that lists them."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """One set of inputs.

    :ivar query: (batch, length, groups * heads, width).
    :ivar key: (batch, keys, groups, width).
    :ivar value: (batch, keys, groups, value width).
    :ivar incoming: the gradient of the output, (batch, length, groups * heads, value width).
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    incoming: torch.Tensor

    @property
    def three(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value

    def copied(self) -> Inputs:
        """Copy them to other places in memory."""
        return Inputs(*(one.clone() for one in (*self.three, self.incoming)))

    def leaves(self, dtype: Any = None) -> Inputs:
        """Copy them as leaves of a graph of their own.

        :param dtype: to have them in; their own where ``None``.
        """
        wanted = dtype or self.query.dtype
        query, key, value = (one.detach().to(wanted).clone().requires_grad_() for one in self.three)
        return Inputs(query, key, value, self.incoming.detach().to(wanted))


def make(problem: Problem, device: torch.device | str, *, seed: int = 0) -> Inputs:
    """Draw inputs of a normal distribution, the same ones on each device for each seed.

    :param problem: gives shapes and dtype.
    """
    import torch  # noqa: PLC0415 -- late

    chance = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, problem.dtype)
    many, all_heads = masks.keys(problem), problem.groups * problem.heads
    shapes = (
        (problem.batch, problem.length, all_heads, problem.width),
        (problem.batch, many, problem.groups, problem.width),
        (problem.batch, many, problem.groups, problem.value_width),
        (problem.batch, problem.length, all_heads, problem.value_width),
    )
    drawn = [torch.randn(shape, generator=chance).to(dtype).to(device) for shape in shapes]
    return Inputs(*drawn)
