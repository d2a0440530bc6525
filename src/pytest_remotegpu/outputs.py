"""Files that a session writes: artifacts under safe names. Trusts no name that came from far away."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path, PurePosixPath
from typing import Final

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text

__all__ = ["Artifacts", "folder_name", "safe_parts"]

LONGEST_PART: Final = 200
DEEPEST: Final = 20
RESERVED: Final = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def folder_name(nodeid: str) -> str:
    """Name the folder of a test: readable, unique, fit for every file system, at most 100 characters."""
    digest = hashlib.sha256(nodeid.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9_.\[\]-]+", "-", nodeid.rpartition("/")[2]).strip("-.")
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


class Artifacts:
    """Receives the files of all tests of a session.

    :param root: the folder for them; made when the first file comes.
    :param limit: bytes that one test may send.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self.root = root
        self.count = 0
        self._limit = limit
        self._taken: dict[str, int] = {}

    def take(self, nodeid: str, piece: events.Artifact) -> None:
        """Write a piece of a file.

        :raises ProtocolError: for an unsafe name, or more bytes than allowed.
        """
        parts = safe_parts(from_text(piece.name))
        folder = self.root / folder_name(nodeid)
        if nodeid not in self._taken:
            self._taken[nodeid] = 0
            _empty(folder)
        self._taken[nodeid] += len(piece.data)
        if self._taken[nodeid] > self._limit:
            raise ProtocolError(f"the artifacts of {nodeid} are larger than {self._limit} bytes")
        target = folder / PurePosixPath(*parts)
        self._write(target, folder, piece)
        if piece.last:
            self.count += 1

    def _write(self, target: Path, folder: Path, piece: events.Artifact) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.parent.resolve().is_relative_to(folder.resolve()):
                raise ProtocolError(f"artifact {target.name!r} would leave its folder")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
            descriptor = os.open(target, flags, 0o644)
            with open(descriptor, "ab") as file:
                file.write(piece.data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise ProtocolError(
                f"artifact {target.name!r} is a file and a folder at once: {error}"
            ) from None


def _empty(folder: Path) -> None:
    """Take away what an earlier session left for this test, without following links."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    if folder.is_dir():
        for parent, folders, names in os.walk(folder, topdown=False):
            for name in names:
                Path(parent, name).unlink()
            for name in folders:
                path = Path(parent, name)
                path.unlink() if path.is_symlink() else path.rmdir()
