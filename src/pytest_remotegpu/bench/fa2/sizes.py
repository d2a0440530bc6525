"""How many bytes a column needs for a problem at least, so that what can't fit is not tried.

Values only. A lower bound: what a kernel takes for itself is not known here, and a lack of memory
that comes all the same is told when it comes.
"""

from __future__ import annotations

from typing import Final

from pytest_remotegpu.bench.fa2 import masks
from pytest_remotegpu.bench.fa2.columns import FLASH_ATTN, Column
from pytest_remotegpu.bench.fa2.limits import Device
from pytest_remotegpu.bench.fa2.rows import FA2, MASKED, Branch, Direction, Problem

__all__ = ["inputs", "lack", "least"]

HALF: Final = 2
"""Bytes of a number in float16 or bfloat16."""
USABLE: Final = 0.95
"""Of a card's memory; the rest is CUDA's own."""
GIB: Final = 2**30


def inputs(problem: Problem) -> int:
    """Give the bytes of one set of inputs, the incoming gradient among them."""
    widths = problem.width + problem.value_width
    heads = problem.groups * problem.heads
    queries = problem.batch * problem.length * heads * widths
    return HALF * (queries + problem.batch * masks.keys(problem) * problem.groups * widths)


def least(column: Column, problem: Problem) -> int:
    """Give the bytes that a column needs at least, its inputs among them."""
    both = 2 if problem.direction is Direction.BACKWARD else 1
    total = inputs(problem) * both
    many = masks.keys(problem)
    widths = problem.width + problem.value_width
    if column.name == MASKED:
        shared = problem.batch * many * problem.groups * problem.heads * widths * HALF * both
        # the mask itself, and what torch adds to the scores in its place
        return total + problem.length * many * (1 + HALF) + (shared if problem.heads > 1 else 0)
    gathers = column.name in {FA2, FLASH_ATTN} and problem.branch is Branch.COMPRESSED
    if gathers:
        copied = problem.batch * many * (many + 1) // 2
        total += copied * problem.groups * widths * HALF * both
    return total


def lack(column: Column, problem: Problem, device: Device) -> str:
    """Say why a column can't fit into a card's memory; nothing where it can, or nobody knows."""
    needed = least(column, problem)
    if not device.memory or needed <= device.memory * USABLE:
        return ""
    what = WHAT.get(column.name, "its inputs")
    return (
        f"it needs {needed / GIB:.1f} GiB at least ({what}), and {device.name} has "
        f"{device.memory / GIB:.1f} GiB: give shorter sequences, or a smaller batch"
    )


WHAT: Final = {
    MASKED: "a mask of queries x keys, and what torch makes of it",
    FA2: "inputs, and in the compressed branch a copy of the keys for each segment",
    FLASH_ATTN: "inputs, and in the compressed branch a copy of the keys for each segment",
}
