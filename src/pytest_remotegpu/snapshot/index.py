"""What is remembered of a snapshot, so that the next one reads only what has changed.

A cache: it may be missing, of another version, or damaged, and is then as good as empty. It holds
no content and no secret, only names, stamps and digests. Knows how it is stored; what follows from
it is for whoever takes a snapshot.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from array import array
from pathlib import Path
from typing import Final

import msgspec

from pytest_remotegpu import stamps
from pytest_remotegpu.manifest import DIGEST

__all__ = ["LEFT", "LINK", "POINTER", "SECRET", "Index", "Rows", "load", "save", "unpacked"]

_VERSION: Final = 1
_MAGIC: Final = b"pytest-remotegpu index\n"

SECRET: Final = 1
"""The content looks like a secret."""
POINTER: Final = 2
"""The content is a pointer of Git LFS."""
LINK: Final = 4
"""It is a symbolic link."""
LEFT: Final = 8
"""It stays behind, for the reason that stands in ``Rows.reasons``."""


class Rows(msgspec.Struct, array_like=True):
    """The files and links that the rules let through by name, sorted by path.

    ``stamps`` and ``digests`` hold one after the other, ``flags`` one byte for each; ``links`` are
    the texts of links that travel.
    """

    paths: list[str]
    stamps: bytes
    digests: bytes
    flags: bytes
    links: dict[str, str]
    reasons: dict[str, str]

    def fits(self) -> bool:
        """Whether the columns are equally long."""
        count = len(self.paths)
        sizes = (len(self.stamps), len(self.digests), len(self.flags))
        return sizes == (count * stamps.WIDTH * 8, count * DIGEST, count)

    def digest(self, index: int) -> bytes:
        """Give the digest of one file."""
        return self.digests[index * DIGEST : (index + 1) * DIGEST]


class Index(msgspec.Struct, array_like=True):
    """One snapshot as it is remembered.

    ``at`` is when it was begun, by the clock of its file system. ``steady`` says whether the rest
    of the fields are all that its list of files depends on: git's ``listings`` by their digests,
    the ``folders`` (with ``folder_stamps``; ``environments`` are those that are virtual
    environments) and, of the ``walked`` ones, each name; and that nothing is at the ``absent``
    paths. ``left_out`` and ``notes`` are what the names alone gave.
    """

    version: int
    package: str
    root: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    at: int
    steady: bool
    listings: dict[str, str]
    folders: list[str]
    folder_stamps: bytes
    environments: list[str]
    walked: list[str]
    absent: list[str]
    left_out: dict[str, str]
    notes: list[str]
    rows: Rows

    @classmethod
    def blank(
        cls, package: str, root: Path, include: tuple[str, ...], exclude: tuple[str, ...]
    ) -> Index:
        """Make one that knows nothing."""
        rows = Rows([], b"", b"", b"", {}, {})
        key = (_VERSION, package, str(root), include, exclude)
        return cls(*key, 0, False, {}, [], b"", [], [], [], {}, [], rows)

    def is_like(self, other: Index) -> bool:
        """Whether both are of the same root under the same rules, by the same code."""
        return (self.version, self.package, self.root, self.include, self.exclude) == (
            other.version, other.package, other.root, other.include, other.exclude
        )  # fmt: skip


_DECODER: Final = msgspec.msgpack.Decoder(Index)


def load(path: Path | None, like: Index) -> Index:
    """Read what is remembered; ``like`` itself where that is nothing, or of something else."""
    if path is None or not stamps.RELIABLE:
        return like
    try:
        data = path.read_bytes()
        body = data[len(_MAGIC) + DIGEST :]
        whole = data[: len(_MAGIC)] == _MAGIC
        if not whole or hashlib.sha256(body).digest() != data[len(_MAGIC) : -len(body)]:
            return like
        found = _DECODER.decode(body)
    except (OSError, msgspec.MsgspecError, ValueError):
        return like
    sound = found.rows.fits() and len(found.folder_stamps) == len(found.folders) * stamps.WIDTH * 8
    return found if sound and found.is_like(like) else like


def save(path: Path | None, index: Index) -> None:
    """Remember a snapshot, in one step; where that can't be, nothing is remembered."""
    if path is None or not stamps.RELIABLE:
        return
    try:
        body = msgspec.msgpack.encode(index)
    except UnicodeEncodeError:  # a name that isn't UTF-8
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError):
        descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123 -- a descriptor
                file.write(_MAGIC + hashlib.sha256(body).digest())
                file.write(body)
            os.replace(scratch, path)  # noqa: PTH105 -- texts
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(scratch)  # noqa: PTH108 -- a text
            raise


def unpacked(data: bytes) -> array[int]:
    """Give packed stamps as numbers."""
    found: array[int] = array("q")
    found.frombytes(data)
    return found
