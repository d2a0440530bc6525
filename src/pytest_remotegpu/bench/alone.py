"""One benchmark at a time on a device, among the processes of this user on this host.

Knows neither torch nor pytest.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

__all__ = ["locked", "on"]

_HELD: Final[set[Path]] = set()


@contextmanager
def on(device: str, environ: Mapping[str, str], folder: Path | None = None) -> Iterator[None]:
    """Wait until no other process of this user benchmarks on a device.

    Which of several cards is meant is told by what this process is shown of them. Ranks of one test
    do not wait for each other: they may have to meet.

    :param device: such as ``cuda:0``. :param environ: the variables of this process.
    :param folder: where the lock lies; that for temporary files without it.
    """
    path = _path(device, environ, Path(tempfile.gettempdir()) if folder is None else folder)
    if path in _HELD or environ.get("WORLD_SIZE", "1") != "1":
        yield
        return
    try:
        file = path.open("ab")
    except OSError:  # nobody can be told, so nobody is
        yield
        return
    with file, locked(file):
        _HELD.add(path)
        try:
            yield
        finally:
            _HELD.discard(path)


def _path(device: str, environ: Mapping[str, str], folder: Path) -> Path:
    user = getattr(os, "getuid", lambda: 0)()
    told = f"{device}\n{environ.get('CUDA_VISIBLE_DEVICES', '')}"
    digest = hashlib.sha256(told.encode(errors="replace")).hexdigest()
    return folder / f"remotegpu-benchmark-{user}-{digest[:16]}"


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
