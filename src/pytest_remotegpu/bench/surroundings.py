"""What times depend on beside the code: card, driver, versions, clocks that somebody has set.

Looks at torch where it is imported already; knows no pytest.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu import cards

__all__ = ["of_card", "of_host", "uuid_of"]

CPUINFO: Final = Path("/proc/cpuinfo")


def _processor() -> str:
    """Name the processor; the machine's kind where it has no name."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


@functools.cache
def _installed() -> str | None:
    """Give the version of torch where nothing has imported it, as a warm worker has."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def of_host(dtype: str) -> dict[str, Any]:
    """Say what times on a CPU depend on.

    :param dtype: of the inputs; empty where it is not known.
    """
    torch = sys.modules.get("torch")
    return {
        "device": "cpu",
        "host": _processor(),
        "cores": os.cpu_count(),
        "threads": None if torch is None else torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": _installed() if torch is None else str(torch.__version__),
        "dtype": dtype,
    }


def of_card(index: int, uuid: str, dtype: str) -> dict[str, Any]:
    """Say what times on a card depend on.

    :param index: of torch's device. :param uuid: of the card or slice.
    """
    torch: Any = sys.modules["torch"]
    limits = cards.limits(uuid)
    return {
        **of_host(dtype),
        "device": torch.cuda.get_device_name(index),
        "uuid": uuid,
        "driver": cards.driver(),
        "cuda": torch.version.cuda,
        "clock": {
            "most_sm_mhz": limits.sm_mhz,
            "set_sm_mhz": limits.wanted_sm_mhz,
            "most_watts": limits.watts,
        },
    }


def uuid_of(index: int) -> str:
    """Give the UUID of a card of torch's, as NVML has it; nothing where torch does not know it."""
    torch: Any = sys.modules["torch"]
    found = str(getattr(torch.cuda.get_device_properties(index), "uuid", ""))
    return found if not found or found.startswith(("GPU-", "MIG-")) else f"GPU-{found}"
