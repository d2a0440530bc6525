"""What ranks tell each other: values gathered from all, so that each comes to the same verdict.

Knows ``torch.distributed``, and no check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_remotegpu.diagnostics import batches

if TYPE_CHECKING:
    import torch

__all__ = ["gather", "gather_batches", "is_spread", "mean", "same", "together", "world"]

Result = TypeVar("Result")


def world(group: Any = None) -> int:
    """Count the ranks of a group.

    :raises ValueError: where this process is in none.
    """
    from torch import distributed  # noqa: PLC0415 -- late

    if not (distributed.is_available() and distributed.is_initialized()):
        raise ValueError(
            "there is no process group: call this check in each rank, after "
            "torch.distributed.init_process_group() or with the fixture rank_group"
        )
    return int(distributed.get_world_size(group))


def gather(value: Any, group: Any = None) -> list[Any]:
    """Give each rank's value to all, in order of rank; it has to survive pickling."""
    from torch import distributed  # noqa: PLC0415 -- late

    values: list[Any] = [None] * world(group)
    distributed.all_gather_object(values, value, group=group)
    return values


def together(run: Callable[[], Result], group: Any = None) -> Result:
    """Do on each rank what may raise on one of them: all raise then, and none waits for another.

    :param run: must not be left while others wait for this rank in an exchange of its own.
    :raises RuntimeError: on the ranks on which nothing was raised; it tells what was on another.
    :raises Exception: what ``run`` raises.
    """
    try:
        result = run()
    except Exception as error:
        gather(f"{type(error).__name__}: {error}", group)
        raise
    for rank, said in enumerate(gather("", group)):
        if said:
            raise RuntimeError(f"rank {rank} raised {said}; so this rank has stopped, too")
    return result


def mean(number: float, device: Any, group: Any = None) -> float:
    """Give the mean of all ranks' numbers to each; cheaper than gathering them.

    :param device: of the ranks' tensors.
    """
    import torch  # noqa: PLC0415 -- late

    total = torch.tensor([number], dtype=torch.float64, device=device)
    torch.distributed.all_reduce(total, group=group)
    return float(total) / world(group)


def gather_batches(batch: Any, group: Any = None) -> list[Any]:
    """Give each rank's batch to all, on the device of this rank's own."""
    device = next((tensor.device for _, tensor in batches.tensors(batch)), None)
    everyones = gather(batches.mapped(batch, lambda tensor: tensor.detach().cpu()), group)
    return [batches.mapped(other, lambda tensor: tensor.to(device)) for other in everyones]


def is_spread(model: torch.nn.Module) -> bool:
    """Whether the ranks work on a model together: it is wrapped in DDP, or sharded."""
    from torch import distributed  # noqa: PLC0415 -- late
    from torch.nn import parallel  # noqa: PLC0415 -- late

    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    return any(
        isinstance(module, parallel.DistributedDataParallel)
        or type(module).__name__ == "FullyShardedDataParallel"
        for module in model.modules()
    ) or any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def same(digests: list[str]) -> tuple[str, ...]:
    """Name the ranks whose digests another rank has, too."""
    return tuple(f"rank {n}" for n, digest in enumerate(digests) if digests.count(digest) > 1)


def differing_weights(model: torch.nn.Module, group: Any = None) -> tuple[str, ...]:
    """Name parameters whose values are not the same on all ranks; shards are not compared."""
    mine = {
        name: batches.digest(parameter.data)
        for name, parameter in model.named_parameters()
        if not hasattr(parameter, "full_tensor")
    }
    everyones = gather(mine, group)
    return tuple(n for n in mine if len({other.get(n) for other in everyones}) > 1)
