"""Ranks in words: which ones, and what several of them said alike. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["collective", "folded", "named", "said_of"]

ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,16}")
FRAME: Final = re.compile(r'^  File "(?P<file>[^"]*)", line \d+ in (?P<function>.*)$', re.MULTILINE)
WRAPPERS: Final = frozenset({"wrapper", "inner", "wrapped", "__exit__", "__enter__"})


def named(ranks: Iterable[int]) -> str:
    """Name ranks, such as ``rank 1`` or ``ranks 0-2, 5``."""
    numbers = sorted(set(ranks))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"rank{'s' if len(numbers) != 1 else ''} {', '.join(parts)}"


def said_of(ranks: Iterable[int], how: str, world: int = 0, mark: str = "") -> str:
    """Say what has become of ranks, such as ``ranks 0-1 of 4 were killed``.

    :param how: of one of them. :param world: how many there are; 0 to leave that out.
    :param mark: what stands behind the ranks.
    """
    numbers = sorted(set(ranks))
    several = len(numbers) > 1 and how.startswith("was ")
    text = f"were {how.removeprefix('was ')}" if several else how
    return f"{named(numbers)}{f' of {world}' if world else ''}{mark} {text}"


def folded(texts: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """Put together the ranks that say the same, but for the addresses of objects.

    :param texts: what each rank says.
    :return: the ranks of each different text, and the text as the first of them has it.
    """
    found: dict[str, tuple[list[int], str]] = {}
    for rank, text in texts.items():
        found.setdefault(ADDRESS.sub("0x", text), ([], text))[0].append(rank)
    return list(found.values())


def collective(stack: str) -> str:
    """Name the function of ``torch.distributed`` that a stack is in; empty where it is in none.

    :param stack: as faulthandler writes it, innermost frame first.
    """
    name = ""
    for frame in FRAME.finditer(stack):
        if "/torch/distributed/" not in frame["file"].replace("\\", "/"):
            if name:
                break
        elif frame["function"] not in WRAPPERS:
            name = frame["function"]
    return name
