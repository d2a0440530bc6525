"""Keeps what lasts from session to session within bounds: what was used last goes last.

Deletes only what can be sent again, and nothing that is in use. Knows no order and no tree.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["LIMIT", "MOST_PLACES", "free", "limit_places", "limit_store", "make_room"]

LIMIT: Final = 4 * 2**30
"""Bytes that the store may have; it is brought back to three quarters of that."""
MOST_PLACES: Final = 8
"""Trees that stay although nobody uses them."""
_BLOCK: Final = 4096
"""Bytes that a file takes at least."""
_NEWS: Final = LIMIT // 32
"""Bytes that come in between two looks at the whole store."""
_STALE: Final = 86400.0
"""Seconds after which nobody goes on writing to a file that is not whole."""


class _Content(NamedTuple):
    used: float
    size: int
    path: str


def limit_store(store: Path, received: int, limit: int = LIMIT) -> None:
    """Remove what was not used for longest, once enough has come in since the last time.

    :param received: bytes that came in since this was called. :param limit: bytes.
    """
    if received <= 0:
        return
    with contextlib.suppress(OSError), _alone(store / "lock") as file:
        if file < 0:
            return
        text = os.pread(file, 32, 0).split(b"\0")[0].strip()
        grown = (int(text) if text.isdigit() else 0) + received
        if grown >= min(_NEWS, limit):
            _remove_oldest(store, limit * 3 // 4 if _size(store) > limit else -1, frozenset())
            grown = 0
        os.ftruncate(file, 0)
        os.pwrite(file, str(grown).encode(), 0)


def free(folder: Path) -> int:
    """Give the bytes that the disk of a folder has left for this user."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def make_room(store: Path, needed: Collection[str]) -> bool:
    """Remove everything but what is needed, on a disk that is full; say whether that was anything.

    :param needed: digests.
    """
    return _remove_oldest(store, 0, needed)


def _size(store: Path) -> int:
    return sum(content.size for content in _contents(store))


def _remove_oldest(store: Path, limit: int, needed: Collection[str]) -> bool:
    """Remove contents until the rest has no more bytes than ``limit``; -1 removes none."""
    contents = sorted(_contents(store))
    left = sum(content.size for content in contents)
    removed = False
    for content in contents:
        if left <= limit or limit < 0:
            break
        if os.path.basename(content.path) in needed:  # noqa: PTH119 -- one of very many
            continue
        with contextlib.suppress(OSError):
            os.unlink(content.path)  # noqa: PTH108 -- likewise
            left -= content.size
            removed = True
    return removed


def _contents(store: Path) -> Iterator[_Content]:
    """Give every content; what somebody began to write long ago is removed."""
    for folder in _scan(store):
        if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):  # noqa: PLR2004 -- hex
            continue
        for entry in _scan(folder.path):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if not entry.name.startswith("."):
                    yield _Content(status.st_mtime, max(status.st_size, _BLOCK), entry.path)
                elif time.time() - status.st_mtime > _STALE:
                    os.unlink(entry.path)  # noqa: PTH108 -- one of very many


def _scan(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def limit_places(trees: Path, most: int = MOST_PLACES) -> None:
    """Remove the trees that were not used for longest and that nobody uses now.

    :param most: how many may stay, those in use included.
    """
    found = []
    for entry in _scan(trees):
        with contextlib.suppress(OSError):
            found.append((os.stat(f"{entry.path}/lock").st_mtime, Path(entry.path)))  # noqa: PTH116
    for _, place in sorted(found)[: max(len(found) - most, 0)]:
        with contextlib.suppress(OSError), _alone(place / "lock") as lock:
            if lock >= 0:
                shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Hold a lock in the block; -1 where others have it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield -1
    else:
        yield descriptor
    finally:
        os.close(descriptor)
