"""Faster code that has to give the same: attention kernels, and ``torch.compile``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from llama import fused, make, written_out
from sentences import batch, lesson
from training import mean_loss

from pytest_remotegpu.diagnostics import attention_parity, compile_parity, losses_agree

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
