"""CUDA without a card: its driver as an object and as a library of C, and torch's allocator.

Each does what the real one does as far as our code asks; tests say what has happened on the device.
Knows nothing of the package.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["GIB", "MIB", "CudaTorch", "Library", "OutOfMemoryError", "build"]

MIB: Final = 2**20
GIB: Final = 2**30
NAMES: Final = {
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    710: ("CUDA_ERROR_ASSERT", "device-side assert triggered"),
}
NOT_INITIALISED: Final = 3
NO_CONTEXT: Final = 201


def _put(place: Any, kind: Any, value: Any) -> None:
    ctypes.cast(place, ctypes.POINTER(kind))[0] = value


def _number(value: Any) -> int:
    return int(value.value if hasattr(value, "value") else value)


class Library:
    """The driver, with the functions of ``libcuda`` and their signatures.

    :ivar initialised: whether anybody has initialised it. :ivar active: devices with a context.
    :ivar stack: the current contexts, innermost last; a context is a device's number plus 1, or
        more than all of those, which is nobody's primary one.
    :ivar retained: how often each device's context is held by us.
    :ivar faults: by context, what a synchronisation finds; found once, unless it is sticky.
    :ivar closed: contexts that can't even be entered. :ivar waited: those that were waited for.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.initialised = True
        self.active: set[int] = set()
        self.stack: list[int] = []
        self.retained = [0] * count
        self.faults: dict[int, int] = {}
        self.sticky: set[int] = set()
        self.closed: dict[int, int] = {}
        self.waited: list[int] = []
        self.memory = (3 * GIB, 4 * GIB)

    def _answer(self) -> int:
        return 0 if self.initialised else NOT_INITIALISED

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802  the driver's name
        _put(count, ctypes.c_int, self.count if self.initialised else 0)
        return self._answer()

    def cuDeviceGet(self, device: Any, number: Any) -> int:  # noqa: N802  as above
        _put(device, ctypes.c_int, _number(number))
        return self._answer()

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, active: Any) -> int:  # noqa: N802  as above
        _put(flags, ctypes.c_uint, 0)
        _put(active, ctypes.c_int, _number(device) in self.active)
        return self._answer()

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802  as above
        number = _number(device)
        assert number in self.active, "this would make a context"
        if number in self.closed:
            return self.closed[number]
        self.retained[number] += 1
        _put(context, ctypes.c_void_p, number + 1)
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: Any) -> int:  # noqa: N802  as above
        self.retained[_number(device)] -= 1
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802  as above
        self.stack.append(_number(context))
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:  # noqa: N802  as above
        _put(context, ctypes.c_void_p, self.stack.pop())
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802  as above
        _put(context, ctypes.c_void_p, self.stack[-1] if self.stack else None)
        return self._answer()

    def cuCtxSynchronize(self) -> int:  # noqa: N802  as above
        if not self.stack:
            return NO_CONTEXT
        context = self.stack[-1]
        self.waited.append(context)
        return (
            self.faults.get(context, 0) if context in self.sticky else self.faults.pop(context, 0)
        )

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:  # noqa: N802  as above
        if self.faults.get(self.stack[-1]):
            return self.faults[self.stack[-1]]
        _put(free, ctypes.c_size_t, self.memory[0])
        _put(total, ctypes.c_size_t, self.memory[1])
        return 0

    def _word(self, status: Any, word: Any, at: int) -> int:
        found = NAMES.get(_number(status))
        _put(word, ctypes.c_char_p, found[at].encode() if found else None)
        return 0 if found else 1

    def cuGetErrorName(self, status: Any, word: Any) -> int:  # noqa: N802  as above
        return self._word(status, word, 0)

    def cuGetErrorString(self, status: Any, word: Any) -> int:  # noqa: N802  as above
        return self._word(status, word, 1)


class OutOfMemoryError(RuntimeError):
    """As torch's own: known by its name."""


class _Cuda:
    """``torch.cuda``, with an allocator that counts on one device."""

    OutOfMemoryError = OutOfMemoryError

    def __init__(self) -> None:
        self.initialised = True
        self.allocated = self.peak = self.held = self.reserved = 0
        self.emptied = 0
        self.counts = True
        self.capturing = False

    def is_initialized(self) -> bool:
        return self.initialised

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_device(self) -> int:
        return 0

    def allocate(self, size: int) -> None:
        """Hand out memory; a negative size gives it back."""
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        self.held = max(self.held, self.allocated)
        self.reserved = max(self.reserved, self.held)

    def memory_stats(self, device: int) -> dict[str, int]:
        if not self.counts:
            raise RuntimeError("this allocator keeps no statistics")
        if device:
            return {}
        return {
            "allocated_bytes.all.current": self.allocated,
            "allocated_bytes.all.peak": self.peak,
            "reserved_bytes.all.current": self.held,
            "reserved_bytes.all.peak": self.reserved,
        }

    def reset_peak_memory_stats(self, device: int) -> None:
        if not device:
            self.peak, self.reserved = self.allocated, self.held

    def empty_cache(self) -> None:
        self.emptied += 1
        self.held = self.allocated


class CudaTorch:
    """The module torch as built for CUDA."""

    OutOfMemoryError = OutOfMemoryError

    def __init__(self) -> None:
        self.cuda = _Cuda()


SOURCE: Final = r"""
#include <stddef.h>
static int active, fault, depth;
void device_is(int used, int status) { active = used; fault = status; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *device, int n) { *device = n; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is)
{ *flags = 0; *is = active; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &depth; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(void *context) { depth++; return 0; }
int cuCtxPopCurrent_v2(void **context) { depth--; return 0; }
int cuCtxGetCurrent(void **context) { *context = depth ? &depth : NULL; return 0; }
int cuCtxSynchronize(void) { return fault; }
int cuMemGetInfo_v2(size_t *free, size_t *total)
{ *free = (size_t)3 << 30; *total = (size_t)4 << 30; return fault; }
int cuGetErrorName(int status, const char **word) { *word = "CUDA_ERROR_ASSERT"; return 0; }
int cuGetErrorString(int status, const char **word)
{ *word = "device-side assert triggered"; return 0; }
"""


def build(folder: Path) -> Path:
    """Make a library that goes by the driver's name; ``device_is`` says what its device is like."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, as cc")
    source = folder / "cuda.c"
    source.write_text(SOURCE)
    made = folder / "stand-in.so"
    name = "-Wl,-soname,libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", name, "-o", str(made), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return made
