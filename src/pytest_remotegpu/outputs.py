"""Files that a session writes: artifacts under safe names. Trusts no name from far away.

No test loses its verdict for a file: what can't be written is missing, and said to be.
"""

from __future__ import annotations

import contextlib
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

__all__ = ["Artifacts", "clear", "folder_name", "in_the_way", "safe_parts"]

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
    """What one attempt of a test has sent: bytes, files that are whole, files that are not yet.

    :ivar lost: of those that are not whole yet, the ones that could not be written.
    """

    attempt: str
    size: int = 0
    pieces: int = 0
    whole: set[PurePosixPath] = field(default_factory=set)
    open: set[PurePosixPath] = field(default_factory=set)
    lost: set[PurePosixPath] = field(default_factory=set)


class Artifacts:
    """Receives the files of all tests of a session.

    :param root: the folder for them; made when the first file comes.
    :param limit: bytes that one test may send.
    :ivar troubles: why files are missing that were sent, each reason once.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self.root = root
        self.troubles: list[str] = []
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
        received = self._received(nodeid, attempt)
        received.size += len(piece.data)
        received.pieces += 1
        if received.size > self._limit or received.pieces * LEAST > self._limit + SLACK:
            raise ProtocolError(f"the artifacts of {nodeid} are larger than {self._limit} bytes")
        begins = name not in received.open
        if begins:
            received.open.add(name)
            received.whole.discard(name)
        if name not in received.lost and not self._write(nodeid, name, piece.data, begins=begins):
            received.lost.add(name)
        if piece.last:
            received.open.remove(name)
            if name not in received.lost:
                received.whole.add(name)
            received.lost.discard(name)

    def _received(self, nodeid: str, attempt: str) -> _Received:
        """Give what this attempt has sent; a new one begins with an empty folder."""
        received = self._tests.get(nodeid)
        if received is None or received.attempt != attempt:
            received = self._tests[nodeid] = _Received(attempt)
            self._trouble(clear(self.root, [nodeid]))
        return received

    def _trouble(self, text: str) -> None:
        if text and text not in self.troubles:
            self.troubles.append(text)

    def _write(self, nodeid: str, name: PurePosixPath, data: bytes, *, begins: bool) -> bool:
        """Write a piece; say whether that went well."""
        folder = self.root / folder_name(nodeid)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_below(folder, folder / name, data, begins=begins)
        except OSError as error:
            self._trouble(f"artifacts are missing: {self.root} can't be written to: {_why(error)}")
            return False
        return True


def _write_below(folder: Path, target: Path, data: bytes, *, begins: bool) -> None:
    """Write a piece of a file below a folder that is there; nothing stays of one that fails."""
    flags = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    flags |= os.O_CREAT | os.O_TRUNC if begins else os.O_APPEND
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(folder.resolve()):
            raise ProtocolError(f"artifact {target.name!r} would leave its folder")
        with os.fdopen(os.open(target, flags, 0o644), "ab") as file:
            file.write(data)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise ProtocolError(
            f"artifact {target.name!r} is a file and a folder at once: {error}"
        ) from None
    except OSError:
        with contextlib.suppress(OSError):
            target.unlink()
        raise


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def in_the_way(root: Path) -> Path | None:
    """Give the file that stands where ``root``, or a folder above it, would have to be."""
    for path in (root, *root.parents):
        if os.path.lexists(path):
            return None if os.path.isdir(path) else path  # noqa: PTH112 -- a Path may raise
    return None


def clear(root: Path, nodeids: Iterable[str]) -> str:
    """Take away what an earlier session left for these tests below ``root``.

    :return: why something of it is left; empty where nothing is.
    """
    try:
        if root.is_dir():
            for nodeid in nodeids:
                _remove(root / folder_name(nodeid))
    except OSError as error:
        return f"files of an earlier run are left in {root}: {_why(error)}"
    return ""


def _remove(folder: Path) -> None:
    """Take a folder away with all that is in it, without following links."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.is_dir():
        shutil.rmtree(folder)
