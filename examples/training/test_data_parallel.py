"""DataParallel: one process, two cards, a thread for each. DDP has long taken its place."""

from __future__ import annotations

import pytest
import torch
from llama import make
from sentences import lesson
from torch import nn
from training import make_optimizer, mean_loss, train

pytestmark = pytest.mark.gpu(count=2)


@pytest.fixture
def cards(gpu_devices: list[torch.device]) -> list[torch.device]:
    """Give two cards; without them there is nothing that this wrapper does."""
    if gpu_devices[0].type != "cuda":
        pytest.skip("DataParallel only hands the batch on where there are no two CUDA cards")
    return gpu_devices


def test_both_cards_work(cards: list[torch.device]) -> None:
    seen: list[tuple[torch.device, int]] = []
    model, part = make(cards[0]), lesson(0, cards[0])
    model.register_forward_pre_hook(lambda _, ids: seen.append((ids[0].device, len(ids[0]))))
    mean_loss(nn.DataParallel(model, device_ids=cards), part).backward()
    assert sorted(seen, key=str) == [(card, 4) for card in cards]

    alone = make(cards[0])
    mean_loss(alone, part).backward()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


def test_loss_falls(cards: list[torch.device]) -> None:
    model = nn.DataParallel(make(cards[0]), device_ids=cards)
    losses = train(model, make_optimizer(model), (lesson(n, cards[0]) for n in range(12)))
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
