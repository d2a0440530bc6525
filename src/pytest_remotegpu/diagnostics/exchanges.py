"""What becomes of gradients on their way between ranks: the usual distortions, and their words.

Knows gradients, and no check and no process group.
"""

from __future__ import annotations

from typing import Final

from pytest_remotegpu.diagnostics import gradients
from pytest_remotegpu.diagnostics.verdict import Finding

__all__ = ["RIGHT", "candidates", "findings", "strangers", "twins"]

RIGHT: Final = "right"
WORDS: Final = {
    "dropped-all-reduce": (
        "hold the gradient of this rank's own data: nothing was exchanged for them",
        (
            "see that they are inside the wrapped model and called through it, that no_sync() is "
            "not open, and that an all-reduce of your own visits all parameters, also those of one "
            "rank only"
        ),
    ),
    "sum-instead-of-mean": (
        "hold the sum over the ranks in place of the mean",
        "divide by the world size after all_reduce(SUM), or use ReduceOp.AVG",
    ),
    "divided-twice": (
        "hold the mean over the ranks, divided by the world size once more",
        "see where the loss or the gradient is divided although DDP or FSDP averages anyway",
    ),
    "mean-of-means": (
        "hold the mean of the ranks' gradients, not weighted by how much data each rank has",
        (
            "scale each rank's loss by its tokens times the world size over the tokens of all "
            "ranks; loss_scale shows the numbers"
        ),
    ),
    "gradient-differs": (
        "hold a gradient that is neither that of the joined batch nor a usual distortion of it",
        (
            "look for clipping or a step before this look, a layer whose samples depend on each "
            "other (BatchNorm), randomness, or a dtype of communication that is too small"
        ),
    ),
}
"""What is so, and what to do, by code; in the order in which findings are given."""


def candidates(
    mine: gradients.Gradients,
    joined: gradients.Gradients,
    own: gradients.Gradients,
    mean: gradients.Gradients,
    ranks: int,
) -> dict[str, tuple[float, gradients.Gradients]]:
    """Give what gradients may be, the right ones first."""
    return {
        RIGHT: (1, joined),
        "dropped-all-reduce": (1, own),
        "dropped-all-reduce, divided": (1 / ranks, own),
        "sum-instead-of-mean": (ranks, joined),
        "sum-instead-of-mean, of means": (ranks, mean),
        "divided-twice": (1 / ranks, joined),
        "divided-twice, of means": (1 / ranks, mean),
        "mean-of-means": (1, mean),
        "dropped-all-reduce, scaled": (1, gradients.scaled_to(own, mine)),
    }


def findings(everyones: list[dict[str, str]]) -> list[Finding]:
    """Group what does not fit by its code; a parameter has the worst word of all ranks."""
    by_code: dict[str, list[str]] = {code: [] for code in WORDS}
    for name in everyones[0]:
        words = {fit[name].partition(",")[0] or "gradient-differs" for fit in everyones} - {RIGHT}
        for code in words:
            by_code[code].append(name)
    return [
        Finding(
            code,
            f"{len(names)} of {len(everyones[0])} parameters {WORDS[code][0]}",
            WORDS[code][1],
            tuple(names),
        )
        for code, names in by_code.items()
        if names
    ]


def strangers(names: tuple[str, ...]) -> Finding:
    """Say that ranks do not begin with the same weights."""
    return Finding(
        "different-weights",
        f"{len(names)} parameters have other values on some ranks before training begins",
        "seed each rank alike before the model is made, or broadcast from rank 0 as DDP does",
        names,
    )


def twins(ranks: tuple[str, ...]) -> Finding:
    """Say that ranks have the same data."""
    return Finding(
        "same-data",
        "ranks have the same batch: with it a missing all-reduce changes nothing that could be "
        "seen, and training repeats itself",
        "look at the sampler (DistributedSampler with this rank and world size, set_epoch) and at "
        "seeds that should depend on the rank",
        ranks,
    )
