"""What a check leaves as it was found: random numbers, torch's switches, the user's own model."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch

from pytest_remotegpu.diagnostics.asfound import as_found, model_as_found, seed_all


def drawn() -> list[float]:
    """Draw a number from each source."""
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002, S311


def switches() -> list[object]:
    """Read each switch that may be moved."""
    cudnn = torch.backends.cudnn
    return [
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
        (cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
    ]


def move_all() -> None:
    """Move each switch."""
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True


def test_random_numbers_go_on_as_if_nothing_had_been_drawn() -> None:
    seed_all(3)
    alone = [drawn(), drawn()]
    seed_all(3)
    between = [drawn()]
    with as_found(seed=7):
        seeded = drawn()
    between.append(drawn())
    assert between == alone
    with as_found(seed=7):
        assert drawn() == seeded


def fail_inside() -> None:
    """Do what a user's own code may do inside a check."""
    with as_found():
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        move_all()
        raise ValueError("of the user's")


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_switches_are_put_back_and_gradients_are_on_inside(
    mode: Callable[[], AbstractContextManager[None]],
) -> None:
    with mode():
        before = switches()
        with pytest.raises(ValueError, match="of the user's"):
            fail_inside()
        assert switches() == before


def test_a_model_is_put_back() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout())
    model[2].eval()
    model[0].bias.requires_grad_(False)
    model(torch.ones(3, 2)).sum().backward()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradient = model[0].weight.grad
    with model_as_found(model):
        assert model[0].weight.grad is None
        model.eval()
        model.requires_grad_(True)
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.zero_()
        model[0].weight.grad = torch.ones(2, 2)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model[0].weight.grad is gradient
    assert [module.training for module in model.modules()] == [True, True, True, False]
    assert [p.requires_grad for p in model.parameters()] == [True, False, True, True]
