"""What a backend has found: of what it needs, of what is running, of what a session leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Left", "Running"]


@dataclass(frozen=True)
class Running:
    """Something of this user's that a backend has running.

    :ivar id: what it is called, without blanks. :ivar about: a line about it.
    :ivar busy: whether a session uses it now, or may. :ivar run: the id of the run that it belongs
        to alone; empty where it serves others as well, or the run has none.
    :ivar commands: the vendor's own commands, which show more of it or do the same.
    :ivar use: what is known of its use, in words, where it is not plainly in use or without any.
    :ivar paid: whether it is paid for now; ``None`` where nobody knows. What is not is ended only
        where that is asked for.
    """

    id: str
    about: str
    busy: bool = False
    run: str = ""
    commands: Sequence[str] = ()
    use: str = ""
    paid: bool | None = None


@dataclass(frozen=True)
class Finding:
    """What a backend has found of one thing that it needs.

    :ivar name: of the thing, two or three words that begin with the backend's name.
    :ivar state: ``warn`` for what may be in the way, ``FAIL`` for what is.
    :ivar text: what was found. :ivar fix: what to do about it; empty where all is well.
    """

    name: str
    state: Literal["ok", "warn", "FAIL"]
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Left:
    """A machine that a session leaves behind, or may do.

    :ivar of: the name by which ``remotegpu stop`` ends it. :ivar machine: what it is called; empty
        where it has not said so. :ivar until: when it ends by itself, in seconds since the epoch; 0
        where it has.
    :ivar sure: whether it is known to be there, and without work.
    """

    of: str
    machine: str
    until: float
    sure: bool
