"""The fixtures that tell a test which GPUs it has; under ``local:cpu`` the CPU stands for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.gpu
def test_product_on_the_card(torch: Any, gpu_device: Any) -> None:
    matrix = torch.arange(6.0, device=gpu_device).reshape(2, 3)
    product = matrix @ matrix.T
    assert product.device.type == gpu_device.type
    assert product.tolist() == [[5.0, 14.0], [14.0, 50.0]]


@pytest.mark.gpu(2)
def test_copy_between_cards(torch: Any, gpu_devices: list[Any]) -> None:
    first, second = gpu_devices
    there = torch.arange(1000, device=first).to(second)
    assert torch.equal(there.cpu(), torch.arange(1000))


@pytest.mark.gpu
def test_card_is_on_record(gpu: Any, record_property: Callable[[str, object], None]) -> None:
    record_property("card", gpu.type)
    assert gpu.count == len(gpu.devices) == 1
