"""Files that a session writes: artifacts under safe names. Trusts no name from far away."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text

__all__ = ["Artifacts", "clear", "folder_name", "safe_parts"]

LEAST: Final = 128
SLACK: Final = 2**16
"""Empty pieces are not free either: each counts for so many bytes, beyond so many for them all."""
LONGEST_PART: Final = 200
DEEPEST: Final = 20
RESERVED: Final = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def folder_name(nodeid: str) -> str:
    """Name a test's folder: readable, unique, fit for every file system, at most 100 characters."""
    digest = hashlib.sha256(nodeid.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    path, colons, name = nodeid.partition("::")
    readable = path.rpartition("/")[2] + colons + name
    readable = re.sub(r"[^A-Za-z0-9_.\[\]-]+", "-", readable).strip("-.")
    return f"{readable[:90]}-{digest}"


def safe_parts(name: str) -> tuple[str, ...]:
    """Split a relative posix path into parts that every file system takes.

    :raises ProtocolError: where it could lead anywhere but below the folder that it is for.
    """
    parts = tuple(name.split("/"))
    if len(parts) > DEEPEST or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ProtocolError(f"unsafe artifact name {name[:100]!r}")
    return tuple(_portable(part) for part in parts)


def _portable(part: str) -> str:
    """Replace what some file system refuses; a digest keeps two names apart that become alike."""
    fit = re.sub(r'[\x00-\x1f\x7f-\x9f\ud800-\udfff\\:*?"<>|]', "_", part).rstrip(". ")
    if RESERVED.fullmatch(fit) or not fit or len(fit.encode()) > LONGEST_PART:
        fit = f"_{fit.encode()[: LONGEST_PART // 2].decode(errors='ignore')}"
    if fit == part:
        return part
    digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{fit}-{digest}"


@dataclass
class _Received:
    """What one attempt of a test has sent: bytes, files that are whole, files that are not yet."""

    attempt: str
    size: int = 0
    pieces: int = 0
    whole: set[PurePosixPath] = field(default_factory=set)
    open: set[PurePosixPath] = field(default_factory=set)


class Artifacts:
    """Receives the files of all tests of a session.

    :param root: the folder for them; made when the first file comes.
    :param limit: bytes that one test may send.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self.root = root
        self._limit = limit
        self._tests: dict[str, _Received] = {}

    @property
    def count(self) -> int:
        """How many whole files have come."""
        return sum(len(received.whole) for received in self._tests.values())

    def names(self) -> list[str]:
        """List the whole files by their path below the root."""
        return sorted(
            f"{folder_name(nodeid)}/{name}"
            for nodeid, received in self._tests.items()
            for name in received.whole
        )

    def take(self, nodeid: str, piece: events.Artifact, attempt: str = "") -> None:
        """Write a piece of a file.

        :param attempt: names the run of the test that sends it; another one begins from nothing.
        :raises ProtocolError: for an unsafe name, or more bytes than allowed.
        """
        name = PurePosixPath(*safe_parts(from_text(piece.name)))
        folder = self.root / folder_name(nodeid)
        received = self._tests.get(nodeid)
        if received is None or received.attempt != attempt:
            received = self._tests[nodeid] = _Received(attempt)
            _remove(folder)
        received.size += len(piece.data)
        received.pieces += 1
        if received.size > self._limit or received.pieces * LEAST > self._limit + SLACK:
            raise ProtocolError(f"the artifacts of {nodeid} are larger than {self._limit} bytes")
        self._write(folder / name, folder, piece.data, begins=name not in received.open)
        received.open.add(name)
        if piece.last:
            received.open.remove(name)
            received.whole.add(name)

    def _write(self, target: Path, folder: Path, data: bytes, *, begins: bool) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.parent.resolve().is_relative_to(folder.resolve()):
                raise ProtocolError(f"artifact {target.name!r} would leave its folder")
            flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            descriptor = os.open(target, flags | (os.O_TRUNC if begins else os.O_APPEND), 0o644)
            with os.fdopen(descriptor, "ab") as file:
                file.write(data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise ProtocolError(
                f"artifact {target.name!r} is a file and a folder at once: {error}"
            ) from None


def clear(root: Path, nodeids: Iterable[str]) -> None:
    """Take away what an earlier session left for these tests below ``root``."""
    if root.is_dir():
        for nodeid in nodeids:
            _remove(root / folder_name(nodeid))


def _remove(folder: Path) -> None:
    """Take a folder away with all that is in it, without following links."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.is_dir():
        shutil.rmtree(folder)
