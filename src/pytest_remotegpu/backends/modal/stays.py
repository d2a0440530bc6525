"""A container behind one call: since when it is paid for, and whether it is there after the end.

Values in, values out: what a courier says, and clocks, are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_remotegpu.backends.base import Left, Rental
from pytest_remotegpu.backends.modal.container import LEASE

__all__ = ["Stay", "left", "window"]

SHORTEST: Final = 2
LONGEST: Final = 3600
"""Seconds without work between which Modal lets a container stay."""
GONE: Final = 0.0
"""Stands for the time until which a container stays that has ended."""


def window(idle: float) -> int:
    """Give the seconds for which Modal lets a container stay that should stay for so many.

    >>> window(0), window(59.6), window(86400)
    (2, 60, 3600)
    """
    return max(SHORTEST, min(LONGEST, round(idle)))


@dataclass
class Stay:
    """What is known of one call.

    :ivar app: whose function is called. :ivar keeps: whether a container outlasts the call.
    :ivar rental: the container. :ivar gone: whether that has ended.
    :ivar end: what the courier said of the call's end; ``None`` where it did not come to that.
    :ivar ended: when it did, in seconds since the epoch.
    """

    keeps: bool
    app: str = ""
    rental: Rental = field(default_factory=Rental)
    gone: bool = False
    end: dict[str, Any] | None = None
    ended: float = 0.0

    def __post_init__(self) -> None:
        """Have a container that does not outlast the call be paid for until then."""
        self.rental.stays = self.keeps

    def hear(self, said: dict[str, Any], now: float, date: float) -> None:
        """Take in what a courier says.

        :param now: by the monotonic clock. :param date: in seconds since the epoch.
        """
        rental = self.rental
        if said.get("builds"):
            rental.builds = now
        elif "asked" in said:
            rental.asked = now
        elif "container" in said:
            age = said["age"] if isinstance(said["age"], int | float) else 0.0
            asked = now if rental.asked is None else rental.asked
            rental.machine = said["container"]
            rental.began = max(min(now - age, now), asked)
        elif "gone" in said:
            rental.had, rental.stays, self.gone = True, False, True
        elif "moved" in said:  # it is gone, and another one is there in its place
            rental.had, rental.machine = True, said["moved"]
        elif "left" in said:
            self.end, self.ended = said["left"], date
            self._count(now)

    def _count(self, now: float) -> None:
        """Have what may be rented without having said so be paid for.

        A call that could not be cancelled may have had a container all the time. Where one was
        cancelled, a container may be about to start all the same, only to stay without work; and
        where one was only withdrawn, the service may still start one.
        """
        end = self.end or {}
        if self.rental.machine or self.gone:
            return
        if not end.get("cancelled") and not self.is_over:
            self.rental.had = True
        elif self.keeps and (end.get("containers") or self._withdrawn):
            self.rental.began = now

    def close(self) -> None:
        """Take note that its courier says no more, be that after its last word or before."""
        if self.end is None and self.rental.asked is not None and not self.rental.machine:
            self.rental.had = True

    @property
    def is_over(self) -> bool:
        """Whether the service has confirmed that the call has ended."""
        end = self.end or {}
        return bool(end.get("cancelled") if self.keeps else end.get("app"))

    @property
    def _withdrawn(self) -> bool:
        """Whether no container can begin the call, and one may start for it all the same."""
        return bool((self.end or {}).get("withdrawn"))

    def left(self, idle: float, date: float) -> Left | None:
        """Say what is still there of it, or that its container is known to have ended.

        :param idle: seconds that a container stays without work.
        """
        of, machine = f"modal:{self.app}", self.rental.machine
        if self.gone and machine:
            return Left(of, machine, GONE, sure=True)
        if self.rental.asked is None or self.gone:
            return None
        if not self.is_over or (self.keeps and not machine and self._withdrawn):
            return Left(of, machine, (self.ended or date) + LEASE + idle, sure=False)
        if not self.keeps or (not machine and self.end and self.end["containers"] == 0):
            return None
        return Left(of, machine, self.ended + idle, sure=bool(machine))


def left(stays: Iterable[Stay], idle: float, date: float) -> list[Left]:
    """Say which containers are still there, each once: as the last call that it had has left it.

    Those that are known to have ended are among them, since others may have had them, too.
    """
    found: dict[str, Left | None] = {}
    for number, stay in enumerate(stays):
        found[stay.rental.machine or str(number)] = stay.left(idle, date)
    there = [each for each in found.values() if each is not None]
    return [each for each in there if each.until > date or each.until == GONE]
