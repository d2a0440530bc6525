"""A model that ``fully_shard`` has spread over ranks: how it is made, and what is lost by that.

Looks at the model and its optimizer as they are: nothing is trained here. Knows no check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics.gradients import plain_name
from pytest_remotegpu.diagnostics.verdict import Finding

if TYPE_CHECKING:
    import torch

__all__ = [
    "LOW",
    "blocks",
    "fully",
    "is_low",
    "left_out",
    "local",
    "optimizer_lacks",
    "parameters",
    "reduced_low",
    "short",
    "ties",
    "untied",
]

LOW: Final = 2
"""Bytes of a dtype that keeps too little for weights, gradients and an optimizer's state."""
REDUCING: Final = ("c10d::_reduce_scatter_base_", "fsdp::chunk_cat")
"""Operations whose dtype is that in which gradients are added up."""


def blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Choose what is sharded for itself: what stands in a list, a dictionary or a sequence.

    Of those the outermost that have parameters, and none that shares a parameter with something
    outside of it: such a tie would be cut. They, and then the root, is how torch's own manual
    applies ``fully_shard``.
    """
    from torch import nn  # noqa: PLC0415 -- late

    everywhere = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))

    def inside(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            here = Counter(id(p) for _, p in child.named_parameters(remove_duplicate=False))
            listed = isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)
            runs = not isinstance(child, nn.ModuleList | nn.ModuleDict)
            if not here:
                continue
            if listed and runs and all(everywhere[key] == n for key, n in here.items()):
                yield child
            else:
                yield from inside(child)

    return list(dict.fromkeys(inside(model)))


def fully(policy: Any = None, group: Any = None) -> Callable[[torch.nn.Module], torch.nn.Module]:
    """Give the way to shard that is used by default: each of :func:`blocks`, then the root."""

    def shard(model: torch.nn.Module) -> torch.nn.Module:
        from torch import distributed  # noqa: PLC0415 -- late
        from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415 -- late
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 -- late

        whole = distributed.group.WORLD if group is None else group
        # of the group that is there already, so that none is made which somebody had to destroy
        mesh = DeviceMesh.from_group(whole, next(model.parameters()).device.type)
        more = {"mesh": mesh} if policy is None else {"mesh": mesh, "mp_policy": policy}
        for block in blocks(model):
            fully_shard(block, **more)
        fully_shard(model, **more)
        return model

    return shard


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Give the part of a tensor that this rank holds."""
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part.detach()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor whole, gathered from all ranks where it is sharded."""
    full: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach()


def parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copy all parameters, whole; on all ranks at once."""
    return {plain_name(name): whole(p).clone() for name, p in model.named_parameters()}


def ties(model: torch.nn.Module) -> list[tuple[str, ...]]:
    """Give the names that stand for the same parameter."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(plain_name(name))
    return [tuple(same) for same in names.values() if len(same) > 1]


def untied(model: torch.nn.Module, before: Iterable[tuple[str, ...]]) -> Finding | None:
    """Find names that were of one parameter, and are of two now."""
    now = {
        plain_name(name): id(parameter)
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }
    cut = [names for names in before if len({now.get(name) for name in names}) > 1]
    if not cut:
        return None
    return Finding(
        "tied-weights-broken",
        "names that stood for one parameter stand for several since the model is sharded",
        "shard the modules that share it in one call of fully_shard (leave both to the root), or "
        "tie them anew after sharding",
        tuple(" = ".join(names) for names in cut),
    )


def left_out(model: torch.nn.Module, meant: Sequence[str]) -> Finding | None:
    """Find parameters that each rank holds whole.

    :param meant: patterns of names of which that is known.
    """
    names = [
        plain_name(name)
        for name, parameter in model.named_parameters()
        if not any(place.is_shard() for place in getattr(parameter, "placements", ()))
    ]
    found = tuple(n for n in names if not any(fnmatchcase(n, pattern) for pattern in meant))
    if not found:
        return None
    return Finding(
        "not-sharded",
        f"{len(found)} parameters are on each rank whole: nothing shards them or averages their "
        "gradients",
        "call fully_shard on the root last, after the blocks, use the model that it was called on, "
        "and see ignored_params; say unsharded=[...] if they are meant to stay",
        found,
    )


def optimizer_lacks(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, frozen: Sequence[str] = ()
) -> list[Finding]:
    """Find parameters that the optimizer does not hold, and tensors that it holds for nothing.

    :param frozen: names that need not be in it.
    """
    named = {plain_name(name): p for name, p in model.named_parameters()}
    own = {id(p) for p in named.values()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    lacking = {*own} - {id(p) for p in held}
    outside = tuple(
        n for n, p in named.items() if p.requires_grad and id(p) in lacking and n not in frozen
    )
    stale = sum(id(p) not in own for p in held)
    if stale:
        return [
            Finding(
                "stale-optimizer",
                f"{stale} of the optimizer's {len(held)} tensors are not the model's: its steps "
                "change what nobody uses",
                "make the optimizer after fully_shard, which puts new parameters in place of the "
                "old ones",
                outside,
            )
        ]
    if outside:
        return [
            Finding(
                "not-in-optimizer",
                f"{len(outside)} parameters require a gradient and are in no group of it",
                "give model.parameters() of the sharded model to the optimizer, and look at "
                "filters by name or type: all shards are DTensor",
                outside,
            )
        ]
    return []


def short(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, meant: Sequence[str]
) -> Finding | None:
    """Find what is kept in 16 bits or fewer and should not be.

    :param meant: patterns of names of parameters and buffers of which that is known.
    """
    named = {plain_name(n): p for n, p in model.named_parameters()}
    kept: list[tuple[str, str, Any]] = [("parameter", n, p) for n, p in named.items()]
    kept += [("gradient", n, p.grad) for n, p in named.items()]
    kept += [("buffer", plain_name(n), b) for n, b in model.named_buffers()]
    kept += [
        (f"optimizer's {key}", n, value)
        for n, p in named.items()
        for key, value in optimizer.state.get(p, {}).items()
    ]
    found = tuple(
        f"{name}: {what} in {str(tensor.dtype).removeprefix('torch.')}"
        for what, name, tensor in kept
        if is_low(tensor) and not any(fnmatchcase(name, pattern) for pattern in meant)
    )
    if not found:
        return None
    return Finding(
        "dtype-leak",
        f"{len(found)} tensors that training adds up in are kept in 16 bits or fewer, in which "
        "small steps are lost",
        "leave the model in float32 and let MixedPrecisionPolicy(param_dtype=torch.bfloat16) cast "
        "it for the computation; no model.to(torch.bfloat16), no default dtype; say short=[...] if "
        "it is meant",
        found,
    )


def is_low(tensor: Any) -> bool:
    """Whether it is a tensor of floats of 16 bits or fewer."""
    import torch  # noqa: PLC0415 -- late

    return (
        isinstance(tensor, torch.Tensor)
        and tensor.is_floating_point()
        and tensor.element_size() <= LOW
    )


def reduced_low(operations: Iterable[tuple[str, str]], ranks: int) -> Finding | None:
    """Find that gradients are added up over the ranks in 16 bits, of what ran in a step.

    :param operations: names of torch's operations, and shapes and dtypes of their inputs.
    """
    low = [
        name
        for name, inputs in operations
        if name in REDUCING and ("BFloat16" in inputs or "Half" in inputs)
    ]
    if not low or ranks == 1:
        return None
    return Finding(
        "reduced-in-low-precision",
        "gradients are added up over the ranks in 16 bits, although they are float32 afterwards",
        "give MixedPrecisionPolicy a reduce_dtype=torch.float32; without one it is that of "
        "param_dtype",
        tuple(f"{name}, {n} times" for name, n in Counter(low).items()),
    )
