"""Two ranks with a card each: DDP and FSDP2 do what one process does with all their data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from llama import Llama, make
from sentences import count, lesson
from sharding import sharded
from torch import distributed, nn
from training import (
    exchange,
    in_ranks,
    make_optimizer,
    mean_loss,
    resume,
    save,
    scaled_loss,
    train,
)

from pytest_remotegpu.diagnostics import gradients_synchronised, loss_scale

pytestmark = [
    pytest.mark.gpu(count=2, launcher="torchrun"),
    pytest.mark.usefixtures("rank_group"),
]
TOGETHER = pytest.mark.parametrize("together", [in_ranks, sharded], ids=["ddp", "fsdp"])
Together = Callable[[Llama], nn.Module]


@TOGETHER
def test_loss_falls_as_in_one_process(
    together: Together, rank: int, gpu_device: torch.device
) -> None:
    model = together(make(gpu_device))
    parts = (lesson(n, gpu_device, rank, 2) for n in range(12))
    losses = train(model, make_optimizer(model), parts)
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])

    everyones: list[list[float]] = [[], []]
    distributed.all_gather_object(everyones, losses)
    assert everyones[0] == pytest.approx(everyones[1], rel=1e-6)

    alone = make(gpu_device)
    whole = (lesson(n, gpu_device) for n in range(12))
    assert losses == pytest.approx(train(alone, make_optimizer(alone), whole), rel=1e-3)


def test_ddp_goes_on_from_a_checkpoint(
    rank: int, gpu_device: torch.device, shared_path: Path
) -> None:
    lessons = [lesson(n, gpu_device, rank, 2) for n in range(8)]
    model = in_ranks(make(gpu_device))
    optimizer = make_optimizer(model)
    train(model, optimizer, lessons[:4])
    save(shared_path, model, optimizer)
    straight = train(model, optimizer, lessons[4:])

    other = in_ranks(make(gpu_device, seed=1))
    optimizer = make_optimizer(other)
    resume(shared_path, other, optimizer)
    assert train(other, optimizer, lessons[4:]) == pytest.approx(straight, rel=1e-5)


def test_loss_is_scaled(rank: int, gpu_device: torch.device) -> None:
    part = lesson(0, gpu_device, rank, 2)
    model = in_ranks(make(gpu_device))
    loss_scale(model, part, loss=scaled_loss, whole=mean_loss, count=count).require()


@TOGETHER
def test_gradients_are_synchronised(
    together: Together, rank: int, gpu_device: torch.device
) -> None:
    gradients_synchronised(
        together(make(gpu_device)),
        lesson(0, gpu_device, rank, 2),
        loss=scaled_loss,
        whole=mean_loss,
        reference=make(gpu_device),
    ).require()


def test_own_exchange_synchronises(rank: int, gpu_device: torch.device) -> None:
    def backward(model: nn.Module, part: tuple[torch.Tensor, torch.Tensor]) -> None:
        scaled_loss(model, part).backward()
        exchange(model)

    gradients_synchronised(
        make(gpu_device),
        lesson(0, gpu_device, rank, 2),
        loss=scaled_loss,
        whole=mean_loss,
        backward=backward,
    ).require()
