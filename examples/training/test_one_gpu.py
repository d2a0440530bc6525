"""One process with one card: overfitting, the loop, a checkpoint, accumulation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from llama import make
from sentences import batch, count, lesson
from training import accumulate, make_optimizer, mean_loss, resume, save, train

from pytest_remotegpu.diagnostics import SMALL_BATCH, accumulation_matches, overfit

pytestmark = pytest.mark.gpu


def test_model_is_small(gpu_device: torch.device) -> None:
    sizes = [
        sum(part.numel() for part in make(gpu_device, tied=tied).parameters())
        for tied in (True, False)
    ]
    assert sizes == [138_048, 202_048]


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_overfits_one_sample(gpu_device: torch.device, artifacts_dir: Path, *, tied: bool) -> None:
    sample = batch([0], [32], gpu_device)
    verdict = overfit(lambda: make(gpu_device, tied=tied), sample, loss=mean_loss)
    verdict.save(artifacts_dir)
    verdict.require()


def test_overfits_three_samples(gpu_device: torch.device, artifacts_dir: Path) -> None:
    three = batch([0, 1, 2], [32, 20, 26], gpu_device)
    verdict = overfit(lambda: make(gpu_device), three, loss=mean_loss, **SMALL_BATCH)
    verdict.save(artifacts_dir)
    verdict.require()


def test_loss_falls(gpu_device: torch.device) -> None:
    model = make(gpu_device)
    losses = train(model, make_optimizer(model), (lesson(n, gpu_device) for n in range(12)))
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])


def test_goes_on_from_a_checkpoint(gpu_device: torch.device, tmp_path: Path) -> None:
    lessons = [lesson(n, gpu_device) for n in range(8)]
    model = make(gpu_device)
    optimizer = make_optimizer(model)
    train(model, optimizer, lessons[:4])
    save(tmp_path, model, optimizer)
    straight = train(model, optimizer, lessons[4:])

    other = make(gpu_device, seed=1)
    optimizer = make_optimizer(other)
    resume(tmp_path, other, optimizer)
    assert train(other, optimizer, lessons[4:]) == pytest.approx(straight, rel=1e-5)


def test_accumulated_gradients_are_those_of_one_batch(gpu_device: torch.device) -> None:
    micro_batches = [
        batch(numbers, [8 + 3 * number for number in numbers], gpu_device)
        for numbers in ([0, 1], [2, 3, 4], [5])
    ]
    accumulation_matches(
        lambda: make(gpu_device), micro_batches, accumulate=accumulate, loss=mean_loss, count=count
    ).require()
