"""The code under test: the loss, a step, loops for one process and for several, checkpoints.

Each function does the same in one process and in each of several ranks that train a model together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from sentences import IGNORED, Batch, count
from torch import Tensor, distributed, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

CLIP = 1.0


def ranks() -> int:
    """Count the processes that train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def mean_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Give the mean loss over the tokens of a batch, as one process alone has it."""
    ids, targets = batch
    logits = model(ids).float()  # a sum over the vocabulary is no work for bfloat16
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def share(batch: Batch) -> Tensor:
    """Give what a batch's tokens are of all ranks' tokens, times the number of ranks.

    DDP and FSDP take the mean of the ranks' gradients. With this factor on each rank's loss that is
    the mean over all tokens, also where one rank has more of them than another.
    """
    total = torch.tensor(float(count(batch)), device=batch[0].device)
    if ranks() > 1:
        distributed.all_reduce(total)
    return count(batch) * ranks() / total


def scaled_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Give the loss that a rank calls ``backward()`` on."""
    return mean_loss(model, batch) * share(batch)


def accumulate(model: nn.Module, micro_batches: Sequence[Batch]) -> None:
    """Leave the gradients of the mean loss over the tokens of all micro-batches in a model."""
    total = sum(map(count, micro_batches))
    for batch in micro_batches:
        (mean_loss(model, batch) * count(batch) / total).backward()


def exchange(model: nn.Module) -> None:
    """Take the mean of the ranks' gradients, as DDP does it with more skill."""
    for parameter in model.parameters():
        distributed.all_reduce(parameter.grad)
        parameter.grad /= ranks()


def in_ranks(model: nn.Module) -> DistributedDataParallel:
    """Wrap a model so that each rank has all of it, and ``backward()`` exchanges gradients."""
    return DistributedDataParallel(model)


def make_optimizer(model: nn.Module) -> Optimizer:
    """Make the optimizer that all tests train with."""
    return AdamW(model.parameters(), lr=3e-3)


def step(model: nn.Module, optimizer: Optimizer, batch: Batch) -> Tensor:
    """Make one step, and give its loss: the mean over the tokens of all ranks."""
    optimizer.zero_grad()
    loss = scaled_loss(model, batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    return mean_of_ranks(loss.detach())


def mean_of_ranks(value: Tensor) -> Tensor:
    """Give the mean of the ranks' numbers to each of them."""
    if ranks() > 1:
        distributed.all_reduce(value)
    return value / ranks()


def train(model: nn.Module, optimizer: Optimizer, batches: Iterable[Batch]) -> list[float]:
    """Make a step with each batch, and give the losses."""
    return [float(step(model, optimizer, batch)) for batch in batches]


def save(folder: Path, model: nn.Module, optimizer: Optimizer) -> None:
    """Write a checkpoint. Ranks write one together, each what it holds, into one folder."""
    weights, moments = get_state_dict(model, optimizer)
    parts = {"model": weights, "optimizer": moments}
    checkpoint.save(parts, checkpoint_id=folder, no_dist=not distributed.is_initialized())


def resume(folder: Path, model: nn.Module, optimizer: Optimizer) -> None:
    """Read a checkpoint into a model and an optimizer; it may be of another number of ranks."""
    weights, moments = get_state_dict(model, optimizer)
    parts = {"model": weights, "optimizer": moments}
    checkpoint.load(parts, checkpoint_id=folder, no_dist=not distributed.is_initialized())
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
