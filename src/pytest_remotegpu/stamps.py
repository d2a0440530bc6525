"""What the file system says of a file without its content: enough to see that it was touched.

A stamp is five numbers. Two equal stamps of one path mean equal content, unless the first was taken
in the very moment of a change: a clock that ticks every few milliseconds can't tell two writes
within one tick apart. :func:`is_fresh` names such stamps, which prove nothing, as git does with its
"racily clean" entries. It looks at the time of change (ctime), which no program can set; where the
system keeps none (:data:`RELIABLE`), stamps prove nothing at all.

Values in, values out, apart from the look at the files; knows no snapshot, no tree and no wire.
"""

from __future__ import annotations

import os
import tempfile
import time
from array import array
from collections.abc import Iterable
from typing import Final

__all__ = [
    "ABSENT",
    "COARSE_TICK",
    "CTIME",
    "MODE",
    "RELIABLE",
    "SIZE",
    "WIDTH",
    "Stamp",
    "differing",
]
__all__ += ["fresh", "is_fresh", "now", "of", "pick", "survey"]

Stamp = tuple[int, int, int, int, int]
"""Modification time, size, inode, time of change, mode."""

WIDTH: Final = 5
SIZE: Final = 1
CTIME: Final = 3
MODE: Final = 4
ABSENT: Final[Stamp] = (-1, -1, -1, -1, -1)
"""Of a path at which nothing is, or nothing that may be looked at."""
RELIABLE: Final = os.name == "posix"
"""Whether the system notes each change of a file; Windows knows when it was made only."""

_TICK: Final = 20_000_000
"""Nanoseconds: the longest tick of a kernel's clock is 10 ms."""
_COARSE: Final = 1_000_000
COARSE_TICK: Final = 2_000_000_000
"""Nanoseconds, of file systems that keep whole seconds."""


def of(status: os.stat_result) -> Stamp:
    """Take what matters from a file's status."""
    return (
        status.st_mtime_ns,
        status.st_size,
        status.st_ino,
        status.st_ctime_ns,
        status.st_mode,
    )


def survey(folder: str, paths: Iterable[str]) -> array[int]:
    """Give the stamps of many paths one after the other, links not followed.

    :param folder: what the paths are relative to.
    """
    found: array[int] = array("q")
    add, look = found.extend, os.lstat
    prefix = os.path.join(folder, "")  # noqa: PTH118 -- one text for all, in the hottest loop
    for path in paths:
        try:
            status = look(prefix + path)
        except (OSError, ValueError):
            add(ABSENT)
            continue
        add(
            (
                status.st_mtime_ns,
                status.st_size,
                status.st_ino,
                status.st_ctime_ns,
                status.st_mode,
            )
        )
    return found


def pick(stamps: array[int], index: int) -> Stamp:
    """Give one stamp of many."""
    first, size, inode, changed, mode = stamps[index * WIDTH : (index + 1) * WIDTH]
    return first, size, inode, changed, mode


def is_fresh(changed: int, at: int) -> bool:
    """Say whether a file had changed so lately that it may have changed again unseen.

    :param changed: its time of change. :param at: when it was looked at, or some time before, by
        the clock of its file system; see :func:`now`.
    """
    return changed >= at - (_TICK if changed % _COARSE else COARSE_TICK)


def now(folder: str) -> int:
    """Give the time in nanoseconds by the clock of a folder's file system, or this host's if older.

    A server's clock may go before or after this host's; the older one is always safe.
    """
    here = time.time_ns()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return min(here, os.fstat(file.fileno()).st_ctime_ns)
    except OSError:
        return here


def differing(now: array[int], before: array[int]) -> list[int]:
    """Give the places at which two surveys of the same paths differ."""
    pending = [(0, len(now) // WIDTH)]
    found: list[int] = []
    while pending:  # halves that are equal are equal as bytes, and mostly all but one are
        first, last = pending.pop()
        one, other = now[first * WIDTH : last * WIDTH], before[first * WIDTH : last * WIDTH]
        if one.tobytes() == other.tobytes():
            continue
        if last - first == 1:
            found.append(first)
        else:
            middle = (first + last) // 2
            pending += [(first, middle), (middle, last)]
    return found


def fresh(times: array[int], at: int) -> list[int]:
    """Give the places of those times of change that are too fresh; see :func:`is_fresh`."""
    oldest = at - COARSE_TICK
    if not times or max(times) < oldest:
        return []
    late = [place for place, time in enumerate(times) if time >= oldest]
    return [place for place in late if is_fresh(times[place], at)]
