"""Locks that stand for cards: where they lie, and which processes have them.

Looks and takes nothing: whoever takes a card is the worker. Knows a card by its UUID only; must not
know orders, backends or pytest. Linux, where cards are leased; elsewhere nobody has anything.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import fcntl
    import pwd

__all__ = ["FOLDER", "NEXT", "WANTED", "Lock", "about", "descends", "file_of", "holders", "look"]

FOLDER: Final = Path("/tmp/pytest-remotegpu-leases")  # noqa: S108 -- one place for all users, whatever their TMPDIR
WANTED: Final = ".wanted"
"""Of the lock that those share who wait for a card."""
NEXT: Final = ".next"
"""Of the lock that one who waits for several cards has."""
MOST_ANCESTORS: Final = 100


@dataclass(frozen=True)
class Lock:
    """Who has a card, and who wants it.

    :ivar held: whether anybody has. :ivar by: the processes that took it; empty where they are in
        another container, or have left it to a process of theirs.
    :ivar wanted_by: the processes that wait for it.
    """

    held: bool
    by: tuple[int, ...]
    wanted_by: tuple[int, ...]


def file_of(uuid: str, kind: str = "", folder: Path = FOLDER) -> Path:
    """Name the file of a card's lock.

    :param kind: empty for the lease itself, :data:`WANTED` or :data:`NEXT`.
    """
    return folder / (uuid.replace("/", "_") + kind)


def look(uuid: str, folder: Path = FOLDER) -> Lock:
    """Look at the lease of a card."""
    path = file_of(uuid, folder=folder)
    return Lock(_is_held(path), tuple(holders(path)), tuple(holders(file_of(uuid, WANTED, folder))))


def _is_held(path: Path) -> bool:
    """Say whether a file is locked; for a moment it is by us, in a way that others can share."""
    if sys.platform == "win32":
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def holders(path: Path) -> list[int]:
    """List the processes that have locked a file, as the kernel tells."""
    try:
        found = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    pids = []
    for line in lines:
        parts = line.split()
        if "->" not in parts and parts[1:2] == ["FLOCK"] and device in parts:
            pids.append(int(parts[4]))
    return pids


def about(pid: int) -> str:
    """Say what a process is: its number, its user and its command."""
    folder = Path(f"/proc/{pid}")
    owner = command = ""
    if sys.platform != "win32":
        with contextlib.suppress(OSError, KeyError):
            owner = f" of {pwd.getpwuid(folder.stat().st_uid).pw_name}"
    with contextlib.suppress(OSError):
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").strip()
        command = f" ({words.decode('utf-8', 'replace')[:80]})" if words else ""
    return f"process {pid}{owner}{command}"


def descends(pid: int, uuid: str, folder: Path = FOLDER) -> bool:
    """Say whether a process uses a card under its lease: it, or an ancestor, has the lock open.

    Of other users' processes that can't be seen; there, whoever took the lock is taken at his word
    where he is the same user.
    """
    path = file_of(uuid, folder=folder)
    try:
        wanted = path.stat()
    except OSError:
        return False
    for _generation in range(MOST_ANCESTORS):
        if pid <= 1:
            return False
        try:
            if any(_is_same(fd, wanted) for fd in Path(f"/proc/{pid}/fd").iterdir()):
                return True
        except PermissionError:
            return _owner(pid) in {_owner(holder) for holder in holders(path)}
        except OSError:
            return False
        pid = _parent(pid)
    return False


def _is_same(fd: Path, wanted: os.stat_result) -> bool:
    try:
        found = fd.stat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


def _owner(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0
