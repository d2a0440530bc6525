"""The text lines of a benchmark of FlashAttention-2, read and written.

The lines are those that scripts of this kind have long printed, so old logs can be judged anew and
other tools go on reading new ones. What is no such line is reported, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pytest_remotegpu.bench.thresholds import compressed_length

__all__ = ["Compressed", "Read", "Selection", "Sliding", "parse"]

NUMBER: Final = r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf(?:inity)?|nan))"
COUNT: Final = r"(0{0,9}[1-9]\d{0,8})"
"""A size: 0, and what is longer than any sequence, is none."""
TIMES: Final = rf"masked\s+{NUMBER}\s*ms\s+fa2\s+{NUMBER}\s*ms\s+speedup\s+x\s*{NUMBER}"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.ASCII)


SLIDING: Final = _pattern(rf"S={COUNT}\s+w={COUNT}\s+sliding\s+{TIMES}")
COMPRESSED: Final = _pattern(rf"S={COUNT}\s+l={COUNT}\s+d={COUNT}\s+compressed\s+{TIMES}")
SELECTION: Final = _pattern(
    rf"dense,\s*N={COUNT},\s*H={COUNT},\s*D={COUNT},\s*Dv={COUNT},\s*L={COUNT},\s*streams={COUNT},"
    rf"\s*tri_ms={NUMBER},\s*ref_ms={NUMBER},\s*speedup={NUMBER}x,\s*mae={NUMBER}"
)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Attention over a sliding window: masked against FlashAttention-2.

    :ivar length: of the sequence, in tokens.
    :ivar window: tokens that each one sees.
    :ivar masked_ms: time of the masked way, in milliseconds.
    :ivar fa2_ms: time of FlashAttention-2, likewise.
    :ivar speedup: how many times faster that is.
    """

    length: int
    window: int
    masked_ms: float
    fa2_ms: float
    speedup: float

    def __str__(self) -> str:
        return f"S={self.length} w={self.window} sliding {_times(self)}"


@dataclass(frozen=True, slots=True)
class Compressed:
    """Attention over compressed tokens: masked against FlashAttention-2.

    :ivar length: of the sequence, in tokens.
    :ivar block: tokens that are compressed into one.
    :ivar stride: tokens from one block's begin to the next one's.
    """

    length: int
    block: int
    stride: int
    masked_ms: float
    fa2_ms: float
    speedup: float

    @property
    def tokens(self) -> int:
        """The number of compressed tokens, the unit of this branch's threshold."""
        return compressed_length(self.length, self.block, self.stride)

    def __str__(self) -> str:
        return f"S={self.length} l={self.block} d={self.stride} compressed {_times(self)}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Attention over selected blocks: a Triton kernel against its reference.

    :ivar tokens: queries.
    :ivar heads: of the queries.
    :ivar width: of a head of queries and keys.
    :ivar value_width: of a head of values.
    :ivar length: selected tokens of a query, the unit of this branch's threshold.
    :ivar streams: CUDA streams.
    :ivar triton_ms: time of the kernel, in milliseconds.
    :ivar reference_ms: time of the reference, likewise.
    :ivar speedup: how many times faster the kernel is.
    :ivar error: mean absolute difference of the outputs.
    """

    tokens: int
    heads: int
    width: int
    value_width: int
    length: int
    streams: int
    triton_ms: float
    reference_ms: float
    speedup: float
    error: float

    def __str__(self) -> str:
        return (
            f"dense,N={self.tokens},H={self.heads},D={self.width},Dv={self.value_width},"
            f"L={self.length},streams={self.streams}, tri_ms={self.triton_ms:.3f}, "
            f"ref_ms={self.reference_ms:.3f}, speedup={self.speedup:.2f}x, mae={self.error:.4e}"
        )


def _times(row: Sliding | Compressed) -> str:
    return f"masked {row.masked_ms:.2f} ms  fa2 {row.fa2_ms:.2f} ms  speedup x{row.speedup:.2f}"


@dataclass(frozen=True, slots=True)
class Read:
    """What a text had.

    :ivar rows: in order, duplicates included.
    :ivar unread: lines that are neither empty nor rows, with their numbers from 1.
    """

    rows: tuple[Sliding | Compressed | Selection, ...]
    unread: tuple[tuple[int, str], ...]

    def complaint(self) -> str:
        """Say which lines were not understood; empty where all were."""
        if not self.unread:
            return ""
        lines = "\n".join(f"  line {number}: {line}" for number, line in self.unread)
        count = len(self.unread)
        return f"{count} {'line was' if count == 1 else 'lines were'} not understood:\n{lines}"


def parse(text: str | Iterable[str]) -> Read:
    """Read the rows of a text.

    Numbers may have an exponent, or be ``inf`` or ``nan``: such a row is a row.

    :param text: a text, or its lines.
    """
    rows: list[Sliding | Compressed | Selection] = []
    unread: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines() if isinstance(text, str) else text, 1):
        stripped = line.strip()
        row = _row(stripped)
        if row is not None:
            rows.append(row)
        elif stripped:
            unread.append((number, line.rstrip("\r\n")))
    return Read(tuple(rows), tuple(unread))


def _row(line: str) -> Sliding | Compressed | Selection | None:
    if found := SLIDING.fullmatch(line):
        length, window, *times = found.groups()
        return Sliding(int(length), int(window), *map(float, times))
    if found := COMPRESSED.fullmatch(line):
        length, block, stride, *times = found.groups()
        return Compressed(int(length), int(block), int(stride), *map(float, times))
    if found := SELECTION.fullmatch(line):
        counts, numbers = found.groups()[:6], found.groups()[6:]
        return Selection(*map(int, counts), *map(float, numbers))
    return None
