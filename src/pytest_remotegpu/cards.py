"""The CUDA cards of this host as values, asked of NVIDIA's management library (NVML).

No question makes a CUDA context, so a process that has asked may fork afterwards, and none raises:
where the library or a card gives no answer, what is known is returned. Knows what a mark asks for;
must not know torch, the wire or pytest.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from pytest_remotegpu.gpu import Shape, words

__all__ = [
    "Card",
    "Limits",
    "Reading",
    "User",
    "certain",
    "cuda",
    "driver",
    "in_use",
    "limits",
    "misfit",
    "prepare",
    "reading",
    "restriction",
    "trouble",
    "unusable",
    "users",
    "visible",
]

GIB: Final = 2**30
VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
ENOUGH: Final = 15 / 16
"""Of the memory that is asked for; the rest goes to error correction on cards with GDDR memory."""
BY_UUID: Final = ("GPU-", "MIG-")
LONGEST: Final = 200
"""Characters of a variable that are shown."""
SHORT: Final = len("GPU-8932f937")
"""Characters of a UUID that people tell cards apart by."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Card:
    """One card, or a slice of one in MIG mode.

    :ivar token: names it in ``CUDA_VISIBLE_DEVICES``: as the variable did, else its index in the
        order of PCI buses, and a slice its UUID.
    :ivar uuid: as NVML gives it; ``index-N`` where it gives none.
    :ivar name: such as ``NVIDIA H200``. :ivar memory: bytes in all, 0 where it is not known.
    :ivar capability: of its CUDA cores, such as 9.0; 0 where it is not known.
    """

    token: str
    uuid: str
    name: str
    memory: int
    capability: float

    @property
    def is_slice(self) -> bool:
        """Whether it is a slice; a process can use one slice and nothing else."""
        return self.uuid.startswith("MIG-")

    def in_words(self) -> str:
        """Name it for people: ``NVIDIA H200 (GPU-8932f937)``."""
        return f"{self.name or 'unknown card'} ({self.uuid[:SHORT]})"


@dataclass(frozen=True)
class User:
    """A process that computes on a card: its number, and the bytes that it holds there."""

    pid: int
    memory: int


# which cards a process sees


def visible(environ: Mapping[str, str]) -> list[Card]:
    """Give the cards that a process with these variables may use, in CUDA's order.

    ``CUDA_VISIBLE_DEVICES`` is read as CUDA reads it: either indices, or UUIDs of slices and UUIDs
    of cards or unambiguous beginnings of these; nothing from the first entry on that is none of
    the kind; nothing at all where a card is named twice. Several slices may be named, and each of
    them can be used, although a process sees only the first.

    Indices are taken to count the PCI buses. CUDA does that where ``CUDA_DEVICE_ORDER`` is
    ``PCI_BUS_ID``, or where all cards are of one kind; otherwise it may count the fastest first.

    :param environ: the variables of that process.
    """
    return _ask(lambda nvml: _chosen(environ.get(VARIABLE), _installed(nvml)), [])


def certain(environ: Mapping[str, str], cards: Sequence[Card]) -> bool:
    """Say whether a process with these variables counts its visible cards in this order for sure.

    :param cards: what :func:`visible` gave.
    """
    if len(cards) > 1 and any(card.is_slice for card in cards):
        return False
    by_name = [card.token.startswith(BY_UUID) for card in cards]
    kinds = {(card.name, card.memory, card.capability) for card in cards}
    return environ.get(ORDER) == "PCI_BUS_ID" or len(kinds) <= 1 or all(by_name)


def restriction(environ: Mapping[str, str]) -> str:
    """Say what hides cards from a process with these variables; nothing where nothing may.

    :return: words in brackets, to follow what such a process sees.
    """
    value = environ.get(VARIABLE)
    if value is None or not _ask(lambda nvml: len(_installed(nvml)), 0):
        return ""
    return f" ({VARIABLE} is {value[:LONGEST]!r})"


@dataclass(frozen=True)
class _Slot:
    """A place on the PCI bus: the card there, and its slices where it is in MIG mode."""

    card: Card
    sliced: bool = False
    slices: tuple[Card, ...] = ()

    def usable(self) -> tuple[Card, ...]:
        return self.slices if self.sliced else (self.card,)

    def first(self) -> Card | None:
        """Give what CUDA takes where the whole card is named: in MIG mode its first slice."""
        return next(iter(self.usable()), None)


def _chosen(value: str | None, slots: Sequence[_Slot | None]) -> list[Card]:
    """Choose cards as ``CUDA_VISIBLE_DEVICES`` says.

    :param slots: by index; ``None`` where a card does not answer.
    """
    present = [slot for slot in slots if slot is not None]
    if value is None:
        return [card for slot in present for card in slot.usable()]
    named = _by_uuid if value.startswith(BY_UUID) else _by_index
    cards: list[Card] = []
    for entry in value.split(","):
        card = named(entry, slots)
        if card is None:
            break
        if card.uuid in [other.uuid for other in cards]:
            return []
        cards.append(replace(card, token=entry.strip()))
    return cards


def _by_index(entry: str, slots: Sequence[_Slot | None]) -> Card | None:
    """Find the card that an entry names by a number, read as C does: 32 bits, the rest ignored."""
    number = re.match(r"\s*([+-]?[0-9]{1,19})(?![0-9])", entry, re.ASCII)
    index = int(number[1]) % 2**32 if number else len(slots)
    slot = slots[index] if index < len(slots) else None
    return None if slot is None else slot.first()


def _by_uuid(entry: str, slots: Sequence[_Slot | None]) -> Card | None:
    """Find the card or slice that an entry names by its UUID or an unambiguous beginning of it.

    Dashes and case don't matter, and what follows a whole UUID is ignored.
    """
    digits = entry[4:].replace("-", "")[:32].lower()
    if not entry.startswith(BY_UUID) or not re.fullmatch("[0-9a-f]+", digits):
        return None
    present = [slot for slot in slots if slot is not None]
    found = [slot.first() for slot in present if _digits(slot.card).startswith(digits)]
    if entry.startswith("MIG-"):
        slices = [card for slot in present for card in slot.slices]
        found += [card for card in slices if _digits(card).startswith(digits)]
    return found[0] if len(found) == 1 else None


def _digits(card: Card) -> str:
    return card.uuid[4:].replace("-", "") if card.uuid.startswith(BY_UUID) else ""


# what a card is


def misfit(card: Card, shape: Shape) -> str:
    """Say why a card does not do for what is asked for; nothing where it does.

    * Each word of the wanted type must be a word of the card's name: ``L4`` is no ``L40S``.
    * A card has a little less memory than is printed on its box. So its memory is rounded up to
      whole GiB, and may then be a sixteenth less than what is asked for.
    * A slice does not do for tests that need several GPUs, because a process sees only one.

    :return: such as ``NVIDIA H200 is not A100``.
    """
    name = card.name or "unknown card"
    if shape.type and not any(words(type) <= words(card.name) for type in shape.type):
        return f"{name} is not {' or '.join(shape.type)}"
    if math.ceil(card.memory / GIB) < shape.min_memory_gib * ENOUGH:
        has = f"{card.memory / GIB:.1f} GiB" if card.memory else "an unknown amount of memory"
        return f"{name} has {has}, not {shape.min_memory_gib:g} GiB"
    if card.capability < shape.min_capability:
        has = (
            f"compute capability {card.capability}" if card.capability else "an unknown capability"
        )
        return f"{name} has {has}, not {shape.min_capability}"
    if card.is_slice and shape.count > 1:
        return f"{name} is a slice of a card, and a process sees one slice only"
    return ""


# who uses a card


def users(uuid: str) -> list[User]:
    """List the processes that compute on a card, as far as this process may see them.

    :param uuid: of the card or slice.
    """

    def running(nvml: Any) -> list[User]:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return [User(user.pid, user.usedGpuMemory or 0) for user in found if _lives(user.pid)]

    return _ask(running, [])


def in_use(uuid: str) -> int:
    """Give the bytes in use on a card, by whomever; 0 where that is not known."""

    def used(nvml: Any) -> int:
        memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid))
        return int(memory.used)

    return _ask(used, 0)


def _lives(pid: int) -> bool:
    """Say whether a process is there and has not ended; all are taken to, without ``/proc``."""
    if not Path("/proc/self/stat").exists():
        return True
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return fields.rpartition(")")[2].split()[0] not in "ZX"


# how a card does


REASONS: Final = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
}
"""Bits of NVML's reasons for a clock below what was asked for; idling and settings are none."""


@dataclass(frozen=True)
class Reading:
    """What a card does at a moment; ``None`` for what it does not tell.

    :ivar sm_mhz: clock of its multiprocessors. :ivar memory_mhz: of its memory.
    :ivar watts: drawn. :ivar celsius: temperature.
    :ivar held_back: reasons for lower clocks, in words.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    watts: float | None = None
    celsius: int | None = None
    held_back: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Limits:
    """What a card may do at most; ``None`` for what it does not tell.

    :ivar sm_mhz: highest clock of its multiprocessors. :ivar memory_mhz: of its memory.
    :ivar wanted_sm_mhz: the clock that applications are given, where somebody has set one.
    :ivar watts: its power cap. :ivar bus_bits: width of its memory bus.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    wanted_sm_mhz: int | None = None
    watts: float | None = None
    bus_bits: int | None = None


def reading(uuid: str) -> Reading:
    """Look at a card.

    :param uuid: of the card or slice; of an unknown one nothing is told.
    """

    def read(nvml: Any) -> Reading:
        value = _teller(nvml, uuid)
        power = value(nvml.nvmlDeviceGetPowerUsage)
        bits = value(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return Reading(
            value(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            value(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            None if power is None else power / 1000,
            value(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            None if bits is None else tuple(word for bit, word in REASONS.items() if bits & bit),
        )

    return _ask(read, Reading())


def _teller(nvml: Any, uuid: str) -> Callable[..., Any]:
    """Give what asks about one card; ``None`` is what it does not tell."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def value(question: Callable[..., Any], *about: Any) -> Any:
        return _known(nvml, None, question, handle, *about)

    return value


def limits(uuid: str) -> Limits:
    """Give what a card may do at most.

    :param uuid: as above.
    """

    def read(nvml: Any) -> Limits:
        value = _teller(nvml, uuid)
        power = value(nvml.nvmlDeviceGetEnforcedPowerLimit)
        return Limits(
            value(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
            value(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
            value(nvml.nvmlDeviceGetApplicationsClock, nvml.NVML_CLOCK_SM),
            None if power is None else power / 1000,
            value(nvml.nvmlDeviceGetMemoryBusWidth),
        )

    return _ask(read, Limits())


# the library


def trouble() -> str:
    """Say why the management library can't be used; nothing where it can."""
    nvml, why = _opened()
    if nvml is not None:
        _close(nvml)
    return why


def driver() -> str:
    """Give the version of NVIDIA's driver; nothing where it is not known."""
    return _ask(lambda nvml: str(nvml.nvmlSystemGetDriverVersion()), "")


def cuda() -> tuple[int, int] | None:
    """Give the newest version of CUDA that the driver serves; ``None`` where it is not known."""
    number = _ask(lambda nvml: int(nvml.nvmlSystemGetCudaDriverVersion()), 0)
    return (number // 1000, number % 1000 // 10) if number else None


def unusable() -> list[str]:
    """Say of each card that no process can use why that is so."""

    def reasons(nvml: Any) -> list[str]:
        texts = []
        for index, slot in enumerate(_installed(nvml)):
            if slot is None:
                texts.append(f"card {index} does not answer")
            elif not slot.usable():
                texts.append(f"card {index}, {slot.card.in_words()}, is in MIG mode without slices")
        return texts

    return _ask(reasons, [])


def prepare() -> None:
    """Import the library without opening it: forks of this process then have it at once."""
    with contextlib.suppress(ImportError):
        import pynvml  # noqa: F401, PLC0415 -- as below


def _opened() -> tuple[Any, str]:
    """Open the library; give ``None`` and the reason where that is not possible."""
    try:
        import pynvml  # noqa: PLC0415 -- only those who ask for cards pay for it
    except ImportError as error:
        return None, f"nvidia-ml-py can't be imported: {error}"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVIDIA's management library can't be used: {error}"
    return pynvml, ""


def _close(nvml: Any) -> None:
    _known(nvml, None, nvml.nvmlShutdown)


def _ask(question: Callable[[Any], Answer], unknown: Answer) -> Answer:
    """Ask the library one question; give ``unknown`` where it has no answer."""
    nvml, _why = _opened()
    if nvml is None:
        return unknown
    try:
        return _known(nvml, unknown, question, nvml)
    finally:
        _close(nvml)


def _known(nvml: Any, unknown: Answer, question: Callable[..., Answer], *about: Any) -> Answer:
    """Call a function of the library; give ``unknown`` where it fails."""
    try:
        return question(*about)
    except nvml.NVMLError:
        return unknown


def _installed(nvml: Any) -> list[_Slot | None]:
    """List all cards by index."""
    return [_slot(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def _slot(nvml: Any, index: int) -> _Slot | None:
    handle = _known(nvml, None, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return None
    card = _card(nvml, handle, Card(str(index), f"index-{index}", "", 0, 0.0))
    mode, _pending = _known(nvml, (0, 0), nvml.nvmlDeviceGetMigMode, handle)
    return _Slot(card, sliced=True, slices=_slices(nvml, handle, card)) if mode else _Slot(card)


def _slices(nvml: Any, parent: Any, card: Card) -> tuple[Card, ...]:
    """List the slices of a card in MIG mode; what is not known of one is that of the card."""
    places = range(_known(nvml, 0, nvml.nvmlDeviceGetMaxMigDeviceCount, parent))
    handles = [
        _known(nvml, None, nvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, at) for at in places
    ]
    whole = replace(card, uuid="", memory=0)
    found = [_card(nvml, handle, whole) for handle in handles if handle is not None]
    return tuple(replace(part, token=part.uuid) for part in found if part.uuid)


def _card(nvml: Any, handle: Any, card: Card) -> Card:
    """Fill in what the library knows of a card; the rest stays as it is."""
    memory = _known(nvml, None, nvml.nvmlDeviceGetMemoryInfo, handle)
    cores = _known(nvml, None, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return Card(
        card.token,
        _known(nvml, card.uuid, nvml.nvmlDeviceGetUUID, handle),
        _known(nvml, card.name, nvml.nvmlDeviceGetName, handle),
        card.memory if memory is None else int(memory.total),
        card.capability if cores is None else float(f"{cores[0]}.{cores[1]}"),
    )
