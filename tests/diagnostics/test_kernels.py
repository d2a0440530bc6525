"""A model with other kernels beside the plain one, with each fault planted in a patch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- as torch's users write it

from diagnostics.models import TinyLlama, classify, mlp, sentence
from pytest_remotegpu.diagnostics import Verdict, kernels_parity


class Fast(torch.autograd.Function):
    """RMSNorm's formula and its gradient, written out as a fused kernel has them."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Divide each row by its root mean square; sums are kept in float32."""
        wide = x.float()
        rate = (wide.square().mean(-1, keepdim=True) + torch.finfo(wide.dtype).eps).rsqrt()
        ctx.save_for_backward(wide, weight, rate)
        return (wide * rate * weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Give the gradients of both."""
        x, weight, rate = ctx.saved_tensors
        grad = given[0].float()
        even = x * rate
        inner = grad * weight
        back = rate * (inner - even * (inner * even).mean(-1, keepdim=True))
        return back.to(given[0].dtype), (grad * even).flatten(0, -2).sum(0).to(weight.dtype)


def fast(self: Any, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = Fast.apply(x, self.weight)
    return result


def patch(model: nn.Module, forward: Any = fast) -> None:
    for module in model.modules():
        if isinstance(module, nn.RMSNorm):
            module.forward = forward.__get__(module)


def llama() -> nn.Module:
    return TinyLlama(vocab=1000, hidden=32)


def judged(change: Any = patch, make: Any = llama, **more: Any) -> Verdict:
    return kernels_parity(make, sentence(2, 8), patch=change, **more)


@pytest.mark.parametrize("seed", range(10))
def test_a_right_kernel_passes(seed: int) -> None:
    verdict = judged(seed=seed, expect=["*norm", "RMSNorm"])
    assert verdict.findings == ()
    assert verdict.value("modules patched") == 5
    assert "layers.0.before" in str(verdict.value("modules"))
    assert verdict.value("patched with") == "fast"
    low = judged(seed=seed, make=lambda: llama().bfloat16())
    assert low.findings == ()
    assert low.value("computed in") == "bfloat16"


def test_a_patch_may_return_another_model() -> None:
    def other(_: nn.Module) -> nn.Module:
        model = llama()
        patch(model)
        return model

    assert judged(other).findings == ()


def test_wrong_values_are_named_with_their_place() -> None:
    def other(self: Any, x: torch.Tensor) -> torch.Tensor:
        return fast(self, x * 1.0) * 1.01

    verdict = judged(lambda model: patch(model, other))
    assert verdict.codes == ("kernels-differ", "kernel-gradients-differ")
    assert "gives something else is layers.0.before" in verdict.findings[0].what


def test_wrong_gradients_alone() -> None:
    def other(self: Any, x: torch.Tensor) -> torch.Tensor:
        return fast(self, x) + (fast(self, x) - fast(self, x).detach())

    verdict = judged(lambda model: patch(model, other))
    assert verdict.codes == ("kernel-gradients-differ",)
    assert "layers.0.qkv.weight" in verdict.findings[0].where


def test_nan() -> None:
    verdict = judged(lambda model: patch(model, lambda self, x: fast(self, x) / 0))
    assert verdict.codes == ("not-finite",)


def test_nothing_is_patched() -> None:
    verdict = judged(lambda _: None, expect=["*norm"])
    assert verdict.codes == ("nothing-patched", "not-patched")


def test_some_are_not_patched() -> None:
    def some(model: nn.Module) -> None:
        patch(model.get_submodule("layers"))

    verdict = judged(some, expect=["RMSNorm", "*.mlp"])
    assert verdict.codes == ("not-patched",)
    assert verdict.findings[0].where == ("norm", "*.mlp")


def test_a_kernel_that_falls_back() -> None:
    def slow(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def one(model: nn.Module) -> None:
        patch(model)
        patch(model.get_submodule("norm"), slow)

    verdict = judged(one)
    assert verdict.codes == ("kernel-fallback",)
    assert verdict.findings[0].where == ("norm",)
    assert judged(one, same_operations=True).passed


def test_a_patch_of_the_whole_process_is_seen_and_put_back() -> None:
    before = nn.RMSNorm.forward, F.cross_entropy

    def everywhere(_: nn.Module) -> None:
        nn.RMSNorm.forward = fast
        functional: Any = F
        functional.cross_entropy = fast_loss

    verdict = judged(everywhere)
    assert verdict.passed
    assert verdict.codes == ("patched-globally",)
    assert "torch.nn.functional.cross_entropy" in verdict.findings[0].where
    assert (nn.RMSNorm.forward, F.cross_entropy) == before


def fast_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (logits.logsumexp(-1) - logits.gather(-1, targets[:, None])[:, 0]).mean()


def test_both_sides_have_the_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.RMSNorm, "forward", fast)
    assert judged().codes == ("nothing-patched",)


def test_a_part_of_the_plain_side_has_the_patch() -> None:
    def partly() -> nn.Module:
        model = llama()
        model.norm.forward = fast.__get__(model.norm)
        return model

    verdict = judged(make=partly)
    assert verdict.codes[0] == "patched-already"
    assert not verdict.passed


def test_what_is_replaced_is_not_what_runs() -> None:
    loss_before: Any = F.mse_loss

    def unused(_: nn.Module) -> None:
        functional: Any = F
        functional.mse_loss = fast_loss

    verdict = judged(unused)
    assert verdict.codes[0] == "same-code"
    assert not verdict.passed
    assert loss_before is F.mse_loss


def test_a_function_that_nobody_looks_up() -> None:
    def unused(_: nn.Module) -> None:
        F.silu = F.mish

    assert judged(unused, make=mlp_that_sums).codes == ("same-code", "patched-globally")


def mlp_that_sums() -> nn.Module:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Embedding(1000, 4)

        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            total: torch.Tensor = self.inner(input_ids).square().sum() + labels.sum() * 0
            return total

    return Loss()


def test_a_patched_module_that_is_not_called() -> None:
    def make() -> nn.Module:
        model = llama()
        model.register_module("spare", nn.RMSNorm(32))
        return model

    verdict = judged(make=make)
    assert verdict.passed
    assert verdict.codes == ("patched-not-run",)
    assert verdict.findings[0].where == ("spare",)


def test_other_parameters() -> None:
    verdict = kernels_parity(
        mlp,
        (torch.ones(1, 8), torch.tensor([1])),
        loss=classify,
        patch=lambda model: model.register_parameter("more", nn.Parameter(torch.ones(1))),
    )
    assert verdict.codes == ("other-parameters",)
    assert verdict.findings[0].where == ("more",)


def test_what_a_patch_raises_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        judged(lambda _: 1 / 0)


LIGER = """
from types import MethodType

def fast(self, x):
    raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")

def _apply_liger_kernel_to_instance(model, **more):
    if getattr(getattr(model, "config", None), "model_type", None) == "llama":
        for module in model.modules():
            if type(module).__name__ == "RMSNorm":
                module.forward = MethodType(fast, module)
"""
"""Stands in for Liger where it can't run: takes models by their config, and wants a card."""


def test_liger_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    verdict = judged(None)
    assert not verdict.passed
    assert verdict.codes == ("kernels-unavailable",)
    assert "pip install liger-kernel" in verdict.findings[0].next_step


def test_the_way_to_liger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "liger_kernel"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "transformers.py").write_text(LIGER)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [n for n in sys.modules if n.startswith("liger_kernel")]:
        monkeypatch.delitem(sys.modules, name)

    def make() -> nn.Module:
        model = llama()
        model.config = type("Config", (), {"model_type": "llama"})
        return model

    assert judged(None).codes == ("nothing-patched",)
    verdict = judged(None, make=make)
    assert verdict.codes == ("kernels-unavailable",)
    assert "Pointer argument cannot be accessed" in verdict.findings[0].what
    for name in [n for n in sys.modules if n.startswith("liger_kernel")]:
        monkeypatch.delitem(sys.modules, name)
