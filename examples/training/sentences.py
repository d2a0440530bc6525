"""Data that needs no download: sentences that follow a rule, the same on each machine.

A batch is a pair: token ids, and at each place the token that comes next. Where a sentence has
ended, that is -100, which ``cross_entropy`` leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

IGNORED = -100
VOCABULARY = 1000
WIDTH = 32
CORPUS = 24  # sentences
Batch = tuple[Tensor, Tensor]


def sentence(number: int, length: int) -> list[int]:
    """Give a sentence: each token is the last one, counted on by a step of its own."""
    first, by = 37 * number + 5, 1 + number % 7
    return [(first + by * place) % VOCABULARY for place in range(length)]


def batch(numbers: Sequence[int], lengths: Sequence[int], device: torch.device) -> Batch:
    """Give sentences of so many tokens that have a next one, filled up to :data:`WIDTH`."""
    ids = torch.zeros(len(numbers), WIDTH, dtype=torch.long)
    targets = torch.full_like(ids, IGNORED)
    for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
        tokens = torch.tensor(sentence(number, length + 1))
        ids[row, :length], targets[row, :length] = tokens[:-1], tokens[1:]
    return ids.to(device), targets.to(device)


def count(batch: Batch) -> int:
    """Count the tokens that a batch's loss is the mean over."""
    return int((batch[1] != IGNORED).sum())


def lesson(step: int, device: torch.device, rank: int = 0, ranks: int = 1) -> Batch:
    """Give what a rank learns from in a step: its part of eight sentences of different lengths."""
    numbers = [(8 * step + place) % CORPUS for place in range(8)][rank::ranks]
    return batch(numbers, [8 + 5 * number % 24 for number in numbers], device)
