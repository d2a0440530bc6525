"""Where ranks find each other: a store that the launcher holds, on a port that nobody chose.

Imports torch, late; where there is none, a port is kept that is free. Knows no rank.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import socket
from typing import Any, Final

from pytest_remotegpu.worker.ranks.variables import ADDRESS

__all__ = ["Rendezvous"]

KEPT: Final = 64
"""Stores that are kept for groups which outlive their test."""
TIMEOUT: Final = dt.timedelta(seconds=300)


def load() -> bool:
    """Import torch, so that processes forked from here have it; say whether it has stores."""
    with contextlib.suppress(ImportError):
        return bool(importlib.import_module("torch.distributed").is_available())
    return False


class Rendezvous:
    """A store for each test that needs one; it begins empty.

    :param own: whether there is a store at all. :ivar port: where it is now.
    """

    def __init__(self, *, own: bool) -> None:
        self.own = own
        self._stores: list[Any] = []
        self._reserved: socket.socket | None = None
        self.port = 0
        self._begin()

    def _begin(self) -> None:
        if self.own:
            store: Any = importlib.import_module("torch.distributed").TCPStore(
                ADDRESS, 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT
            )
            self._fresh = store.num_keys()
            self._stores.append(store)
            del self._stores[:-KEPT]
            self.port = store.port
            return
        if self._reserved is not None:
            self._reserved.close()
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((ADDRESS, 0))  # never listens: a rank may
        self.port = self._reserved.getsockname()[1]

    def renew(self) -> int:
        """Give the port for the next test, whose ranks find nothing there of an earlier one."""
        if not self.own or self._stores[-1].num_keys() > self._fresh:
            self._begin()
        return self.port
