"""Compiled code against eager code, with each fault planted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from pytest_remotegpu.diagnostics import Verdict, compile_parity


def some(size: int = 3, seed: int = 0) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(size, 8, generator=numbers).requires_grad_()


def judged(function: Any, *inputs: Any, **more: Any) -> Verdict:
    return compile_parity(function, *inputs, **{"backend": "aot_eager", **more})


@pytest.mark.parametrize("seed", range(10))
def test_a_clean_model_passes(seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    verdict = judged(model, some(seed=seed), calls=[(some(seed=seed + 1),)])
    assert verdict.findings == ()
    assert verdict.value("graphs compiled") == 1
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_graph_breaks_have_their_place() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return y.cos() if y.detach().sum() > 0 else y.tan()

    verdict = judged(broken, some())
    assert verdict.codes == ("graph-break",)
    assert verdict.value("graph breaks") == 1
    assert "test_compiling.py:" in verdict.findings[0].where[0]


@pytest.mark.parametrize("own", [True, False], ids=["own code in the loop", "torch's"])
def test_a_break_in_a_loop_is_one(own: bool) -> None:
    """There torch gives the loop's frame up, compiles what it calls, and tells of no break."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).tanh()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block() if own else nn.Linear(8, 8) for _ in range(2)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
                if x.detach().sum() > 1e9:
                    x = x + 1
            return x

    verdict = judged(Model(), some())
    assert "graph-break" in verdict.codes
    assert "test_compiling.py:" in verdict.findings[-1].where[0]


def test_another_shape_compiles_anew_with_a_reason() -> None:
    verdict = judged(lambda x: x.sin() * 2, some(3), calls=[(some(3),), (some(5),)])
    assert verdict.codes == ("recompiled",)
    (reason,) = verdict.findings[0].where
    assert reason.startswith("call 2: ")
    assert "expected 3, actual 5" in reason


def test_another_number_compiles_anew_with_a_reason() -> None:
    verdict = judged(lambda x, n: x.sin() * n, some(), 2, calls=[(some(), 3)])
    assert verdict.codes == ("recompiled",)
    assert "2" in verdict.findings[0].where[0]


def test_values_and_gradients_that_differ() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * (1.01 if torch.compiler.is_compiling() else 1.0)

    verdict = judged(other, some())
    assert verdict.codes == ("compiled-values-differ", "compiled-gradients-differ")
    assert "by up to 0.01 of" in verdict.findings[0].what


def test_nan_is_compared_too() -> None:
    def other(x: torch.Tensor, more: float) -> torch.Tensor:
        odd = torch.cat([x.sin(), torch.full((1, 8), float("nan"))])
        return odd + more if torch.compiler.is_compiling() else odd

    assert judged(other, some().detach(), 0.0).passed
    assert judged(other, some().detach(), 0.1).codes == ("compiled-values-differ",)
    assert judged(other, some().detach(), float("inf")).codes == ("compiled-values-differ",)


def test_inputs_that_are_written_to_are_left_alone() -> None:
    inputs = some().detach()
    before = inputs.clone()
    assert judged(lambda x: x.mul_(2) + 1, inputs).passed
    assert torch.equal(inputs, before)


def test_gradients_alone() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        half = x.sin()
        return half + (x.cos().detach() if torch.compiler.is_compiling() else x.cos())

    verdict = judged(other, some())
    assert verdict.codes == ("compiled-gradients-differ",)
    assert verdict.findings[0].where == ("gradient of inputs[0]",)


def test_a_function_that_is_never_compiled() -> None:
    verdict = judged(lambda x: x, some())
    assert verdict.codes == ("nothing-compiled",)


def test_errors_pass_through() -> None:
    with pytest.raises(ValueError, match="without a tensor"):
        judged(lambda x: None, some())  # noqa: ARG005
