"""Whether the gradients of several ranks are those of one process with all their data.

What became of a gradient, comparing and gathering are done below.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_remotegpu.diagnostics import batches, exchanges, gradients, meeting
from pytest_remotegpu.diagnostics.asfound import as_found, model_as_found, without_dropout
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["gradients_synchronised"]


def gradients_synchronised(
    model: torch.nn.Module,
    batch: Any,
    *,
    loss: Callable[[torch.nn.Module, Any], torch.Tensor],
    backward: Callable[[torch.nn.Module, Any], None] | None = None,
    whole: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None,
    reference: torch.nn.Module | None = None,
    join: Callable[[list[Any]], Any] = batches.joined,
    group: Any = None,
    rtol: float = 1e-4,
) -> Verdict:
    """Compare the gradients that ranks end up with to those of one process on the joined batch.

    Called in each rank of a process group, and the verdict is the same in all of them. Dropout is
    off, and the model is left as it was found: no step is made.

    :param model: this rank's model as you train it: wrapped in DDP, sharded, or plain with an
        exchange of your own in ``backward``.
    :param batch: this rank's batch; equal ones are a finding, since they hide what is looked for.
    :param loss: gives the loss of ``(model, batch)`` that a rank calls ``backward()`` on.
    :param backward: leaves the exchanged gradients of ``(model, batch)`` in the model; by default
        ``loss(model, batch).backward()``.
    :param whole: gives the mean loss as one process alone has it; ``loss`` by default.
    :param reference: a plain model with the same weights, changed only for the time of the check;
        by default a copy of the model without its wrapper. A sharded model needs one.
    :param join: makes one batch of all ranks'; by default tensors are put below each other.
    :param group: of the ranks, the default group where ``None``.
    :param rtol: how far a parameter's gradient may be from the right one, relative to its norm; the
        order of sums in float32 makes less than 1e-5, so that 1e-4 leaves room; bfloat16 needs
        0.02.
    :return: the verdict. Its codes: ``one-rank``, ``same-data``, ``different-weights``,
        ``dropped-all-reduce``, ``sum-instead-of-mean``, ``divided-twice``, ``mean-of-means``,
        ``gradient-differs``.
    :raises ValueError: without a process group, where batches can't be joined, or where a reference
        has other parameters.
    """
    ranks = meeting.world(group)
    plain = loss if whole is None else whole
    with as_found():
        everyones = meeting.gather_batches(batch, group)
        twins = meeting.same(meeting.gather(batches.digest(batch), group))
        strangers = meeting.differing_weights(model, group)
        alone = _alone(model) if reference is None else reference
        with model_as_found(alone), without_dropout(alone):
            mean: gradients.Gradients = {}
            for other in everyones:
                mean = gradients.added(
                    mean, 1 / ranks, gradients.of(alone, _run(plain, alone, other))
                )
            own = gradients.of(alone, _run(plain, alone, batch))
            joined = gradients.of(alone, _run(plain, alone, join(everyones)))
        with model_as_found(model), without_dropout(model):
            if backward is None:
                mine = gradients.of(model, _run(loss, model, batch))
            else:
                mine = gradients.of(model, lambda: backward(model, batch))
    if mine.keys() != joined.keys():
        raise ValueError(
            f"the reference has other parameters: {sorted(mine.keys() ^ joined.keys())}; make it "
            "of the same class, without a wrapper"
        )
    fits = gradients.explained(mine, exchanges.candidates(mine, joined, own, mean, ranks), rtol)
    everything = meeting.gather((fits, gradients.largest_error(mine, joined)), group)
    findings = exchanges.findings([fit for fit, _ in everything])
    if strangers:
        findings.insert(0, exchanges.strangers(strangers))
    if twins:
        findings.insert(0, exchanges.twins(twins))
    if ranks == 1:
        findings.insert(0, Finding("one-rank", "there is one rank only", "start two at least"))
    bad = {name for fit, _ in everything for name, word in fit.items() if word != exchanges.RIGHT}
    measured = (
        Measure("ranks", ranks),
        Measure("parameters", len(mine)),
        Measure("parameters that differ", len(bad), bound="0"),
        Measure("largest difference", max(e for _, e in everything), bound=f"<= {rtol:g} x norm"),
    )
    return Verdict("gradients_synchronised", measured, tuple(findings))


def _alone(model: torch.nn.Module) -> torch.nn.Module:
    """Copy a model without its wrapper.

    :raises ValueError: where it is sharded, so that no rank has all of it.
    """
    from torch.nn import parallel  # noqa: PLC0415 -- late

    if isinstance(model, parallel.DistributedDataParallel | parallel.DataParallel):
        model = model.module
    if any(hasattr(parameter, "full_tensor") for parameter in model.parameters()):
        raise ValueError(
            "the model is sharded, so that no copy of it can run alone; give reference= a plain "
            "model with the same weights"
        )
    return copy.deepcopy(model)


def _run(
    loss: Callable[[torch.nn.Module, Any], torch.Tensor], model: torch.nn.Module, batch: Any
) -> Callable[[], Any]:
    return lambda: loss(model, batch).backward()
