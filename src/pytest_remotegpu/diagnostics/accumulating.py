"""Whether gradients that are accumulated over micro-batches are those of one large batch.

Knows the words; comparing gradients is done below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import batches, gradients
from pytest_remotegpu.diagnostics.asfound import (
    as_found,
    model_as_found,
    seed_all,
    without_dropout,
)
from pytest_remotegpu.diagnostics.making import model_of
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["accumulation_matches"]

RIGHT: Final = "right"
WEIGHTED: Final = "weighted"
"""What the micro-batches' gradients add up to, each weighted by its tokens."""
WORDS: Final = {
    "not-divided": (
        "the gradients are the sum over the micro-batches in place of their mean",
        "divide each micro-batch's loss: its sum by the tokens of all micro-batches",
    ),
    "mean-of-means": (
        "the gradients are the mean over the micro-batches, each counted alike whatever its tokens",
        (
            "divide each micro-batch's summed loss by the tokens of all micro-batches, not its "
            "mean by their number"
        ),
    ),
    "divided-twice": (
        "the gradients are divided by the number of micro-batches once too often",
        "see where the loss is divided although it is weighted by its share of the tokens already",
    ),
    "only-last": (
        "the gradients are those of the last micro-batch alone",
        "call zero_grad() before the first micro-batch, not before each of them",
    ),
    "only-first": (
        "the gradients are those of the first micro-batch alone",
        "see that the loop runs over all micro-batches and calls backward() for each",
    ),
    "gradient-differs": (
        "the gradients are neither those of the large batch nor a usual distortion of them",
        (
            "look for clipping or a step inside the loop, a micro-batch that is left out, "
            "randomness, and reduced precision"
        ),
    ),
}
"""What is so, and what to do, by code."""


def accumulation_matches(
    make_model: Callable[[], torch.nn.Module],
    micro_batches: Sequence[Any],
    *,
    accumulate: Callable[[torch.nn.Module, Sequence[Any]], Any],
    loss: Callable[[torch.nn.Module, Any], torch.Tensor] = batches.loss_of,
    count: Callable[[Any], int],
    join: Callable[[list[Any]], Any] = batches.joined,
    rtol: float = 1e-4,
    seed: int = 0,
) -> Verdict:
    """Compare accumulated gradients with those of one large batch, in float32.

    The model and the batches are taken in float32, and dropout is off: what remains between the two
    is the weighting. Models of the factory are given back as they were made.

    :param make_model: makes the model, on its device.
    :param micro_batches: two at least, with different numbers of tokens, or a mean of means can't
        be told from the right one.
    :param accumulate: your loop: leaves the gradients of ``(model, micro_batches)`` in the model,
        and makes no step.
    :param loss: gives the mean loss of ``(model, batch)``; by default the model gives it itself.
    :param count: gives how many tokens (or samples) of a batch its loss is the mean over.
    :param join: makes one batch of all; by default tensors are put below each other.
    :param rtol: how far a parameter's gradient may be from the right one, relative to its norm; the
        order of sums in float32 makes less than 1e-5, so that 1e-4 leaves room.
    :param seed: of the random numbers before the model is made.
    :return: the verdict. Its codes: ``not-divided``, ``mean-of-means``, ``divided-twice``,
        ``only-last``, ``only-first``, ``gradient-differs``, ``batch-dependent``, and the note
        ``equal-counts``.
    :raises ValueError: with fewer than two micro-batches, counts that are not positive, or batches
        that can't be joined.
    """
    counts = [int(count(part)) for part in micro_batches]
    if len(counts) < 2 or min(counts) <= 0:  # noqa: PLR2004 -- one is no accumulation
        raise ValueError(
            f"micro-batches with {counts} tokens; two at least are needed, and no empty one"
        )
    parts = [batches.mapped(part, _single) for part in micro_batches]
    with as_found(seed):
        model = model_of(make_model)
        with model_as_found(model), without_dropout(model), _in_single(model):
            whole = join(parts)
            with model_as_found(model):
                seed_all(0)
                own = gradients.of(model, lambda: accumulate(model, parts))
            candidates = _candidates(model, parts, counts, loss, whole)
    return _verdict(own, candidates, counts, rtol)


@contextmanager
def _in_single(model: torch.nn.Module) -> Iterator[None]:
    """Turn a model into float32, and back with the tensors that it had."""
    parameters = [(parameter, parameter.data) for parameter in model.parameters()]
    buffers = [(m, *named) for m in model.modules() for named in m.named_buffers(recurse=False)]
    model.float()
    try:
        yield
    finally:
        for parameter, data in parameters:
            parameter.data = data
        for module, name, buffer in buffers:
            setattr(module, name, buffer)


def _single(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _candidates(
    model: torch.nn.Module,
    parts: list[Any],
    counts: list[int],
    loss: Callable[[torch.nn.Module, Any], torch.Tensor],
    whole: Any,
) -> dict[str, tuple[float, gradients.Gradients]]:
    """Give what gradients may be, the right ones first; the last is what the parts add up to."""
    number, tokens = len(parts), sum(counts)
    weighted: gradients.Gradients = {}
    mean: gradients.Gradients = {}
    last: gradients.Gradients = {}

    def alone(batch: Any) -> gradients.Gradients:
        with model_as_found(model):
            seed_all(0)
            return gradients.of(model, lambda: loss(model, batch).backward())

    large, first = alone(whole), alone(parts[0])
    for part, count in zip(parts, counts, strict=True):
        last = alone(part)
        weighted = gradients.added(weighted, count / tokens, last)
        mean = gradients.added(mean, 1 / number, last)
    found = {
        RIGHT: (1.0, large),
        "mean-of-means": (1.0, mean),
        "not-divided": (float(number), mean),
        "not-divided, weighted": (float(number), large),
        "divided-twice": (1 / number, large),
        "divided-twice, of means": (1 / number, mean),
    }
    for word, end, count in (("only-last", last, counts[-1]), ("only-first", first, counts[0])):
        for factor in (1.0, 1 / number, count / tokens):
            found[f"{word}, times {factor}"] = factor, end
    return found | {WEIGHTED: (1.0, weighted)}


def _verdict(
    own: gradients.Gradients,
    candidates: dict[str, tuple[float, gradients.Gradients]],
    counts: list[int],
    rtol: float,
) -> Verdict:
    _, weighted = candidates.pop(WEIGHTED)
    large = candidates[RIGHT][1]
    findings = _findings(gradients.explained(own, candidates, rtol))
    if (error := gradients.largest_error(weighted, large)) > rtol:
        findings.append(_dependent(error))
    if len(set(counts)) == 1:
        findings.append(_equal_counts())
    measured = (
        Measure("number of micro-batches", len(counts)),
        *(Measure(f"tokens of micro-batch {n}", count) for n, count in enumerate(counts)),
        Measure(
            "largest difference", gradients.largest_error(own, large), bound=f"<= {rtol:g} x norm"
        ),
    )
    return Verdict("accumulation_matches", measured, tuple(findings))


def _findings(fits: dict[str, str]) -> list[Finding]:
    by_code: dict[str, list[str]] = {code: [] for code in WORDS}
    for name, word in fits.items():
        if word != RIGHT:
            by_code[word.partition(",")[0] or "gradient-differs"].append(name)
    return [
        Finding(
            code, WORDS[code][0], WORDS[code][1], tuple(names) if len(names) < len(fits) else ()
        )
        for code, names in by_code.items()
        if names
    ]


def _dependent(error: float) -> Finding:
    return Finding(
        "batch-dependent",
        "the large batch's own gradient is not the weighted mean of the micro-batches' gradients "
        f"(they differ by {error:.2g} of its norm), so that no accumulation can match it",
        batches.JOINING,
    )


def _equal_counts() -> Finding:
    return Finding(
        "equal-counts",
        "every micro-batch has as many tokens, so that a mean of means could not be told from the "
        "right one",
        "give micro-batches with different numbers of tokens, if yours ever differ",
        fails=False,
    )
