"""The cards of one order: taken before its tests run, given back when they stand in the way.

Knows leases, and says how it goes by events; knows no runner and no channel.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pytest_remotegpu.cards import Card
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker.leases import FOLDER, Lease

__all__ = ["Hold", "shape_of"]

POLL: Final = 0.1
"""Seconds between two tries to take cards."""
TURN: Final = 5.0
"""Seconds for which a busy holder keeps cards although others wait for them."""
SLOTS: Final = 256


def shape_of(order: orders.Order) -> Shape:
    """Say what an order asks of the host."""
    needs = order.needs
    return Shape(order.gpus, tuple(needs.type), needs.min_memory_gib, needs.min_capability)


class Hold:
    """The cards of one order.

    :param cards: what the host shows. :param pretend: the number of pretend cards, where cards are
        pretended.
    :param emit: is told how it goes.
    :raises FarSideError: where this host will never have what is asked for.
    """

    def __init__(
        self,
        order: orders.Order,
        cards: list[Card],
        pretend: int | None,
        emit: Callable[[events.Event], None],
        folder: Path = FOLDER,
    ) -> None:
        self._emit = emit
        self._wait = order.limits.wait
        self._shape = shape_of(order)
        self._pretend = pretend
        self._lease: Lease | None = None
        self._since: float | None = None
        self._taken_at = 0.0
        self._told = ""
        self._slot: int | None = None
        if pretend is not None and order.gpus > pretend:
            raise FarSideError(f"{Shape(order.gpus)} asked for, and this host pretends {pretend}")
        if pretend is None and order.gpus:
            self._lease = Lease(cards, self._shape, folder)

    @property
    def locks(self) -> list[int]:
        """The descriptors that the processes on the cards hold too."""
        return self._lease.locks if self._lease is not None else []

    def visible(self) -> str | None:
        """Give what ``CUDA_VISIBLE_DEVICES`` is to be; ``None`` where it stays as it is."""
        if self._pretend is not None:
            return ""
        if self._lease is None:
            return None
        return ",".join(card.token for card in self._lease.held)

    def ready(self) -> bool:
        """Try to have the cards; say whether they are there.

        :raises FarSideError: once the wait has taken too long.
        """
        if self._lease is None or self._lease.complete:
            return True
        now = time.monotonic()
        self._since = self._since or now
        if self._lease.take():
            self._tell_taken(now - self._since)
            self._since, self._taken_at = None, now
            return True
        self._tell_waiting(now - self._since)
        return False

    def _tell_taken(self, seconds: float) -> None:
        assert self._lease is not None
        if self._told:
            self._emit(events.Waiting(b""))
            self._told = ""
        words = [to_text(card.in_words()) for card in self._lease.held]
        self._emit(events.Leased(words, seconds))
        for text in self._lease.strangers():
            self._emit(events.Note(to_text(text)))

    def _tell_waiting(self, seconds: float) -> None:
        assert self._lease is not None
        text = self._lease.holders()
        if self._wait and seconds > self._wait:
            raise FarSideError(
                f"{self._shape} not to be had within {self._wait:g} s (--remote-wait): "
                f"{self._lease.holders()}"
            )
        if text != self._told:
            self._told = text
            self._emit(events.Waiting(to_text(text)))

    def in_the_way(self, *, idle: bool) -> bool:
        """Say whether others wait for these cards, and it is time to let them.

        :param idle: whether nothing runs on them.
        """
        if self._lease is None or not self._lease.held:
            return False
        due = idle or time.monotonic() - self._taken_at > TURN
        return due and self._lease.wanted()

    def give_back(self) -> None:
        """Let the cards go for now."""
        if self._lease is not None:
            self._lease.give_back()

    def caches(self) -> str:
        """Give a folder for compilers of kernels, which no other process uses meanwhile.

        It is the same one in a later session that runs beside as many others.

        :return: its path; empty where there is none, or no real card.
        """
        if self._lease is None:
            return ""
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pytest-remotegpu")
        for number in range(SLOTS if self._slot is None else 0):
            fd = -1
            try:
                (base / f"kernels-{number}").mkdir(parents=True, exist_ok=True)
                fd = os.open(base / f"kernels-{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
            except OSError:
                return ""
            else:
                self._slot, self._kernels = fd, str(base / f"kernels-{number}")
                break
        return self._kernels if self._slot is not None else ""

    def close(self) -> None:
        """Let everything go."""
        if self._lease is not None:
            self._lease.close()
        if self._slot is not None:
            with contextlib.suppress(OSError):
                os.close(self._slot)
            self._slot = None
