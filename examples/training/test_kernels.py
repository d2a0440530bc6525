"""Faster code that has to give the same: attention kernels, and ``torch.compile``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from llama import Llama, fused, make, written_out
from sentences import batch, lesson
from training import mean_loss

from pytest_remotegpu.diagnostics import (
    attention_parity,
    compile_parity,
    kernels_parity,
    losses_agree,
)

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_attention_of_the_model(
    dtype: torch.dtype, gpu_device: torch.device, artifacts_dir: Path
) -> None:
    model = make(gpu_device).to(dtype)
    ids, _ = batch([0, 1], [32, 32], gpu_device)
    with torch.no_grad():
        query, key, value = model.layers[0].parts(model.embed(ids))
    paths = {"fused": fused, "written out": written_out}
    verdict = attention_parity(query, key, value, causal=True, paths=paths)
    (artifacts_dir / "kernels.txt").write_text(str(verdict), encoding="utf-8")
    verdict.require()


def test_loss_is_that_of_attention_written_out(gpu_device: torch.device) -> None:
    lessons = lesson(0, gpu_device)
    one, other = make(gpu_device), make(gpu_device, attend=written_out)
    losses_agree(lambda: mean_loss(one, lessons), lambda: mean_loss(other, lessons)).require()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_model(backend: str, gpu_device: torch.device) -> None:
    if backend == "inductor" and gpu_device.type != "cuda":
        pytest.skip("inductor is tried on CUDA cards: on the CPU it compiles C++ for a minute")
    if backend == "inductor" and not (shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("inductor needs a C compiler, gcc or clang, where this test runs")
    first, second = (batch([n, n + 1], [32, 32], gpu_device)[0] for n in (0, 2))
    compile_parity(make(gpu_device), first, calls=[(second,)], backend=backend).require()


def with_liger(model: Llama) -> None:
    """Have each norm of a model computed by Liger's kernel."""
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction  # noqa: PLC0415 -- not everywhere

    for module in model.modules():
        if isinstance(module, torch.nn.RMSNorm):

            def forward(x: torch.Tensor, own: torch.nn.RMSNorm = module) -> torch.Tensor:
                smallest = torch.finfo(torch.float32).eps if own.eps is None else own.eps
                return LigerRMSNormFunction.apply(x, own.weight, smallest)

            module.forward = forward


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_liger_kernels(dtype: torch.dtype, gpu_device: torch.device) -> None:
    pytest.importorskip("liger_kernel", reason="needs: pip install liger-kernel")
    if gpu_device.type != "cuda":
        pytest.skip("Liger's kernels run on cards only")
    kernels_parity(
        lambda: make(gpu_device).to(dtype),
        lesson(0, gpu_device),
        loss=mean_loss,
        patch=with_liger,
        expect=["norm", "layers.*.before", "layers.*.between"],
    ).require()
