"""Where ranks find each other: a store that the launcher holds, on a port that nobody chose.

Imports torch, late; where there is none, a port is kept that is free. Knows no rank.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.worker.ranks import recorder
from pytest_remotegpu.worker.ranks.variables import ADDRESS

__all__ = ["Rendezvous"]

TORCH: Final = "torch"
KEPT: Final = 64
"""Stores that are kept for groups which outlive their test."""
TIMEOUT: Final = dt.timedelta(seconds=300)


def load(files: Iterable[str]) -> None:
    """Import torch where these files seem to use it, so that processes forked from here have it."""
    if TORCH in sys.modules or any(map(_names_torch, files)):
        _has_stores()
        recorder.load()


def _names_torch(path: str) -> bool:
    try:
        return TORCH.encode() in Path(path).read_bytes()
    except OSError:
        return False


def _has_stores() -> bool:
    with contextlib.suppress(ImportError):
        return bool(importlib.import_module("torch.distributed").is_available())
    return False


def _uses_torch(pid: int) -> bool:
    """Say whether a process has loaded torch."""
    try:
        return "/libtorch" in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    except OSError:
        return False


class Rendezvous:
    """A store for each test that needs one; it begins empty.

    :ivar port: where it is now. :ivar store: whether there is one at all, or a free port only.
    """

    def __init__(self) -> None:
        self.store = TORCH in sys.modules and _has_stores()
        self._stores: list[Any] = []
        self._reserved: socket.socket | None = None
        self.port = 0
        self._begin()

    def look(self, ranks: Iterable[int]) -> None:
        """Hold a store from now on if ranks have come by torch, be it by a module of a module.

        :param ranks: their processes.
        """
        if not self.store and any(map(_uses_torch, ranks)) and _has_stores():
            self.store = True
            self._begin()

    def _begin(self) -> None:
        if self.store:
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

    def renew(self) -> tuple[int, bool]:
        """Give what the next test is told: ranks find nothing there of an earlier one."""
        if not self.store or self._stores[-1].num_keys() > self._fresh:
            self._begin()
        return self.port, self.store
