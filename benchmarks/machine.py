"""The machine that is measured on: what it is, and whether somebody else is using it.

Knows processors and the ``/proc`` of Linux; where that is missing, everything counts as quiet.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Patience", "busy_seconds", "describe", "versions"]

STAT: Final = Path("/proc/stat")
SAMPLE: Final = 0.25
"""Seconds over which the use of the machine is looked at."""
QUIET: Final = 0.25
"""Processor seconds per second that others may use."""
PACKAGES: Final = ("pytest", "pytest-xdist", "pytest-remotegpu", "msgspec", "pluggy")


def busy_seconds() -> float | None:
    """Give the processor seconds that all of this machine has used; ``None`` where nobody says."""
    if not STAT.exists():
        return None
    with STAT.open(encoding="ascii") as lines:
        user, nice, system, _idle, _wait, *interrupts = map(int, lines.readline().split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


@dataclass
class Patience:
    """How long to wait for a quiet machine.

    :ivar once: seconds at the most before one run; :ivar left: seconds at the most from now on.
    """

    once: float
    left: float

    def wait(self) -> float:
        """Wait until others use little of the machine or patience ends; give the seconds waited."""
        start = time.monotonic()
        until = start + min(self.once, self.left)
        while time.monotonic() < until and not _is_quiet():
            pass
        waited = time.monotonic() - start
        self.left -= waited
        return waited


def _is_quiet() -> bool:
    before, start = busy_seconds(), time.monotonic()
    time.sleep(SAMPLE)
    after = busy_seconds()
    if before is None or after is None:
        return True
    return (after - before) / (time.monotonic() - start) < QUIET


def describe() -> str:
    """Say in one line what this machine is."""
    system = f"{platform.system()} {platform.release()}, load {os.getloadavg()[0]:.2f}"
    return (
        f"{os.cpu_count()} x {_processor()}, {_memory()}, {system}; "
        f"{time.strftime('%Y-%m-%d %H:%M %Z')}"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def versions() -> str:
    """Say in one line which versions are compared."""
    found = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    return ", ".join([f"{platform.python_implementation()} {platform.python_version()}", *found])
