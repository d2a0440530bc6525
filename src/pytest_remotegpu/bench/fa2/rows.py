"""What a sweep gives: one row for each problem, way to compute it, and regime.

Values only; the sweep makes them, documents and reports read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["FA2", "FLASH", "MASKED", "Branch", "Direction", "Parity", "Problem", "Regime", "Row"]

MASKED: Final = "masked"
"""The column of SDPA with a mask, in which all else is judged first."""
FLASH: Final = "sdpa-flash"
"""The column of SDPA pinned to FlashAttention, the second reference."""
FA2: Final = "fa2"
"""The column of FlashAttention-2 with a window, by torch's bundled kernels."""


class Branch(StrEnum):
    """Which tokens a query sees."""

    SLIDING = "sliding"
    COMPRESSED = "compressed"


class Direction(StrEnum):
    """What is timed."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Regime(StrEnum):
    """Which time counts.

    Eager has Python and launches in it, as a caller without CUDA graphs has; device is the card's
    own time, as the replay of a graph has it.
    """

    EAGER = "eager"
    DEVICE = "device"


class Parity(StrEnum):
    """What a comparison with float32 said; only the first allows a recommendation."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Problem:
    """One attention to compute.

    :ivar branch: which tokens a query sees.
    :ivar direction: forward, or backward alone.
    :ivar dtype: ``float16`` or ``bfloat16``.
    :ivar batch: sequences.
    :ivar groups: of key/value heads.
    :ivar heads: of queries in each group.
    :ivar width: of a head of queries and keys.
    :ivar value_width: of a head of values.
    :ivar length: of a sequence, in tokens.
    :ivar window: tokens that each one sees, itself among them; ``None`` for the compressed branch.
    :ivar block: tokens that are compressed into one; ``None`` for the sliding branch.
    :ivar stride: tokens from one block's begin to the next one's; ``None`` for the sliding branch.
    """

    branch: Branch
    direction: Direction
    dtype: str
    batch: int
    groups: int
    heads: int
    width: int
    value_width: int
    length: int
    window: int | None = None
    block: int | None = None
    stride: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One way to compute one problem, timed.

    :ivar column: its name, such as :data:`MASKED`.
    :ivar regime: which time.
    :ivar times: milliseconds, one a round; the rounds of all columns of a problem, regime and
        repetition belong together. Empty where it was not timed.
    :ivar kernels: that ran, by the profiler; empty where no profiler looked (a CPU).
    :ivar parity: against float32.
    :ivar why: the reason where it was not timed, or parity failed; empty otherwise.
    :ivar repetition: of the whole sweep, from 1.
    """

    problem: Problem
    column: str
    regime: Regime
    times: tuple[float, ...] = ()
    kernels: tuple[str, ...] = ()
    parity: Parity = Parity.NOT_CHECKED
    why: str = ""
    repetition: int = 1
