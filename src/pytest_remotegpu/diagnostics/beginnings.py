"""What is looked at before a model is trained: its batch, its first step, where its loss begins.

Knows the bounds and the words; looking on and training are done below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import batches, causes, peeking, trials
from pytest_remotegpu.diagnostics.asfound import as_found
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["batch_sound", "begins_at_chance", "first_step"]

ROOM: Final = 0.5
"""Nats that logits with a standard deviation of 1 add to the loss of guessing: half its square."""
SCATTER: Final = 3.0
"""Standard deviations, of 1 nat a target, by which the mean over few targets may be off."""


def batch_sound(batch: Any, again: Any, seen: peeking.Seen | None) -> Verdict:
    """Judge a batch by itself, by a second one, and by what a forward pass asks of it.

    :param again: drawn after it. :param seen: what the forward pass computed; ``None`` where the
        batch was not fit for one.
    :return: the verdict; its codes are ``empty-batch``, ``not-finite``, ``index-out-of-range``,
        ``label-out-of-range``, ``ignored-targets``, ``shuffled-targets``, and the notes
        ``contradicting-targets`` and ``one-class``.
    """
    named = dict(batches.tensors(batch))
    measured = [
        Measure("rows", batches.rows(batch)),
        *(
            Measure(name, f"{_kind(tensor)} {tuple(tensor.shape)}")
            for name, tensor in named.items()
        ),
    ]
    findings = unfit(batch)
    if seen is not None:
        findings += _misfits(batch, seen)
        for entropy in seen.entropies:
            measured += [
                Measure("classes", entropy.classes),
                Measure("targets that count", entropy.targets, bound="> 0"),
                Measure("different targets", entropy.distinct),
            ]
        findings += _targets(seen)
    if not findings:
        findings = _contradictions(batch, again)
    return Verdict("batch", tuple(measured), tuple(findings))


def unfit(batch: Any) -> list[Finding]:
    """Find for what a batch is not fit for a forward pass."""
    named = dict(batches.tensors(batch))
    empty = tuple(name for name, tensor in named.items() if not tensor.numel())
    if empty:
        return [
            Finding(
                "empty-batch",
                "parts of the batch have no elements",
                "see what the loader, a filter or a length of 0 leaves of it",
                empty,
            )
        ]
    bad = tuple(
        name
        for name, tensor in named.items()
        if tensor.is_floating_point() and not bool(tensor.isfinite().all())
    )
    if not bad:
        return []
    return [
        Finding(
            "not-finite",
            "the batch itself has NaN or infinity in it",
            "look for missing values in the data, a division by a standard deviation of 0, and the "
            "log of 0 before the model sees it; a mask of -inf belongs into the model",
            bad,
        )
    ]


def _misfits(batch: Any, seen: peeking.Seen) -> list[Finding]:
    misfit = seen.misfit
    if misfit is None:
        return []
    shown = ", ".join(map(str, misfit.values))
    holding = tuple(
        name
        for name, tensor in batches.tensors(batch)
        if not tensor.is_floating_point() and bool((tensor == misfit.values[0]).any())
    )
    if misfit.label:
        return [
            Finding(
                "label-out-of-range",
                f"there are {misfit.size} classes, 0 to {misfit.size - 1}, and a target {shown}",
                "see whether labels begin at 1, whether the last layer has an output for each "
                "class, and that what is to be left out has the ignored index (-100)",
                holding,
            )
        ]
    return [
        Finding(
            "index-out-of-range",
            f"the table {misfit.where or 'of an embedding'} has {misfit.size} rows, and is asked "
            f"for {shown}",
            "see that the vocabulary of the tokenizer fits the model (resize_token_embeddings "
            "after tokens were added), that padding has a valid index, and that a sequence is not "
            "longer than there are positions",
            holding,
        )
    ]


def _targets(seen: peeking.Seen) -> list[Finding]:
    found = []
    if any(not entropy.targets for entropy in seen.entropies):
        found.append(
            Finding(
                "ignored-targets",
                "no target counts: all have the ignored index, so that the mean is over nothing",
                "see what masks or truncates the labels",
            )
        )
    if any(entropy.distinct == 1 < entropy.targets for entropy in seen.entropies):
        found.append(
            Finding(
                "one-class",
                "all targets are the same",
                "see that the loader shuffles: sorted data give such batches, and a model learns "
                "the one class of each",
                fails=False,
            )
        )
    return found


def _contradictions(batch: Any, again: Any) -> list[Finding]:
    rows = batches.relabelled(batch, again)
    if rows:
        return [
            Finding(
                "shuffled-targets",
                f"a second batch has the same inputs, and {len(rows)} of them other targets",
                "see where targets are shuffled, drawn or sorted apart from their inputs",
                tuple(f"sample {row}" for row in rows),
            )
        ]
    found = batches.contradiction(batch)
    if found is None:
        return []
    return [
        Finding(
            "contradicting-targets",
            f"{len(found.rows)} samples have the same inputs and different targets",
            "see whether that is so in your data, or inputs were cut, padded or masked until they "
            "are alike",
            tuple(f"sample {row}" for row in found.rows),
            fails=False,
        )
    ]


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def first_step(recipe: trials.Recipe) -> Verdict:
    """Make one step, and see that loss and gradients are finite numbers.

    :return: the verdict; its codes are ``detached-loss``, ``frozen-parameters``, ``not-finite``.
    """
    with as_found():
        trial = trials.run(replace(recipe, steps=1))
        told = causes.wiring(trial, lambda _: False)
        stops = {"detached-loss"} if trial.names != trial.frozen else {"frozen-parameters"}
        findings = [finding for finding in told if finding.code in stops]
        norm = trial.norms[0] if trial.norms else math.nan
        finite = trial.bad_step is None and (math.isfinite(norm) or not trial.largest)
        if not findings and not finite:
            findings = [causes.not_finite(replace(recipe, steps=2))]
    measured = (
        Measure("loss", trial.losses[0] if trial.losses else math.nan, bound="finite"),
        Measure("gradient norm", norm, bound="finite"),
        Measure("parameters", len(trial.names)),
        Measure("parameters with a gradient", len(trial.largest)),
    )
    return Verdict("first_step", measured, tuple(findings))


def begins_at_chance(entropies: list[peeking.Entropy], total: Callable[[], float]) -> Verdict:
    """Compare the first loss with that of guessing, ``ln(classes)``.

    A model that knows nothing gives each class the same probability, whose cross entropy is
    ``ln(classes)`` (Stanford's CS231n, "Neural Networks Part 3", sanity checks, and A. Karpathy, "A
    Recipe for Training Neural Networks", verify loss at init). Logits with a standard deviation of
    s, as random weights give them, add about ``s**2 / 2``, and a mean over n targets scatters by
    ``s / sqrt(n)``; with s of 1 the loss is at most ``ln(classes) + 0.5 + 3 / sqrt(n)``.

    :param entropies: those that the loss is made of; the worst of them is judged.
    :param total: the loss itself.
    :return: the verdict; its codes are ``initial-loss-high``, and the notes ``initial-loss-low``
        and ``summed-loss``.
    """

    def over(entropy: peeking.Entropy) -> float:
        return entropy.value - math.log(entropy.classes) - _room(entropy)

    worst = max(entropies, key=over)
    chance, room = math.log(worst.classes), _room(worst)
    measured = (
        Measure("loss", total()),
        Measure("cross entropy", worst.value, "nats", f"<= {chance + room:.4g}"),
        Measure("ln(classes)", chance, "nats"),
        Measure("classes", worst.classes),
        Measure("targets that count", worst.targets),
    )
    findings = []
    if not over(worst) <= 0:
        findings.append(_high(worst, chance))
    if worst.value < chance - room:
        findings.append(
            Finding(
                "initial-loss-low",
                f"the cross entropy begins at {worst.value:.4g}, below {chance:.4g}: the model "
                "knows something already",
                "if its weights are not trained, see whether the targets are among its inputs: a "
                "causal mask that is missing, labels that are not shifted",
                fails=False,
            )
        )
    if worst.reduction == "sum":
        findings.append(
            Finding(
                "summed-loss",
                f"the loss is a sum over {worst.targets} targets, not their mean",
                "see that the learning rate fits that: it has to change with the size of a batch",
                fails=False,
            )
        )
    return Verdict("initial_loss", measured, tuple(findings))


def _room(entropy: peeking.Entropy) -> float:
    return ROOM + SCATTER / math.sqrt(max(entropy.targets, 1))


def _high(entropy: peeking.Entropy, chance: float) -> Finding:
    return Finding(
        "initial-loss-high",
        f"the cross entropy begins at {entropy.value:.4g}, where guessing among {entropy.classes} "
        f"classes has ln({entropy.classes}) = {chance:.4g}: the model is sure of what is wrong",
        "see that inputs are scaled to a standard deviation of about 1, that the last layer begins "
        "with small weights (an embedding that is tied to it has 1 by default), and that logits "
        "are not multiplied",
    )
