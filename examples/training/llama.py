"""The model under test: a Llama of a tenth of a million parameters, built without any download.

RMSNorm before each part, rotary positions, query heads that share their keys and values, a gated
layer (SwiGLU), and a head that is the embedding unless ``tied=False``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Gives the output of query, key and value, each (batch, heads, length, dimension)."""


@dataclass(frozen=True)
class Shape:
    """How large a model is.

    :ivar heads: of the queries. :ivar shared: heads of keys and values, each for several queries.
    :ivar tied: whether the head's weights are those of the embedding.
    """

    vocabulary: int = 1000
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    shared: int = 2
    gate: int = 128
    tied: bool = True

    @property
    def dimension(self) -> int:
        """The numbers of one head."""
        return self.hidden // self.heads


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend by torch's own kernels, causally."""
    return functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=True
    )


def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend by the formula, causally: slower, and nothing is hidden in a kernel."""
    groups = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ value


def turned(x: Tensor) -> Tensor:
    """Turn pairs of numbers by angles that grow with the place: rotary positions."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class Block(nn.Module):
    """Attention and a gated layer, each added to what comes in."""

    def __init__(self, shape: Shape, attend: Attention) -> None:
        super().__init__()
        self.shape, self.attend = shape, attend
        width = shape.shared * shape.dimension
        self.before, self.between = nn.RMSNorm(shape.hidden), nn.RMSNorm(shape.hidden)
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.key = nn.Linear(shape.hidden, width, bias=False)
        self.value = nn.Linear(shape.hidden, width, bias=False)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.gate = nn.Linear(shape.hidden, shape.gate, bias=False)
        self.up = nn.Linear(shape.hidden, shape.gate, bias=False)
        self.down = nn.Linear(shape.gate, shape.hidden, bias=False)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give query, key and value of ``x``, as they go into the attention."""
        y = self.before(x)
        query, key, value = (
            part(y).unflatten(-1, (-1, self.shape.dimension)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        return turned(query), turned(key), value

    def forward(self, x: Tensor) -> Tensor:
        """Take and give a tensor of shape (batch, length, hidden)."""
        x = x + self.out(self.attend(*self.parts(x)).transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """The language model: token ids of shape (batch, length) in, logits out."""

    def __init__(self, shape: Shape | None = None, attend: Attention = fused) -> None:
        super().__init__()
        shape = shape or Shape()
        self.embed = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList([Block(shape, attend) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        nn.init.normal_(self.embed.weight, std=shape.hidden**-0.5)
        if shape.tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits of the next token at each place."""
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def make(
    device: torch.device, seed: int = 0, *, tied: bool = True, attend: Attention = fused
) -> Llama:
    """Make a model whose weights depend on the seed only: they are drawn on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Llama(Shape(tied=tied), attend).to(device)
