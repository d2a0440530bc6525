"""Whether the loss of several ranks is that of one rank with all their data.

Knows the bounds and the words. One function judges numbers, the other gets them from ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import batches, meeting
from pytest_remotegpu.diagnostics.asfound import as_found, model_as_found, without_dropout
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["judge_loss_scale", "loss_scale"]

RTOL: Final = 1e-5
"""Sums of float32 in another order differ by less."""
ATOL: Final = 1e-6


def loss_scale(
    model: torch.nn.Module,
    batch: Any,
    *,
    loss: Callable[[torch.nn.Module, Any], Any],
    count: Callable[[Any], int],
    whole: Callable[[torch.nn.Module, Any], Any] | None = None,
    join: Callable[[list[Any]], Any] = batches.joined,
    reduce: str = "mean",
    group: Any = None,
    rtol: float = RTOL,
    atol: float = ATOL,
) -> Verdict:
    """Compare the loss that ranks train on with that of one rank on the joined batch.

    Called in each rank of a process group, and the verdict is the same in all of them. No gradient
    is computed, dropout is off, and the model is left as it was found.

    :param model: this rank's model, wrapped or not, with the same weights on each rank.
    :param batch: this rank's batch, another one than the other ranks have; with another number of
        tokens too, or a mean of means can't be told from the right one.
    :param loss: gives of ``(model, batch)`` what your training calls ``backward()`` on in a rank,
        with all its scaling; may communicate.
    :param count: gives how many tokens (or samples) of a batch its loss is the mean over.
    :param whole: gives of ``(model, batch)`` the plain mean loss, as one process alone would have
        it, without communicating; ``loss`` by default.
    :param join: makes one batch of all ranks'; by default tensors are put below each other.
    :param reduce: what becomes of the ranks' gradients: ``mean`` with DDP and FSDP, or ``sum``.
    :param group: of the ranks, the default group where ``None``.
    :return: the verdict; its codes are those of :func:`judge_loss_scale`, and ``same-data``.
    :raises ValueError: without a process group, where batches can't be joined, or for ``reduce``.
    """
    meeting.world(group)
    plain = loss if whole is None else whole
    with as_found(), model_as_found(model), without_dropout(model):
        import torch  # noqa: PLC0415 -- late

        with torch.no_grad():
            everyones = meeting.gather_batches(batch, group)
            mine = float(loss(model, batch)), float(plain(model, batch)), int(count(batch))
            joined = float(plain(model, join(everyones)))
        numbers = meeting.gather(mine, group)
        twins = meeting.same(meeting.gather(batches.digest(batch), group))
    losses, means, counts = zip(*numbers, strict=True)
    verdict = judge_loss_scale(
        losses, means, counts, whole=joined, reduce=reduce, rtol=rtol, atol=atol
    )
    if not twins:
        return verdict
    return Verdict(verdict.name, verdict.measured, (same_data(twins), *verdict.findings))


def judge_loss_scale(
    losses: Sequence[float],
    means: Sequence[float],
    counts: Sequence[int],
    *,
    whole: float | None = None,
    reduce: str = "mean",
    rtol: float = RTOL,
    atol: float = ATOL,
) -> Verdict:
    """Judge numbers that ranks have measured.

    :param losses: what each rank calls ``backward()`` on.
    :param means: the plain mean loss of each rank's own batch.
    :param counts: the tokens (or samples) that each mean is over.
    :param whole: the mean loss of the joined batch; where ``None`` it is the mean of ``means``
        weighted by ``counts``.
    :param reduce: what becomes of the ranks' gradients: ``mean`` or ``sum``.
    :return: the verdict; its codes are ``mean-of-means``, ``multiplied-by-world-size``,
        ``divided-twice``, ``wrong-divisor``, ``not-finite``, ``joined-batch-differs``,
        ``one-rank``, and the note ``equal-counts``.
    :raises ValueError: where the lengths differ, a count is not positive, or for ``reduce``.
    """
    if not len(losses) == len(means) == len(counts) or not losses or min(counts) <= 0:
        raise ValueError(
            "losses, means and counts need one value for each rank, counts positive ones: "
            f"{losses}, {means}, {counts}"
        )
    if reduce not in ("mean", "sum"):
        raise ValueError(f"reduce is {reduce!r}; it is 'mean' or 'sum'")
    ranks, tokens = len(losses), sum(counts)
    got = fmean(losses) if reduce == "mean" else math.fsum(losses)
    weighted = math.fsum(m * n for m, n in zip(means, counts, strict=True)) / tokens
    right = weighted if whole is None else whole

    def near(one: float, other: float) -> bool:
        return abs(one - other) <= atol + rtol * abs(other)

    measured = (
        Measure("loss of the ranks together", got),
        Measure("loss of the joined batch", right),
        Measure("ratio", got / right if right else math.nan, bound=f"1 within {rtol:g}"),
        Measure("ranks", ranks),
        *(Measure(f"tokens of rank {rank}", count) for rank, count in enumerate(counts)),
    )
    findings = _findings(got, right, fmean(means), ranks, near)
    if not near(right, weighted):
        findings.append(_joined_differs(right, weighted))
    if len(set(counts)) == 1 and ranks > 1:
        findings.append(_equal_counts())
    return Verdict("loss_scale", measured, tuple(findings))


def same_data(twins: tuple[str, ...]) -> Finding:
    """Name ranks that work on the same data."""
    return Finding(
        "same-data",
        "ranks have the same batch: with it a missing all-reduce or a wrong divisor changes "
        "nothing that could be seen, and training repeats itself",
        "look at the sampler (DistributedSampler with this rank and world size, set_epoch) and at "
        "seeds that should depend on the rank",
        twins,
    )


def _findings(
    got: float, right: float, unweighted: float, ranks: int, near: Callable[[float, float], bool]
) -> list[Finding]:
    if not (math.isfinite(got) and math.isfinite(right)):
        return [Finding("not-finite", "a loss is not finite", "run overfit in one process first")]
    if ranks == 1:
        return [Finding("one-rank", "there is one rank only", "start two at least")]
    if near(got, right):
        return []
    words = {
        "mean-of-means": (unweighted, "the mean of the ranks' means, not weighted by their tokens"),
        "multiplied-by-world-size": (right * ranks, f"{ranks} times too large"),
        "divided-twice": (right / ranks, f"{ranks} times too small"),
    }
    advice = {
        "mean-of-means": "divide each rank's sum by the tokens of all ranks (all-reduced) and "
        "multiply by the world size, since gradients are averaged after that",
        "multiplied-by-world-size": "see where ranks' losses or gradients are summed that should "
        "be averaged, or multiplied by the world size although they are summed",
        "divided-twice": "see where the loss is divided by the world size although DDP or FSDP "
        "averages the gradients anyway",
    }
    for code, (value, said) in words.items():
        for factor, more in ((1.0, ""), (ranks, f", times {ranks}"), (1 / ranks, f", by {ranks}")):
            if near(got, value * factor) and (factor == 1 or code == "mean-of-means"):
                what = f"the ranks together have {got:.6g} in place of {right:.6g}: {said}{more}"
                return [Finding(code, what, advice[code])]
    return [
        Finding(
            "wrong-divisor",
            f"the ranks together have {got:.6g} in place of {right:.6g}, {got / right:.6g} times it"
            if right
            else f"the ranks together have {got:.6g} in place of 0",
            "compare the divisor with the count of tokens that are not ignored: padding, samples, "
            "micro-batches, or a shift by one label are the usual others",
        )
    ]


def _joined_differs(right: float, weighted: float) -> Finding:
    return Finding(
        "joined-batch-differs",
        f"in one process the joined batch has {right:.6g}, its parts together {weighted:.6g}",
        batches.JOINING,
    )


def _equal_counts() -> Finding:
    return Finding(
        "equal-counts",
        "every rank has as many tokens, so that a mean of means could not be told from the right "
        "one",
        "give the ranks batches with different numbers of tokens, if yours ever differ",
        fails=False,
    )
