"""What a session says of rented machines that are still there after it.

Values in, values out; knows no backend and no clock but the one that people read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Final

__all__ = ["GONE", "UNKNOWN", "Left", "later", "settle", "words"]

MINUTE: Final = 60
GONE: Final = 0.0
"""Stands for the time until which a machine stays that is known to have ended."""

Left = tuple[str, str, float, bool]
"""A machine: the name by which it is ended, what it is called, until when it stays, in seconds
since the epoch, and whether it is known to be there, without work."""


UNKNOWN: Final[list[Left]] = [("", "", math.inf, False)]
"""What a process may have had that did not live to tell."""


def later(left: Iterable[Left], seconds: float) -> list[Left]:
    """Give what a process has told so many seconds before its death: until then it has used it."""
    return [
        (of, machine, until + (0.0 if sure else seconds), sure) for of, machine, until, sure in left
    ]


def settle(left: Iterable[Left], now: float) -> list[Left]:
    """Give what is there now, each machine once: what several have told of it is as of their ends.

    One that has ended for somebody is gone for all, and of others the latest time counts.

    >>> a = [("modal:a", "ta-1", 100.0, True), ("modal:a", "ta-2", 150.0, True)]
    >>> settle([*a, ("modal:a", "ta-1", 170.0, True), ("modal:a", "ta-2", GONE, True)], 120.0)
    [('modal:a', 'ta-1', 170.0, True)]
    """
    found: dict[tuple[str, str, int], Left] = {}
    gone = set()
    for number, each in enumerate(left):
        of, machine, until, _ = each
        if until == GONE:
            gone.add((of, machine))
        key = (of, machine, 0 if machine else number)
        if key not in found or until > found[key][2]:
            found[key] = each
    return [each for each in found.values() if each[2] > now and each[:2] not in gone]


def words(left: Iterable[Left]) -> Iterable[str]:
    """Say in lines what is left, until when, and what ends it at once.

    :param left: as :func:`settle` gives it.
    """
    rests: dict[str, list[float]] = {}
    unsure: dict[str, list[float]] = {}
    for of, _machine, until, sure in left:
        (rests if sure else unsure).setdefault(of, []).append(until)
    if not rests and not unsure:
        yield "left running: nothing"
    for of, times in rests.items():
        one = len(times) == 1
        yield (
            f"left running: {len(times)} machine{'' if one else 's'} without work, paid for "
            f"until {_clock(max(times))}; to end {'it' if one else 'them'} now: remotegpu stop {of}"
        )
    for of, times in unsure.items():
        one = len(times) == 1
        by = f" by {_clock(max(times))}" if math.isfinite(max(times)) else ""
        ends = f"it ends by itself{by}" if one else f"they end by themselves{by}"
        stop = f"remotegpu stop {of}" if of else "remotegpu ps names what is up"
        yield (
            f"left running: {'a machine' if one else f'{len(times)} machines'} may still start or "
            f"be at work, since the end of that was not confirmed; {ends}; to end "
            f"{'it' if one else 'them'} now: {stop}"
        )


def _clock(seconds: float) -> str:
    """Write a time of the day, the next full minute."""
    return time.strftime("%H:%M", time.localtime(math.ceil(seconds / MINUTE) * MINUTE))
