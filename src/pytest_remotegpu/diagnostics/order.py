"""The checks of the suite in their order, why they stand there, and which need which.

Data only: ``suite`` and ``ranked`` have a function for each name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MODEL", "STEPS", "Step", "names"]


@dataclass(frozen=True, slots=True)
class Step:
    """One check of the suite.

    :ivar name: of the check, and of its files.
    :ivar about: what it asks, and why here.
    :ivar needs: checks without whose passing this one would say nothing new.
    :ivar option: what asks for it; empty for one that is always made.
    """

    name: str
    about: str
    needs: tuple[str, ...] = ()
    option: str = ""


MODEL: Final = Step("model", "can the model and its batch be made?")
"""Stands in a report only where they can't."""

SOUND: Final = ("batch", "first_step")

STEPS: Final = (
    Step(
        "batch",
        "are inputs finite, indices and labels in range, targets those of their inputs? "
        "What is wrong with the data looks like a fault of everything else",
    ),
    Step(
        "first_step",
        "does one step give a finite loss, and finite gradients? Without them nothing can learn",
        ("batch",),
    ),
    Step(
        "initial_loss",
        "does the loss begin where guessing is, at ln(classes)? It costs one forward pass",
        SOUND,
    ),
    Step(
        "overfit_sample",
        "can one sample be learnt by heart? What is wrong with a training step shows here alone",
        SOUND,
    ),
    Step(
        "overfit_batch",
        "can three samples be? They have to be told apart, for which one sample does not ask",
        (*SOUND, "overfit_sample"),
    ),
    Step(
        "accumulation_matches",
        "are gradients over micro-batches those of the whole batch? It is about how you train",
        SOUND,
    ),
    Step(
        "attention_parity",
        "do the kernels of scaled_dot_product_attention agree, and which of them runs?",
        ("batch",),
    ),
    Step(
        "compile_parity",
        "does torch.compile give what eager code gives? It takes longest of those in one process",
        SOUND,
        "--compile",
    ),
    Step(
        "loss_scale",
        "is the loss of several ranks that of one rank on all their data?",
        SOUND,
        "--ranks",
    ),
    Step(
        "gradients_synchronised",
        "do the ranks end up with the gradients of one process on all their data?",
        SOUND,
        "--ranks",
    ),
    Step(
        "fsdp_matches",
        "does a sharded model train as the plain one, keep its dtypes and go on from a checkpoint?",
        (*SOUND, "gradients_synchronised"),
        "--ranks",
    ),
    # a further check of ranks is a line here, with the option --ranks, and an entry of
    # ranked.CHECKS; nothing else knows the names
)
"""From what is cheap and may be at the bottom of the rest, to what is dear and builds on it."""


def names() -> tuple[str, ...]:
    """Give all names, in order."""
    return tuple(step.name for step in STEPS)
