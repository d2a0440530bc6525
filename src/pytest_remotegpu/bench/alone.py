"""One benchmark at a time on a device, among the processes of this user on this host.

Knows neither torch nor pytest.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["locked", "on"]


@contextmanager
def on(device: str) -> Iterator[None]:
    """Wait until no other process of this user benchmarks on a device.

    Which of several cards is meant is told by what this process is shown of them.

    :param device: such as ``cuda:0``.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    told = hashlib.sha256(f"{getpass.getuser()}\n{device}\n{shown}".encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"remotegpu-benchmark-{told}")
    try:
        file = path.open("ab")
    except OSError:  # nobody can be told, so nobody is
        yield
        return
    with file, locked(file):
        yield


@contextmanager
def locked(file: IO[bytes]) -> Iterator[None]:
    """Hold a file's lock; where there are none of this kind, as on Windows, nobody waits."""
    try:
        import fcntl  # noqa: PLC0415 -- Windows has none
    except ImportError:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
