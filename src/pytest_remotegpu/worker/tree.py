"""Receives file contents and builds a source tree from them; knows no wire and no pytest.

A store keeps contents under their digest. A tree is built beside its destination and renamed when
it is whole, so that nobody ever sees half of one. Entries are not trusted: all are judged before
the first byte is written, every content is checked again while it is copied, and nothing is ever
written outside the tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pytest_remotegpu.errors import RemoteGpuError

__all__ = ["Incoming", "Store", "TreeEntry", "TreeError"]

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_EXECUTABLE: Final = 0o100
_CHUNK: Final = 1 << 20
_SHOWN: Final = 3


class TreeError(RemoteGpuError):
    """Raised when contents or entries are not what they claim to be, or can't be written."""


class TreeEntry(NamedTuple):
    """One file or symbolic link to build; any tuple of the same four will do.

    ``path`` is relative with forward slashes, ``digest`` the SHA-256 of a file's content in hex.
    Of ``mode`` only the owner's executable bit counts. ``link`` is a symbolic link's text, which
    may go up at its start but not above the tree, and None for a file.
    """

    path: str
    digest: str
    mode: int
    link: str | None


_Entry = tuple[str, str, int, str | None]


class Store:
    """Contents by digest in a folder that only this user can enter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return those digests whose content is not here, each once, in their order.

        :raises TreeError: one of them is no digest
        """
        return [digest for digest in dict.fromkeys(digests) if not self._place(digest).is_file()]

    def receive(self, digest: str) -> Incoming:
        """Begin to take in one content, piece by piece.

        :raises TreeError: ``digest`` is no digest
        """
        return Incoming(self._place(digest))

    def put_small(self, digest: str, content: bytes) -> None:
        """Take in one content that has come whole.

        :raises TreeError: ``digest`` is no digest, or not that of the content, or the system
            refuses it, for instance for lack of space
        """
        place = self._place(digest)
        actual = hashlib.sha256(content).hexdigest()
        if actual != digest:
            raise TreeError(f"content announced as {digest!r} arrived as {actual!r}")
        self._count += 1
        scratch = self._folder / digest[:2] / f".incoming-{os.getpid()}-{self._count}"
        try:
            _write_new(scratch, content)
            os.replace(scratch, place)  # noqa: PTH105 -- one of very many
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise TreeError(f"can't store {digest!r}: {error.strerror}") from error

    def put(self, digest: str, chunks: Iterable[bytes]) -> None:
        """Take in one content.

        :raises TreeError: ``digest`` is no digest, or not that of the chunks put together
        """
        incoming = self.receive(digest)
        try:
            for chunk in chunks:
                incoming.write(chunk)
            incoming.finish()
        finally:
            incoming.discard()

    def build(self, destination: Path, entries: Iterable[_Entry]) -> None:
        """Write a tree at ``destination``, which must not exist or be an empty folder.

        :raises TreeError: an entry is unsafe or contradicts another, a content is missing or
            damaged, or the system refuses; the destination is then as it was before
        """
        wanted = self.judge(entries)
        self._require(wanted)
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".tree-", dir=destination.parent))
            try:
                self._fill(scratch, wanted)
                scratch.rename(destination)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        except OSError as error:
            raise TreeError(f"can't build {str(destination)!r}: {error}") from error

    @staticmethod
    def judge(entries: Iterable[_Entry]) -> list[TreeEntry]:
        """Return the entries if a tree can be made of them that keeps to itself.

        :raises TreeError: where not
        """
        return _judged(entries)

    def holds(self, digest: str) -> bool:
        """Whether a content is here, whole; a damaged one is removed.

        :raises TreeError: ``digest`` is no digest
        """
        place = self._place(digest)
        try:
            with place.open("rb", buffering=0) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    return True
            place.unlink(missing_ok=True)
        except OSError:
            pass
        return False

    def get(self, digest: str) -> bytes | None:
        """Give a whole content; None where it is not here, or damaged, and so removed."""
        place = self._place(digest)
        try:
            content = place.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest() != digest:
            place.unlink(missing_ok=True)
            return None
        self._use(place)
        return content

    @staticmethod
    def _use(place: Path) -> None:
        """Note that a content was used, so that others are the first to go."""
        with contextlib.suppress(OSError):
            os.utime(place)

    def _place(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise TreeError(f"{digest!r} is no digest (64 lower-case hexadecimal digits)")
        return self._folder / digest[:2] / digest

    def _require(self, entries: Sequence[TreeEntry]) -> None:
        paths = {entry.digest: entry.path for entry in entries if entry.link is None}
        lacking = [paths[digest] for digest in self.missing(paths)]
        if lacking:
            shown = ", ".join(repr(path) for path in lacking[:_SHOWN])
            raise TreeError(f"the contents of {len(lacking)} files never arrived, of {shown} first")

    def _fill(self, scratch: Path, entries: Sequence[TreeEntry]) -> None:
        for folder in {(scratch / entry.path).parent for entry in entries}:
            folder.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            if entry.link is None:
                self.copy(entry, scratch / entry.path)
        for entry in entries:  # last, so that no file can be written through one
            if entry.link is not None:
                (scratch / entry.path).symlink_to(entry.link)

    def copy(self, entry: TreeEntry, target: Path) -> None:
        """Write a content to a path at which nothing is.

        :raises TreeError: it is missing, or damaged and so removed
        :raises OSError: the system refuses
        """
        source = self._place(entry.digest)
        digest = hashlib.sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(target, flags, 0o777 if entry.mode & _EXECUTABLE else 0o666)
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123 -- a descriptor
            for chunk in self._chunks(source, entry):
                digest.update(chunk)
                _write_all(file.fileno(), chunk)
        if digest.hexdigest() != entry.digest:
            source.unlink(missing_ok=True)  # so that it counts as missing the next time
            raise TreeError(f"the stored content of {entry.path!r} is damaged; send it again")
        self._use(source)

    @staticmethod
    def _chunks(path: Path, entry: TreeEntry) -> Iterator[bytes]:
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            raise TreeError(
                f"the stored content of {entry.path!r} is gone; send it again"
            ) from None
        with file:
            while chunk := file.read(_CHUNK):
                yield chunk


class Incoming:
    """One content on its way into a store; it appears there when finished, or not at all.

    :ivar size: bytes that have come.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._digest = hashlib.sha256()
        place.parent.mkdir(mode=0o700, exist_ok=True)
        self._descriptor, name = tempfile.mkstemp(prefix=".incoming-", dir=place.parent)
        self._path = Path(name)
        self._open = True
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Take in the next piece.

        :raises TreeError: the system refuses it, for instance for lack of space
        """
        self._digest.update(chunk)
        self.size += len(chunk)
        try:
            _write_all(self._descriptor, chunk)
        except OSError as error:
            raise TreeError(f"can't store {self._place.name!r}: {error.strerror}") from error

    def finish(self) -> None:
        """Check the whole and let it appear in the store.

        :raises TreeError: it has another digest than announced; nothing appears
        """
        actual = self._digest.hexdigest()
        if actual != self._place.name:
            self.discard()
            raise TreeError(f"content announced as {self._place.name!r} arrived as {actual!r}")
        self._path.replace(self._place)
        self._close()

    def discard(self) -> None:
        """Forget it, unless it is finished; may be called again."""
        if self._open:
            self._path.unlink(missing_ok=True)
            self._close()

    def _close(self) -> None:
        self._open = False
        os.close(self._descriptor)


def _write_new(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, flags, 0o600)
    try:
        _write_all(descriptor, content)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _judged(entries: Iterable[_Entry]) -> list[TreeEntry]:
    """Return the entries if a tree can be made of them that keeps to itself."""
    wanted = [TreeEntry(*entry) for entry in entries]
    paths: set[str] = set()
    folders: set[str] = set()
    for entry in wanted:
        parts = _judge(entry)
        if entry.path in paths:
            raise TreeError(f"{entry.path!r} comes twice in one tree")
        paths.add(entry.path)
        folders.update("/".join(parts[:end]) for end in range(1, len(parts)))
    for path in sorted(paths & folders):
        raise TreeError(f"{path!r} is to be a file or link, and a folder with others in it")
    return wanted


def _judge(entry: TreeEntry) -> tuple[str, ...]:
    parts = tuple(entry.path.split("/"))
    if not {"", ".", ".."}.isdisjoint(parts) or _DRIVE.match(entry.path) or _odd(entry.path):
        raise TreeError(f"{entry.path!r} is no plain path inside the tree")
    if entry.link is not None and not _stays(entry.link, len(parts) - 1):
        raise TreeError(f"{entry.path!r} is a link to {entry.link!r}, which may leave the tree")
    return parts


def _stays(text: str, depth: int) -> bool:
    """Whether a link so many folders deep is relative, goes up at its start only, and not too far.

    As every link of the tree has this form, and none has another for its folder, no chain of them
    can lead out; a link that goes down through another and then up could.
    """
    parts = [part for part in text.split("/") if part not in {"", "."}]
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    plain = text != "" and not text.startswith("/") and not _odd(text)
    return plain and ups <= depth and ".." not in parts[ups:]


def _odd(text: str) -> bool:
    """Whether no file system could take it: it holds a NUL, or isn't Unicode text."""
    return "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)
