# ruff: noqa: N802 -- the names are those of the library that this stands for
"""A stand-in for the module ``pynvml``: the cards are those in the file that ``FAKE_NVML`` names.

First on the import path of a process, it makes that process see cards that are not there. It has
the functions that the package uses, with the names, arguments, answers and errors of the real ones.
The file is read anew by each ``nvmlInit``; ``cardfile`` writes it. Knows nothing but that file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class NVMLError(Exception):
    """What any of these functions raises."""


@dataclass(frozen=True)
class Memory:
    """Bytes of a card."""

    total: int
    used: int

    @property
    def free(self) -> int:
        """What is left."""
        return self.total - self.used


@dataclass(frozen=True)
class Process:
    """A process that computes on a card."""

    pid: int
    usedGpuMemory: int | None  # noqa: N815 -- as above


Card = dict[str, Any]
_state: dict[str, Any] = {"opened": 0, "host": {}}


def nvmlInit() -> None:
    """Open the library: read the file."""
    try:
        host = json.loads(Path(os.environ["FAKE_NVML"]).read_text(encoding="utf-8"))
    except (KeyError, FileNotFoundError):
        raise NVMLError("NVML Shared Library Not Found") from None
    if host["broken"]:
        raise NVMLError(host["broken"])
    _state["host"] = host
    _state["opened"] += 1


def nvmlShutdown() -> None:
    """Close the library."""
    _host()
    _state["opened"] -= 1


def _host() -> dict[str, Any]:
    if not _state["opened"]:
        raise NVMLError("Uninitialized")
    host: dict[str, Any] = _state["host"]
    return host


def _read(handle: Card, name: str) -> Any:
    """Give what the file says of a card; whatever is ``None`` there can't be read."""
    _host()
    if handle.get(name) is None:
        raise NVMLError("Not Supported")
    return handle[name]


def _get(cards: list[Card | None], index: int) -> Card:
    _host()
    if not 0 <= index < len(cards):
        raise NVMLError("Invalid Argument")
    card = cards[index]
    if card is None:
        raise NVMLError("GPU is lost")
    return card


def nvmlSystemGetDriverVersion() -> str:
    """Give the version of the driver."""
    return str(_host()["driver"])


def nvmlSystemGetCudaDriverVersion() -> int:
    """Give the version of CUDA that the driver serves: 13000 is 13.0."""
    return int(_host()["cuda"])


def nvmlDeviceGetCount() -> int:
    """Count the cards."""
    return len(_host()["cards"])


def nvmlDeviceGetHandleByIndex(index: int) -> Card:
    """Open a card by its place."""
    return _get(_host()["cards"], index)


def nvmlDeviceGetHandleByUUID(uuid: str) -> Card:
    """Open a card, or a slice of one, by its UUID."""
    cards = [card for card in _host()["cards"] if card is not None]
    parts = [part for card in cards for part in card.get("mig") or []]
    for card in (*cards, *parts):
        if card is not None and card["uuid"] == uuid:
            found: Card = card
            return found
    raise NVMLError("Not Found")


def nvmlDeviceGetUUID(handle: Card) -> str:
    """Give the UUID of a card or slice."""
    return str(_read(handle, "uuid"))


def nvmlDeviceGetName(handle: Card) -> str:
    """Give the name of a card or slice."""
    return str(_read(handle, "name"))


def nvmlDeviceGetMemoryInfo(handle: Card) -> Memory:
    """Give the memory of a card or slice."""
    return Memory(_read(handle, "memory"), _read(handle, "used"))


def nvmlDeviceGetCudaComputeCapability(handle: Card) -> tuple[int, int]:
    """Give the capability of a card."""
    major, minor = str(_read(handle, "capability")).split(".")
    return int(major), int(minor)


def nvmlDeviceGetComputeRunningProcesses(handle: Card) -> list[Process]:
    """List the processes on a card or slice."""
    return [Process(pid, memory) for pid, memory in _read(handle, "processes")]


def nvmlDeviceGetMigMode(device: Card) -> list[int]:
    """Say whether a card is in MIG mode, and whether it will be."""
    _host()
    if device.get("mig") is None:
        raise NVMLError("Not Supported")
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(device: Card) -> int:
    """Say how many slices a card could have."""
    return len(_read(device, "mig"))


def nvmlDeviceGetMigDeviceHandleByIndex(device: Card, index: int) -> Card:
    """Open a slice by its place."""
    parts = _read(device, "mig")
    if 0 <= index < len(parts) and parts[index] is None:
        raise NVMLError("Not Found")
    return _get(parts, index)


NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
CLOCKS = {NVML_CLOCK_SM: "sm_mhz", NVML_CLOCK_MEM: "memory_mhz"}


def nvmlDeviceGetClockInfo(handle: Card, type: int) -> int:
    """Give the present clock of a card, in MHz."""
    return int(_read(handle, CLOCKS[type]))


def nvmlDeviceGetMaxClockInfo(handle: Card, type: int) -> int:
    """Give the highest clock of a card, in MHz."""
    return int(_read(handle, f"most_{CLOCKS[type]}"))


def nvmlDeviceGetApplicationsClock(handle: Card, type: int) -> int:
    """Give the clock that applications are given, in MHz."""
    return int(_read(handle, f"set_{CLOCKS[type]}"))


def nvmlDeviceGetPowerUsage(handle: Card) -> int:
    """Give the power that a card draws, in milliwatts."""
    return int(_read(handle, "milliwatts"))


def nvmlDeviceGetEnforcedPowerLimit(handle: Card) -> int:
    """Give the power that a card may draw, in milliwatts."""
    return int(_read(handle, "most_milliwatts"))


def nvmlDeviceGetTemperature(handle: Card, sensor: int) -> int:
    """Give the temperature of a card, in degrees Celsius."""
    if sensor != NVML_TEMPERATURE_GPU:
        raise NVMLError("Invalid Argument")
    return int(_read(handle, "celsius"))


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: Card) -> int:
    """Give why a card's clocks are what they are, as bits."""
    return int(_read(handle, "reasons"))


def nvmlDeviceGetMemoryBusWidth(device: Card) -> int:
    """Give the width of a card's memory bus, in bits."""
    return int(_read(device, "bus_bits"))
