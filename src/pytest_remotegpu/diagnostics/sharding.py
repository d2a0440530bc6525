"""Whether a model that ``fully_shard`` has spread over ranks trains as the unsharded one does.

Knows the arguments and where the bounds come from; the comparison stands below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import batches, meeting, resuming, shards
from pytest_remotegpu.diagnostics.asfound import as_found
from pytest_remotegpu.diagnostics.beside import Check, Data, Recipe, Shard, adamw
from pytest_remotegpu.diagnostics.verdict import Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["fsdp_matches"]

LEAST: Final = 2
"""Steps that are made: some before what is saved, and some after."""


def fsdp_matches(
    make_model: Callable[[], torch.nn.Module],
    batch: Any,
    *,
    loss: Callable[[torch.nn.Module, Any], torch.Tensor] = batches.loss_of,
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer] | None = None,
    shard: Shard | None = None,
    policy: Any = None,
    whole: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None,
    split: bool = False,
    join: Callable[[list[Any]], Any] = batches.joined,
    unsharded: Sequence[str] = (),
    short: Sequence[str] = (),
    save: resuming.Save | None = None,
    load: resuming.Load | None = None,
    clip: float | None = None,
    steps: int = 6,
    slack: float = 1.0,
    group: Any = None,
    seed: int | None = 0,
) -> Verdict:
    """Train a sharded model for some steps on several ranks, and the unsharded one beside it.

    Called in each rank of a process group, of one rank too, and the verdict is the same in all. The
    plain model begins with the sharded one's weights and is trained on each rank with the batches
    of all ranks joined. Compared are the gradients of the first step, the losses of each, and the
    parameters after the last. In between, model and optimizer are saved, loaded into new ones, and
    these have to go on as the first did. Dropout is off, and models of the factory are used up.

    The bounds are for the dtype that modules compute in, as seen in the first step. Relative to a
    loss: 1e-5 in float32, where other orders of sums make some 1e-7 a step; four roundings in
    bfloat16 (0.016) and float16 (0.002), as for :func:`compile_parity`. Relative to a gradient's
    norm: 1e-4 in float32, as for :func:`gradients_synchronised`; 0.05 and 0.01 in 16 bits, where
    each layer rounds anew. Relative to the way that a parameter has moved: 1e-3, and in 16 bits
    0.15 and 0.05, since AdamW's first steps take the sign of a gradient that is next to nothing.
    Where the plain model itself is further apart when it adds up in another order (the ranks'
    batches turned round; under autocast where 16 bits are computed in), 4 times that is allowed.

    What one rank alone raises in the factory, in sharding, or in the loss of the plain model,
    raises on all. What one alone raises between the exchanges of a sharded step can't be told to
    the others, which wait for it until the process group's timeout, as they would in training.

    :param make_model: makes the plain model, on its device; called some times.
    :param batch: this rank's batch, or a function that is given the step and gives it. Other ranks
        should have others; with other numbers of tokens too, or a mean of means is not seen.
    :param loss: gives of ``(model, batch)`` what a rank calls ``backward()`` on; may communicate.
        By default the model gives it, see :func:`overfit`.
    :param make_optimizer: makes an optimizer for a plain or a sharded model; AdamW by default.
    :param shard: shards a model as your training does it: in place, or returns another. Where your
        code makes the optimizer at the same place, return ``(model, optimizer)``. By default
        ``fully_shard`` on each entry of a list, dictionary or sequence of modules (the outermost
        that have parameters, and share none with the rest), and on the root.
    :param policy: a ``MixedPrecisionPolicy`` for the default ``shard``.
    :param whole: gives the plain mean loss as one process alone has it, without communicating;
        ``loss`` by default.
    :param split: whether ``batch`` is the same on all ranks, and each is to take its rows of it.
    :param join: makes one batch of all ranks'; by default tensors are put below each other.
    :param unsharded: patterns of names of parameters that are meant to be whole on each rank.
    :param short: likewise of parameters and buffers that are meant to be kept in 16 bits.
    :param save: gives of ``(model, optimizer)`` what is to be kept, as your training does it.
    :param load: puts that into ``(model, optimizer, kept)``. By default both of torch's ways are
        tried: ``get_state_dict`` whole and in shards.
    :param clip: the norm that gradients are clipped to.
    :param steps: how many, 2 at least. :param slack: a number that multiplies all bounds.
    :param group: of the ranks, the default group where ``None``.
    :param seed: of the random numbers before each model is made; ``None`` takes them as they stand
        on this rank, which shows whether your own test seeds all ranks alike.
    :return: the verdict with the losses as a curve. Its codes: ``same-data``,
        ``different-weights``, ``tied-weights-broken``, ``not-sharded``, ``stale-optimizer``,
        ``not-in-optimizer``, ``dtype-leak``, ``reduced-in-low-precision``, ``different-buffers``,
        ``random-loss``, ``not-finite``, ``missing-gradient``, those of
        :func:`gradients_synchronised`, ``losses-differ``, ``parameters-differ``,
        ``loss-does-not-fall``, ``unchanged-parameters``, ``state-dict-drops-keys``,
        ``state-dict-not-loaded``, ``resumed-weights-differ``, ``resumed-optimizer-differs``,
        ``resumed-run-differs``.
    :raises ValueError: without a process group, where batches can't be joined or split, or for
        arguments that can't be meant.
    :raises RuntimeError: where another rank has raised something.
    """
    if steps < LEAST:
        raise ValueError(f"steps is {steps}; {LEAST} at least are one before and one after saving")
    if shard is not None and policy is not None:
        raise ValueError("policy is for the default shard; give it to fully_shard in yours")
    if (save is None) != (load is None):
        raise ValueError("save and load belong together; give both, or none for torch's own")
    ways = resuming.ways()
    if save is not None and load is not None:
        ways = (resuming.Way("save and load", save, load, own=True),)
    meeting.world(group)
    recipe = Recipe(
        make_model=make_model,
        make_optimizer=make_optimizer or adamw,
        shard=shard or shards.fully(policy, group),
        loss=loss,
        whole=whole or loss,
        join=join,
        ways=ways,
        unsharded=unsharded,
        short=short,
        clip=clip,
        slack=slack,
        group=group,
        seed=seed,
    )
    with as_found():
        data = _data(batch, steps, recipe, split=split)
        with ExitStack() as stack:
            return Check(recipe, data, stack).verdict()


def _data(batch: Any, number: int, recipe: Recipe, *, split: bool) -> Data:
    """Get the batches of all steps and ranks.

    :raises ValueError: where the batch to split is not the same everywhere or has too few rows.
    """
    from torch import distributed  # noqa: PLC0415 -- late

    changes = callable(batch)
    rank = distributed.get_rank(recipe.group)
    data = Data([], [], [], [])
    twins: tuple[str, ...] = ()
    for step in range(number if changes else 1):
        mine = meeting.together(partial(batch, step) if changes else lambda: batch, recipe.group)
        digests = meeting.gather(batches.digest(mine), recipe.group)
        if split:
            if len({*digests}) > 1:
                raise ValueError("split is for one batch that all ranks have; theirs differ")
            everyones = batches.split(mine, len(digests))
        else:
            everyones = meeting.gather_batches(mine, recipe.group)
            twins = twins or meeting.same(digests)
        data.everyones[:] = data.everyones or everyones
        data.own.append(everyones[rank])
        data.joined.append(recipe.join(everyones))
        data.turned.append(recipe.join(everyones[::-1]))
    if not changes:
        data = Data(
            data.own * number, data.joined * number, data.turned * number, data.everyones, ()
        )
    return replace(data, twins=twins, changes=changes)
