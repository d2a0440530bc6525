"""Layers in a plain list, and what only looks like that; parameters without a single number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from diagnostics.models import PAIR, classify
from pytest_remotegpu.diagnostics import overfit


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


class Stack(nn.Module):
    """A layer in a container of the class's own choice, and one that is registered."""

    def __init__(self, container: Any, *, silent: bool = False) -> None:
        super().__init__()
        self.layers = container(nn.Linear(8, 16))
        self.out = nn.Linear(16, 4)
        self.silent = silent

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go through the first layer that there is; ``silent`` as a teacher is asked."""
        layers = self.layers.values() if hasattr(self.layers, "values") else self.layers
        with torch.set_grad_enabled(not self.silent):
            y = next(iter(layers))(x).tanh()
        scores: torch.Tensor = self.out(y)
        return scores


@pytest.mark.parametrize(
    ("container", "path"),
    [
        (lambda layer: [layer], "layers.0."),
        (lambda layer: (layer,), "layers.0."),
        (lambda layer: {"first": layer}, "layers.first."),
    ],
)
def test_layers_in_a_plain_container_are_named(container: Any, path: str) -> None:
    verdict = overfit(lambda: Stack(container), PAIR, loss=classify, make_optimizer=adam)
    assert verdict.codes == ("unregistered-parameters",)
    assert {*verdict.findings[0].where} == {f"{path}weight", f"{path}bias"}
    assert "nn.ModuleList" in verdict.findings[0].next_step


def list_of_one(layer: nn.Module) -> nn.Module:
    return nn.ModuleList([layer])


@pytest.mark.parametrize("seed", range(10))
def test_registered_hidden_teachers_and_those_in_the_optimizer_pass(seed: int) -> None:
    def both(model: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam([*model.parameters(), *model.layers[0].parameters()], lr=1e-2)

    more: dict[str, Any] = {"loss": classify, "seed": seed}
    assert overfit(lambda: Stack(list_of_one), PAIR, make_optimizer=adam, **more).passed
    teacher = overfit(
        lambda: Stack(lambda layer: [layer], silent=True), PAIR, make_optimizer=adam, **more
    )
    assert teacher.passed, str(teacher)
    assert overfit(lambda: Stack(lambda layer: [layer]), PAIR, make_optimizer=both, **more).passed


class Empty(nn.Module):
    """A classifier with a parameter of no rows, such as a table of no extra tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 4)
        self.extra = nn.Parameter(torch.empty(0, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give scores; the empty parameter takes part."""
        scores: torch.Tensor = self.out(x) + self.extra.sum()
        return scores


@pytest.mark.parametrize("seed", range(10))
def test_a_parameter_without_numbers_has_nothing_to_learn(seed: int) -> None:
    verdict = overfit(
        Empty,
        PAIR,
        loss=classify,
        make_optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-1),
        seed=seed,
    )
    assert verdict.passed, str(verdict)
