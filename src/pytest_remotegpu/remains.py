"""What a session says of rented machines that are still there after it.

Values in, values out; knows no backend and no clock but the one that people read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["words"]

MINUTE: Final = 60


def words(left: Iterable[Sequence[object]]) -> Iterable[str]:
    """Say in lines what is left, until when, and what ends it at once.

    :param left: for each machine the name by which it is ended, what it is called, until when it
        stays, in seconds since the epoch, and whether it is known to be there, without work.
    """
    rests: dict[str, dict[str, float]] = {}
    unsure: dict[str, float] = {}
    for of, machine, until, sure in left:
        assert isinstance(until, float | int)
        if sure:
            known = rests.setdefault(str(of), {})
            known[str(machine)] = max(until, known.get(str(machine), 0.0))
        else:
            unsure[str(of)] = max(until, unsure.get(str(of), 0.0))
    if not rests and not unsure:
        yield "left running: nothing"
    for of, machines in rests.items():
        one = len(machines) == 1
        yield (
            f"left running: {len(machines)} machine{'' if one else 's'} without work, paid for "
            f"until {_clock(max(machines.values()))}; to end {'it' if one else 'them'} now: "
            f"remotegpu stop {of}"
        )
    for of, until in unsure.items():
        yield (
            "left running: a machine may still start or be at work, since the end of that was not "
            f"confirmed; it ends by itself by {_clock(until)}; to end it now: remotegpu stop {of}"
        )


def _clock(seconds: float) -> str:
    """Write a time of the day, the next full minute."""
    return time.strftime("%H:%M", time.localtime(math.ceil(seconds / MINUTE) * MINUTE))
