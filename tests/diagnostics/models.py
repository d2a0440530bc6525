"""Small models for the checks: a few layers, and a tiny language model built offline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- as torch's users write it

__all__ = ["PAIR", "TinyLlama", "classify", "mlp", "sentence", "set_seed"]


def mlp(width: int = 16, classes: int = 4) -> nn.Module:
    """Make a classifier of eight numbers."""
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, classes))


def classify(model: nn.Module, batch: Any) -> torch.Tensor:
    """Give the loss of a pair of inputs and classes."""
    inputs, targets = batch
    loss: torch.Tensor = F.cross_entropy(model(inputs), targets)
    return loss


PAIR = torch.linspace(-1, 1, 8).reshape(1, 8), torch.tensor([2])


class Block(nn.Module):
    """Attention with rotary positions and a gated layer, as Llama has them."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, 2 * hidden, bias=False)
        self.up = nn.Linear(hidden, 2 * hidden, bias=False)
        self.down = nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add attention and a gated layer to ``x`` of shape (batch, length, hidden)."""
        rows, length, hidden = x.shape
        parts = self.qkv(self.before(x)).reshape(rows, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, hidden))
        y = self.between(x)
        added: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return added


def turn(x: torch.Tensor) -> torch.Tensor:
    """Turn pairs of numbers by their place, shape (batch, heads, length, even)."""
    half = x.shape[-1] // 2
    rates = 10000 ** -(torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * rates
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class TinyLlama(nn.Module):
    """A language model of 0.2 M parameters; given labels, it gives its loss."""

    def __init__(self, vocab: int = 1000, hidden: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList([Block(hidden, 4) for _ in range(layers)])
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Give logits and the mean loss of the next token, both of shape (batch, length)."""
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"logits": logits, "loss": loss}


def sentence(rows: int = 1, length: int = 16, seed: int = 0) -> dict[str, torch.Tensor]:
    """Give some token ids as a batch for :class:`TinyLlama`."""
    ids = torch.randint(0, 1000, (rows, length), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "labels": ids.clone()}


def set_seed(make: Callable[[], nn.Module], seed: int) -> Callable[[], nn.Module]:
    """Make a factory whose models have the weights of a seed."""

    def made() -> nn.Module:
        torch.manual_seed(seed)
        return make()

    return made
