"""GPU memory: what torch's allocator says of it, and an error for want of it in words.

Torch is looked at only where a test has initialised it. Knows nothing of pytest and of the wire.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_remotegpu.worker.exceptions import related

__all__ = ["Usage", "describe_lack", "is_cuda_error", "is_lack", "size", "torch_in_use", "usage"]

GIB: Final = 2**30
CARDS: Final = (16, 24, 32, 40, 48, 80, 96, 141, 192, 268)
"""GiB as printed on cards of today, which have up to a tenth less."""
LACKS: Final = re.compile(
    "CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|"
    "CUBLAS_STATUS_ALLOC_FAILED"
)
CUDA_ERRORS: Final = re.compile(
    "CUDA error|CUDA_ERROR_|CUDA driver error|cudaError|CUBLAS_STATUS_|CUDNN_STATUS_|"
    "device-side assert|NCCL error|unhandled cuda error|illegal memory access"
)
ASKED: Final = re.compile(r"Tried to allocate ([\d.]+) (bytes|[KMGT]iB)|allocating ([\d,]+) bytes")
DEVICE: Final = re.compile(r"\bGPU (\d+)\b")
UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True)
class Usage:
    """What torch's allocator has in hand on some devices together, in bytes.

    :ivar allocated: handed out now. :ivar peak: the most of that since the last reset.
    :ivar held: taken from the cards now. :ivar reserved: the most of that since the last reset.
    """

    allocated: int = 0
    peak: int = 0
    held: int = 0
    reserved: int = 0


def torch_in_use() -> Any:
    """Give the module torch where it has been imported and has initialised CUDA, else ``None``."""
    torch = sys.modules.get("torch")
    initialised = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    # compared, because a stand-in for torch may answer anything
    return torch if callable(initialised) and initialised() is True else None


def usage(torch: Any, devices: Iterable[int], *, reset: bool = False) -> Usage | None:
    """Ask torch's allocator; ``None`` where it keeps no count, as one of the user's own may not.

    :param reset: whether its peaks begin anew thereafter.
    """
    total = Usage()
    try:
        for device in devices:
            found: Mapping[str, int] = torch.cuda.memory_stats(device)
            total = Usage(
                total.allocated + found.get("allocated_bytes.all.current", 0),
                total.peak + found.get("allocated_bytes.all.peak", 0),
                total.held + found.get("reserved_bytes.all.current", 0),
                total.reserved + found.get("reserved_bytes.all.peak", 0),
            )
            if reset:
                torch.cuda.reset_peak_memory_stats(device)
    except RuntimeError:
        return None
    return total


def size(count: float) -> str:
    """Write a number of bytes."""
    for unit in ("bytes", "KiB", "MiB"):
        if abs(count) < UNITS[unit] * 1024:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count / UNITS[unit]:.1f} {unit}"
    return f"{count / GIB:.1f} GiB"


def _text(error: BaseException) -> str:
    """Give an exception's class and message, whatever its own methods do."""
    return "".join(traceback.format_exception_only(error))


def is_lack(error: BaseException) -> bool:
    """Say whether this or an exception that led to it tells of too little GPU memory.

    An assertion that merely quotes such a message does not.
    """
    return _lack(error) is not None


def _lack(error: BaseException) -> BaseException | None:
    for one in related(error):
        if any(kind.__name__ == "OutOfMemoryError" for kind in type(one).__mro__):
            return one
        quotes = isinstance(one, AssertionError) or not isinstance(one, Exception)
        if not quotes and LACKS.search(_text(one)):
            return one
    return None


def is_cuda_error(error: BaseException) -> bool:
    """Say whether this exception, or each member of a group, is CUDA's."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_cuda_error(one) for one in error.exceptions)
    return bool(CUDA_ERRORS.search(_text(error)))


def describe_lack(
    error: BaseException, torch: Any, ask: Callable[[int], tuple[int, int]], current: int
) -> tuple[str, int]:
    """Say in lines what was asked for, what the test had, and which card would do.

    :param torch: the module, or ``None`` where CUDA is used without it.
    :param ask: gives the free and all bytes of a device.
    :param current: the device that it was where the message names none.
    :return: the lines, and the GiB of the next larger card that would do; 0 where none is known.
    """
    text = _text(_lack(error) or error)
    named = DEVICE.search(text)
    device = int(named[1]) if named else current
    asked = _asked(text)
    free, total = ask(device)
    used = usage(torch, [device]) if torch is not None else None
    lines = [f"device {device}"]
    if asked:
        lines.append(f"asked for: {size(asked)}")
    if used is not None:
        most = f"{size(used.peak)} allocated, {size(used.reserved)} reserved"
        lines.append(f"peak of this test: {most}")
    if total:
        lines.append(f"the card: {size(free)} free of {size(total)}")
        hint, fit = _hint(asked, used, total - free, total)
        return "\n".join(filter(None, [*lines, hint])), fit
    return "\n".join(lines), 0


def _asked(text: str) -> int:
    found = ASKED.search(text)
    if found is None:
        return 0
    number, unit, plain = found.groups()
    return int(plain.replace(",", "")) if plain else int(float(number) * UNITS[unit])


def _hint(asked: int, used: Usage | None, taken: int, total: int) -> tuple[str, int]:
    """Name the next larger card that has enough; or who else holds this one's memory."""
    need = asked + (taken if used is None else used.allocated)
    others = 0 if used is None else taken - used.held
    if asked and need + others <= total:
        return "", 0
    if asked and need <= total and others > total / 20:
        return f"hint: {size(others)} of it are held by others than torch's allocator here", 0
    fit = [gib for gib in CARDS if gib * GIB * 0.9 > total and gib * GIB * 0.9 >= need]
    if not fit:
        return "", 0
    return f"hint: gpu(min_memory_gib={fit[0]}) asks for a card with more memory", fit[0]
