"""Complex numbers: what is wrong in an imaginary part alone is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from diagnostics.models import classify
from pytest_remotegpu.diagnostics import (
    SMALL_BATCH,
    accumulation_matches,
    compile_parity,
    kernels_parity,
    losses_agree,
    overfit,
)

NUMBERS = torch.Generator().manual_seed(0)
PARTS = [(torch.randn(n, 8, generator=NUMBERS), torch.arange(n) % 4) for n in (5, 2, 3)]


class Waves(nn.Module):
    """A classifier whose first layer has complex weights, imaginary ones only if so wished."""

    def __init__(self, *, real: bool = True) -> None:
        super().__init__()
        start = torch.randn(8, 16) if real else torch.zeros(8, 16)
        self.weight = nn.Parameter(torch.complex(start, torch.randn(8, 16)) / 3)
        self.out = nn.Linear(16, 4)
        self.real = real

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give scores of real numbers."""
        mixed = x.to(self.weight.dtype) @ self.weight
        scores: torch.Tensor = self.out(mixed.abs() if self.real else mixed.imag.tanh())
        return scores


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_a_model_with_complex_weights_learns(seed: int, *, real: bool) -> None:
    verdict = overfit(
        lambda: Waves(real=real),
        PARTS[2],
        loss=classify,
        make_optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-1),
        seed=seed,
        **SMALL_BATCH,
    )
    assert verdict.passed, str(verdict)


def weighted(model: nn.Module, parts: Sequence[Any]) -> None:
    for part in parts:
        (classify(model, part) * len(part[1]) / 10).backward()


def conjugated(model: nn.Module, parts: Sequence[Any]) -> None:
    weighted(model, parts)
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = parameter.grad.conj()


@pytest.mark.parametrize(
    ("accumulate", "codes"), [(weighted, []), (conjugated, ["gradient-differs"])]
)
def test_the_imaginary_part_of_a_gradient_is_compared(
    accumulate: Callable[..., None], codes: list[str]
) -> None:
    verdict = accumulation_matches(
        Waves, PARTS, accumulate=accumulate, loss=classify, count=lambda part: len(part[1])
    )
    assert [finding.code for finding in verdict.findings] == codes


def test_the_imaginary_part_of_a_result_is_compared() -> None:
    right = torch.complex(torch.ones(3), torch.ones(3))
    assert losses_agree(lambda: right * 2, lambda: right + right).passed
    verdict = losses_agree(lambda: right * 2, (right + right).conj)
    assert [finding.code for finding in verdict.findings] == ["losses-differ"]


def test_the_imaginary_part_of_compiled_code_is_compared() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x * (1 if torch.compiler.is_compiling() else 1 + 1e-9) * 2
        return y.conj().resolve_conj() if torch.compiler.is_compiling() else y

    verdict = compile_parity(function, torch.complex(torch.ones(3), torch.ones(3)), backend="eager")
    assert "compiled-values-differ" in [finding.code for finding in verdict.findings]


def test_the_imaginary_part_of_a_patched_kernel_is_compared() -> None:
    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, weight: torch.Tensor) -> torch.Tensor:
            return weight.clone()

        @staticmethod
        def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient.conj()

    def patch(model: Any) -> None:
        model.forward = lambda x: model.out(
            (x.to(torch.complex64) @ Turned.apply(model.weight)).abs()
        )

    verdict = kernels_parity(Waves, PARTS[0], loss=classify, patch=patch)
    assert [f.code for f in verdict.findings if f.fails] == ["kernel-gradients-differ"]
