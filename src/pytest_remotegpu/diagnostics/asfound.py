"""Leaving things as they were found: random numbers, switches of torch, a model's own state.

Every check runs inside :func:`as_found`, and gives back a model of the user's through
:func:`model_as_found`. Knows no check and no verdict.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["as_found", "model_as_found", "seed_all", "without_dropout"]


def seed_all(seed: int) -> None:
    """Seed the random numbers of Python, of torch on each device, and of numpy where it is loaded.

    :param seed: from 0 to 2**32 - 1, as numpy has it.
    """
    import torch  # noqa: PLC0415 -- late, as everywhere here

    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)


@contextmanager
def as_found(seed: int | None = None) -> Iterator[None]:
    """Put back, whatever happens inside, what a process has only one of.

    That is: the state of the random numbers of Python, numpy (where loaded) and torch on the CPU
    and on each CUDA device; gradient and anomaly mode; the default dtype and device; whether
    algorithms have to be deterministic, cuDNN's and matmul's switches. Inside, gradients are
    enabled.

    :param seed: to begin with; ``None`` goes on with the numbers that come next.
    """
    import torch  # noqa: PLC0415 -- late

    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        if (numpy := sys.modules.get("numpy")) is not None:
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        stack.callback(torch.set_rng_state, torch.get_rng_state())
        if torch.cuda.is_initialized():
            stack.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        elif torch.cuda.is_available():  # cards that are first used inside begin anew afterwards
            stack.callback(torch.cuda.manual_seed_all, torch.initial_seed())
        for put_back in _switches():
            stack.callback(put_back)
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        if seed is not None:
            seed_all(seed)
        yield


def _switches() -> list[Callable[[], Any]]:
    """Give what puts each of torch's switches back to where it is now."""
    import torch  # noqa: PLC0415 -- late

    dtype = torch.get_default_dtype()
    grad = torch.is_grad_enabled()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    strict = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    precision = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    flags = {name: getattr(cudnn, name) for name in ("enabled", "benchmark", "deterministic")}

    device = torch.get_default_device()

    def put_back_device() -> None:
        if torch.get_default_device() != device:
            torch.set_default_device(device)

    def put_back_cudnn() -> None:
        for name, value in flags.items():
            setattr(cudnn, name, value)

    return [
        lambda: torch.set_default_dtype(dtype),
        lambda: torch.set_grad_enabled(grad),
        lambda: torch.autograd.set_detect_anomaly(*anomaly),
        lambda: torch.use_deterministic_algorithms(strict, warn_only=warn),
        lambda: torch.set_float32_matmul_precision(precision),
        put_back_cudnn,
        put_back_device,
    ]


@contextmanager
def model_as_found(model: torch.nn.Module) -> Iterator[None]:
    """Put back what a model is made of, whatever happens inside.

    That is: each parameter's and buffer's values (by copies on their device), which parameters
    require gradients, the gradients (none inside at first), and which modules are in training mode.

    :param model: any module; a sharded one is put back shard by shard, on each rank.
    """
    import torch  # noqa: PLC0415 -- late

    tensors = [*model.parameters(), *model.buffers()]
    copies = [tensor.detach().clone() for tensor in tensors]
    wanting = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    for parameter in model.parameters():
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)
        for parameter, wants in wanting:
            parameter.requires_grad_(wants)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, mode in modes:
            module.training = mode


@contextmanager
def without_dropout(model: torch.nn.Module) -> Iterator[None]:
    """Set the probability of each dropout module to 0, and put it back."""
    from torch import nn  # noqa: PLC0415 -- late

    kinds = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout
    found = [m for m in model.modules() if isinstance(m, (*kinds, nn.FeatureAlphaDropout))]
    before = [module.p for module in found]
    for module in found:
        module.p = 0.0
    try:
        yield
    finally:
        for module, probability in zip(found, before, strict=True):
            module.p = probability
