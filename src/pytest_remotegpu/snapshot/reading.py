"""Reads one file or link as it is at one moment; knows no rule but what its content betrays."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from pytest_remotegpu import guards, stamps
from pytest_remotegpu.snapshot.listing import unreadable
from pytest_remotegpu.snapshot.sieve import NOT_UTF8
from pytest_remotegpu.snapshot.values import printable

__all__ = ["LEAVES", "SPECIAL", "Content", "read_file", "read_link"]

LEAVES: Final = "is a symbolic link that leaves the project root"
SPECIAL: Final = "is a pipe, a socket or a device, no file"
_UNSTEADY: Final = "kept changing while it was read"
_VANISHED: Final = "vanished while the snapshot was taken"
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_POINTER_BELOW: Final = 1024  # bytes, by the specification

_CHUNK: Final = 1 << 20
_ATTEMPTS: Final = 3
_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a named pipe put in the file's place must not hang us
)


class Content(NamedTuple):
    """What reading a file to its end gives.

    ``stamp`` is what the file had before and after. ``secret`` says whether it looks like one,
    ``pointer`` whether it only stands for content in Git LFS.
    """

    digest: bytes
    stamp: stamps.Stamp
    secret: bool
    pointer: bool


def read_file(path: str, before: stamps.Stamp | None = None) -> Content | str:
    """Return a file's content as it was at one moment, or why there is none.

    :param before: its stamp, where somebody has looked just now
    """
    try:
        for _ in range(_ATTEMPTS):
            first = before if before is not None else stamps.of(os.lstat(path))
            before = None
            if not stat.S_ISREG(first[stamps.MODE]):
                return SPECIAL
            digest, head, after = _read_once(path, first[stamps.SIZE])
            if first == stamps.of(after):
                small = after.st_size < _LFS_POINTER_BELOW
                pointer = small and head.startswith(_LFS_POINTER)
                return Content(digest, first, guards.of_content(head) is not None, pointer)
    except (FileNotFoundError, NotADirectoryError):
        return _VANISHED
    except OSError as error:
        return unreadable(error)
    return _UNSTEADY


def _read_once(path: str, size: int) -> tuple[bytes, bytes, os.stat_result]:
    """Give a file's digest, its first bytes, and its status once it is read.

    :param size: what it had; one that has not changed takes a single read.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        chunk = head = os.read(descriptor, min(size, _CHUNK) + 1)
        digest, total = hashlib.sha256(chunk), len(chunk)
        while chunk and total < size:
            chunk = os.read(descriptor, _CHUNK)
            digest.update(chunk)
            total += len(chunk)
        return digest.digest(), head, os.fstat(descriptor)
    finally:
        os.close(descriptor)


def read_link(root: Path, path: str) -> str:
    """Return a link's text as it is to be on the far side.

    :raises ValueError: with the reason why it can't travel
    """
    here = root / path
    try:
        text = os.readlink(here).replace(os.sep, "/")  # noqa: PTH115 -- Path alters the text
    except OSError as error:
        raise ValueError(unreadable(error)) from error
    target = Path(os.path.realpath(here))
    if not target.is_relative_to(root):
        raise ValueError(LEAVES)
    if not _stays(text, path.count("/")):
        text = Path(os.path.relpath(target, here.parent)).as_posix()
    if printable(text) != text:
        raise ValueError(NOT_UTF8)
    return text


def _stays(text: str, depth: int) -> bool:
    """Whether a link so many folders deep is relative, goes up at its start only, and not too far.

    What goes down through another link and then up may end anywhere; this form can't.
    """
    parts = [part for part in text.split("/") if part not in {"", "."}]
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return not Path(text).is_absolute() and ups <= depth and ".." not in parts[ups:]
