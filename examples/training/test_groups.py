"""Process groups: each test meets those that it asks for, and none that another has left."""

from __future__ import annotations

import pytest
import torch
from groups import group
from torch import distributed

pytestmark = pytest.mark.gpu(count=2, launcher="torchrun")


def total(device: torch.device) -> float:
    """Sum a one of each rank."""
    ones = torch.ones(1, device=device)
    distributed.all_reduce(ones)
    return ones.item()


@pytest.mark.usefixtures("rank_group")
def test_group_of_the_fixture(gpu_device: torch.device) -> None:
    assert total(gpu_device) == 2


@pytest.mark.parametrize("turn", [1, 2])
def test_own_group_is_gone_after_its_block(turn: int, gpu_device: torch.device) -> None:
    assert not distributed.is_initialized(), f"turn {turn} meets a group"
    with group(gpu_device):
        assert total(gpu_device) == 2
    assert not distributed.is_initialized()


def test_own_group_is_gone_after_an_error(gpu_device: torch.device) -> None:
    with pytest.raises(ZeroDivisionError), group(gpu_device):
        assert total(gpu_device) / 0
    assert not distributed.is_initialized()
