"""FSDP2 on one rank and on two: overfitting, dtypes, the same steps as one process, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from llama import make
from sentences import batch, lesson
from sharding import BFLOAT16, FLOAT32, sharded
from torch.distributed.fsdp import MixedPrecisionPolicy
from training import CLIP, make_optimizer, mean_loss, resume, save, scaled_loss, train

from pytest_remotegpu.diagnostics import SMALL_BATCH, fsdp_matches, overfit

ONE = pytest.mark.gpu(count=1, launcher="torchrun")
TWO = pytest.mark.gpu(count=2, launcher="torchrun")
ON_ONE_AND_TWO = pytest.mark.parametrize(
    "ranks", [pytest.param(1, marks=ONE, id="1-rank"), pytest.param(2, marks=TWO, id="2-ranks")]
)


@ON_ONE_AND_TWO
@pytest.mark.usefixtures("rank_group")
def test_overfits_one_sample(
    ranks: int, rank: int, world_size: int, gpu_device: torch.device, artifacts_dir: Path
) -> None:
    assert world_size == ranks
    sample = batch([rank], [32], gpu_device)  # another one on each rank
    verdict = overfit(lambda: sharded(make(gpu_device)), sample, loss=mean_loss)
    if rank == 0:
        verdict.save(artifacts_dir)
    verdict.require()


@ON_ONE_AND_TWO
@pytest.mark.usefixtures("rank_group")
def test_overfits_three_samples(
    ranks: int, rank: int, world_size: int, gpu_device: torch.device, artifacts_dir: Path
) -> None:
    assert world_size == ranks
    three = batch([3 * rank, 3 * rank + 1, 3 * rank + 2], [32, 20, 26], gpu_device)
    verdict = overfit(lambda: sharded(make(gpu_device)), three, loss=mean_loss, **SMALL_BATCH)
    if rank == 0:
        verdict.save(artifacts_dir)
    verdict.require()


@TWO
@pytest.mark.usefixtures("rank_group")
def test_weights_are_spread(gpu_device: torch.device) -> None:
    whole, model = make(gpu_device), sharded(make(gpu_device))
    for one, part in zip(whole.parameters(), model.parameters(), strict=True):
        local: Any = part
        assert local.shape == one.shape
        assert local.to_local().numel() == one.numel() // 2
        assert local.device.type == gpu_device.type


@ON_ONE_AND_TWO
@pytest.mark.parametrize("policy", [FLOAT32, BFLOAT16], ids=["float32", "bfloat16"])
@pytest.mark.usefixtures("rank_group")
def test_trains_as_the_plain_model(
    ranks: int,
    policy: MixedPrecisionPolicy,
    rank: int,
    gpu_device: torch.device,
    artifacts_dir: Path,
) -> None:
    """Gradients, losses, weights and dtypes, over some steps and a state that is loaded again."""
    verdict = fsdp_matches(
        lambda: make(gpu_device),
        lambda step: lesson(step, gpu_device, rank, ranks),
        loss=scaled_loss,
        whole=mean_loss,
        shard=lambda model: sharded(model, policy),
        make_optimizer=make_optimizer,
        clip=CLIP,
    )
    if rank == 0:
        verdict.save(artifacts_dir)
    verdict.require()


@TWO
@pytest.mark.usefixtures("rank_group")
def test_computes_in_bfloat16_and_keeps_float32(rank: int, gpu_device: torch.device) -> None:
    model = sharded(make(gpu_device), BFLOAT16)
    optimizer = make_optimizer(model)
    logits: set[torch.dtype] = set()
    model.register_forward_hook(lambda _, __, output: logits.add(output.dtype))
    losses = train(model, optimizer, (lesson(n, gpu_device, rank, 2) for n in range(12)))
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
    assert logits == {torch.bfloat16}
    parameters = list(model.parameters())
    states = [optimizer.state[parameter] for parameter in parameters]
    moments = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq")]
    kept = {part.dtype for part in (*parameters, *(p.grad for p in parameters), *moments)}
    assert kept == {torch.float32}


@TWO
def test_goes_on_from_a_checkpoint(rank: int, gpu_device: torch.device, shared_path: Path) -> None:
    lessons = [lesson(n, gpu_device, rank, 2) for n in range(8)]
    model = sharded(make(gpu_device))
    optimizer = make_optimizer(model)
    train(model, optimizer, lessons[:4])
    save(shared_path, model, optimizer)
    straight = train(model, optimizer, lessons[4:])

    other = sharded(make(gpu_device, seed=1))
    optimizer = make_optimizer(other)
    resume(shared_path, other, optimizer)
    assert train(other, optimizer, lessons[4:]) == pytest.approx(straight, rel=1e-5)

    alone = make(gpu_device, seed=2)  # not sharded, with the data of both ranks
    optimizer = make_optimizer(alone)
    resume(shared_path, alone, optimizer)
    both = [lesson(n, gpu_device) for n in range(4, 8)]
    assert train(alone, optimizer, both) == pytest.approx(straight, rel=1e-3)
