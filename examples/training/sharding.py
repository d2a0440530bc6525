"""FSDP2: a model whose weights, gradients and optimizer state are spread over the ranks."""

from __future__ import annotations

import torch
from llama import Llama
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

FLOAT32 = MixedPrecisionPolicy()
BFLOAT16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
"""Computes in bfloat16, and keeps in float32 what is small: weights, gradients, moments."""


def sharded(model: Llama, policy: MixedPrecisionPolicy = FLOAT32) -> Llama | FSDPModule:
    """Shard each block, then what is left: the embedding, the last norm and the head."""
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)
