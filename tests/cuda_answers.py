"""Asks the CUDA driver itself which cards a process sees, for values of ``CUDA_VISIBLE_DEVICES``.

Run as a script: reads a list of values (``null`` for unset) as JSON, writes the UUIDs that each one
shows, in CUDA's order. Makes no context. Knows the driver's library, and nothing of the package.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import uuid

__all__ = ["DRIVER", "answer"]

DRIVER = "libcuda.so.1"


def answer(value: str | None) -> list[str]:
    """Give the UUIDs of the cards that a new process with this value sees."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if value is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = value
        os.write(writing, json.dumps(_ask()).encode())
        os._exit(0)
    os.wait()
    found: list[str] = json.loads(os.read(reading, 2**16))
    os.close(reading)
    os.close(writing)
    return found


def _ask() -> list[str]:
    cuda = ctypes.CDLL(DRIVER)
    count = ctypes.c_int(0)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found = []
    for device in range(count.value):
        raw = (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGetUuid(raw, device)
        found.append(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
    return found


if __name__ == "__main__":
    json.dump([answer(value) for value in json.load(sys.stdin)], sys.stdout)
