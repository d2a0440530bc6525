"""What each test did with the GPU memory of this process, and whether too much of it stays behind.

Knows torch's allocator through ``memory`` and the driver through ``cuda``; knows no pytest.
"""

from __future__ import annotations

import gc
from typing import Any, Final

from pytest_remotegpu.protocol import events
from pytest_remotegpu.worker import memory
from pytest_remotegpu.worker.cuda import Driver

__all__ = ["Ledger"]

WORKSPACES: Final = (8519680, 33554432)
"""Bytes that torch sets aside for cuBLAS, once for each of its handles and for good."""
MOST_WORKSPACES: Final = 4
SLACK: Final = 2**20
"""Bytes by which torch may round such a block up."""
FULL: Final = 0.5
"""The part of the cards' memory from which on a new process may be better off."""
STRAY: Final = 0.125
"""The part of it that must belong to no fixture for a new process to be better off."""


class Ledger:
    """Compares the memory before and after each test.

    :ivar wider: whether a fixture that outlives the running test was made in it; what is left of
        that test's memory is then taken to be the fixture's.
    """

    def __init__(self) -> None:
        self.wider = False
        self._before = memory.Usage()
        self._kept = 0
        self._allocated = 0
        self._total = 0
        self._largest = (0, "")
        self._workspaces = 0

    def begin(self, driver: Driver | None, torch: Any) -> None:
        """Take a look before a test."""
        self.wider = False
        self._before = _usage(driver, torch, reset=True) or memory.Usage()
        # what imports have made before the first test, and fixtures between tests, is none's leak
        self._kept = max(self._kept + self._before.allocated - self._allocated, 0)
        self._allocated = self._before.allocated

    def end(
        self, place: int, nodeid: str, driver: Driver | None, torch: Any
    ) -> events.Memory | None:
        """Take a look after a test; ``None`` where torch has used no GPU here."""
        used = _usage(driver, torch)
        if used is not None and used.allocated > self._before.allocated and not self.wider:
            gc.collect()  # garbage is no leak
            used = _usage(driver, torch)
        if used is None or driver is None:
            return None
        cards = [driver.memory(device) for device in driver.devices()]
        self._allocated, self._total = used.allocated, sum(total for _, total in cards)
        leaked = self._attribute(used.allocated - self._before.allocated, nodeid)
        free = sum(free for free, _ in cards)
        return events.Memory(place, used.peak, used.reserved, leaked, free, self._total)

    def _attribute(self, grown: int, nodeid: str) -> int:
        """Say how much of a test's growth is its own: what fixtures keep is not."""
        if grown < 0 or self.wider:
            self._kept = max(self._kept + grown, 0)
            return min(grown, 0)
        leaked = self._without_workspaces(grown)
        self._kept = self._kept + grown - leaked
        self._largest = max(self._largest, (leaked, nodeid))
        return leaked

    def _without_workspaces(self, grown: int) -> int:
        """Leave out what torch has set aside for cuBLAS, which stays but never grows."""
        for each in WORKSPACES:
            count = grown // each
            if self._workspaces + count <= MOST_WORKSPACES and grown % each < SLACK * count:
                self._workspaces += count
                return 0
        return grown

    def outgrown(self) -> str:
        """Say why a new process should run what follows, in the words of a note; else nothing."""
        stray = self._allocated - self._kept
        if self._allocated <= FULL * self._total or stray <= STRAY * self._total:
            return ""
        most, nodeid = self._largest
        return (
            f"{memory.size(self._allocated)} of {memory.size(self._total)} of GPU memory were "
            f"still allocated, {memory.size(stray)} of it by no fixture, so a new process went on; "
            f"it grew most, by {memory.size(most)}, in {nodeid}"
        )


def _usage(driver: Driver | None, torch: Any, *, reset: bool = False) -> memory.Usage | None:
    if driver is None or torch is None:
        return None
    devices = driver.devices()
    return memory.usage(torch, devices, reset=reset) if devices else None
