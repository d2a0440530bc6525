"""CUDA's driver as this process has loaded it: it is asked, and never started.

Whoever makes a context, be it torch, cupy, numba, triton or plain ctypes, does so in the driver, so
this one place knows of them all. Nothing here loads the driver, initialises it or makes a context.
Knows nothing of pytest, of torch and of tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Driver", "Fault", "Finder"]

LIBRARY: Final = "libcuda.so.1"
NO_FAULT: Final = frozenset({0, 3, 4, 100, 201, 709, *range(900, 909)})
"""Answers to a synchronisation that tell of no kernel's fault: none at all, a driver that is not
initialised (a forked child's) or shut down, no device, a context that is gone, and a graph that is
being captured."""


@dataclass(frozen=True)
class Fault:
    """What was found when a device was synchronised.

    :ivar name: such as ``CUDA_ERROR_ASSERT``. :ivar text: the same in words.
    :ivar device: its number among the visible ones; -1 where that is not known.
    :ivar lasts: whether the context stays unusable: every further call in it fails.
    """

    name: str
    text: str
    device: int
    lasts: bool

    def __str__(self) -> str:
        place = "" if self.device < 0 else f" (device {self.device})"
        return f"{self.name}: {self.text}{place}"


class Driver:
    """The driver's functions, on contexts that exist already.

    :param library: an object that has them as attributes, as ``ctypes`` gives it.
    """

    def __init__(self, library: Any) -> None:
        self._cuda = library

    def devices(self) -> list[int]:
        """List the devices whose primary context is active, by their number."""
        count = ctypes.c_int(0)
        if self._cuda.cuDeviceGetCount(ctypes.byref(count)):
            return []
        return [number for number in range(count.value) if self._is_active(number)]

    def _is_active(self, number: int) -> bool:
        handle = self._handle(number)
        flags, active = ctypes.c_uint(0), ctypes.c_int(0)
        status = self._cuda.cuDevicePrimaryCtxGetState(
            handle, ctypes.byref(flags), ctypes.byref(active)
        )
        return not status and bool(active.value)

    def _handle(self, number: int) -> ctypes.c_int:
        handle = ctypes.c_int(0)
        self._cuda.cuDeviceGet(ctypes.byref(handle), ctypes.c_int(number))
        return handle

    def _has_current(self) -> bool:
        """Say whether this thread has a current context, be it a primary one or its own."""
        context = ctypes.c_void_p(None)
        return not self._cuda.cuCtxGetCurrent(ctypes.byref(context)) and bool(context.value)

    def in_use(self) -> bool:
        """Say whether there is any context here."""
        return bool(self.devices()) or self._has_current()

    def synchronise(self) -> Fault | None:
        """Wait for all devices that have a context; the current context stays what it is.

        :return: the first fault that was found.
        """
        for number in self.devices():
            with self._entered(number) as status:
                fault = self._waited(status, number)
            if fault is not None:
                return fault
        return self._waited(0, -1) if self._has_current() else None

    def memory(self, number: int) -> tuple[int, int]:
        """Give the free and all bytes of a device that has a context; zeros where it won't say."""
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        with self._entered(number) as status:
            if status or self._cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)):
                return 0, 0
        return free.value, total.value

    @contextlib.contextmanager
    def _entered(self, number: int) -> Iterator[int]:
        """Have the primary context of a device current meanwhile; yield the driver's answer."""
        handle, context = self._handle(number), ctypes.c_void_p(None)
        status = self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle)
        if status:
            yield status
            return
        status = self._cuda.cuCtxPushCurrent_v2(context)
        try:
            yield status
        finally:
            if not status:
                self._cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p(None)))
            self._cuda.cuDevicePrimaryCtxRelease_v2(handle)

    def _waited(self, refused: int, number: int) -> Fault | None:
        """Wait for the current context, unless *refused* tells why it could not be entered."""
        status = refused or self._cuda.cuCtxSynchronize()
        if status in NO_FAULT:
            return None
        lasts = bool(refused) or self._cuda.cuCtxSynchronize() not in NO_FAULT
        name, text = self._words("cuGetErrorName", status), self._words("cuGetErrorString", status)
        return Fault(name or f"CUDA error {status}", text or "no description", number, lasts)

    def _words(self, function: str, status: int) -> str:
        found = ctypes.c_char_p(None)
        getattr(self._cuda, function)(ctypes.c_int(status), ctypes.byref(found))
        return (found.value or b"").decode("utf-8", "replace")


class _Loaded(ctypes.Structure):
    """What the dynamic linker tells of a library; ``adds`` counts all that were ever loaded."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("count", ctypes.c_uint16),
        ("adds", ctypes.c_uint64),
    )


class Finder:
    """Looks for the driver among the libraries of this process, and at next to no cost.

    It is looked for by its name only when a library has been loaded since the last time.
    """

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._adds = -1
        # with Python's lock held throughout: the linker has one of its own, taken meanwhile
        kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t)
        self._each = kind(self._see)
        self._walk = getattr(ctypes.PyDLL(None), "dl_iterate_phdr", None)
        self._seen = 0

    def _see(self, info: Any, _size: int) -> int:
        self._seen = info.contents.adds
        return 1

    def __call__(self) -> Driver | None:
        """Give the driver, where this process has it."""
        if self._driver is None and self._walk is not None:
            self._walk(self._each, None)
            if self._seen != self._adds:
                self._adds = self._seen
                self._driver = _loaded_driver()
        return self._driver


def _loaded_driver() -> Driver | None:
    try:
        return Driver(ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD))
    except OSError:
        return None
