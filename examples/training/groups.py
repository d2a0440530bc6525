"""A process group that is gone when its block ends, whatever happens in there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed


@contextmanager
def group(device: torch.device) -> Iterator[None]:
    """Join the ranks: by NCCL where they have cards, else by gloo."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        distributed.init_process_group("nccl", device_id=device)
    else:
        distributed.init_process_group("gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()
