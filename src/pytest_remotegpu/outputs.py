"""Files that a session writes: artifacts under safe names. Trusts no name from far away.

No test loses its verdict for a file: what can't be written is missing, and said to be.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct, field

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text

__all__ = [
    "OWN",
    "Artifacts",
    "clear",
    "folder_name",
    "in_the_way",
    "made_below",
    "make",
    "safe_parts",
    "shown",
]

OWN: Final = ".remotegpu"
"""The folder in a project's own for what pytest's cache would have, where there is none."""
LEAST: Final = 128
SLACK: Final = 2**16
"""Empty pieces are not free either: each counts for so many bytes, beyond so many for them all."""
TIMES: Final = 4
"""Files that come again while their test runs may cost so many times what it may leave."""
CUT: Final = ".part"
"""Ends the name of a file that is not whole."""
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


class _Arriving(Struct):
    """A file that is not whole yet.

    :ivar path: where its pieces are put together; ``None`` where they can't be written.
    """

    path: Path | None
    size: int = 0


class _Received(Struct):
    """What one attempt of a test has sent: files that are whole, with their size, and others.

    :ivar came: bytes of all pieces, those included that were replaced since.
    """

    attempt: str
    came: int = 0
    pieces: int = 0
    whole: dict[PurePosixPath, int] = field(default_factory=dict)
    open: dict[PurePosixPath, _Arriving] = field(default_factory=dict)

    def size_beside(self, name: PurePosixPath) -> int:
        """Give the bytes of all files but one."""
        whole = sum(size for other, size in self.whole.items() if other != name)
        return whole + sum(file.size for other, file in self.open.items() if other != name)


class Artifacts:
    """Receives the files of all tests of a session.

    A file has its name once it is whole; what there was before of that name stays until then.

    :param root: the folder for them; made when the first file comes.
    :param limit: bytes that one test may leave.
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

    def folder(self, nodeid: str) -> Path | None:
        """Give the folder of a test's files, where a whole one has come."""
        received = self._tests.get(nodeid)
        return self.root / folder_name(nodeid) if received is not None and received.whole else None

    def begin(self, nodeid: str, attempt: str) -> None:
        """Take away what an earlier attempt at a test has sent, since another one begins."""
        if nodeid in self._tests:
            self._received(nodeid, attempt)

    def take(self, nodeid: str, piece: events.Artifact, attempt: str = "") -> None:
        """Write a piece of a file.

        :param attempt: names the run of the test that sends it; another one begins from nothing.
        :raises ProtocolError: for an unsafe name, or more bytes than allowed.
        """
        name = PurePosixPath(*safe_parts(from_text(piece.name)))
        received = self._received(nodeid, attempt)
        begins = piece.first or name not in received.open
        self._weigh(nodeid, received, name, piece, 0 if begins else received.open[name].size)
        if begins:
            self._give_up(received.open.pop(name, None))
            received.open[name] = _Arriving(self._begin(nodeid, name))
        file = received.open[name]
        file.size += len(piece.data)
        if file.path is not None and not self._write(file.path, piece.data):
            file.path = None
        if piece.last:
            del received.open[name]
            received.whole.pop(name, None)
            if self._put_in_place(file, self.root / folder_name(nodeid) / name):
                received.whole[name] = file.size

    def drop(self, nodeid: str, event: events.Dropped, attempt: str = "") -> None:
        """Take a file away that came while its test ran, and that the test has not left.

        :raises ProtocolError: for an unsafe name.
        """
        name = PurePosixPath(*safe_parts(from_text(event.name)))
        received = self._received(nodeid, attempt)
        self._give_up(received.open.pop(name, None))
        if received.whole.pop(name, None) is not None:
            self._remove(self.root / folder_name(nodeid) / name)

    def close(self) -> list[str]:
        """Take in no more: what has come of files that are not whole is kept under another name.

        :return: what there is to say of those files.
        """
        said = []
        for nodeid, received in self._tests.items():
            for name, file in received.open.items():
                if file.path is not None and file.size:
                    kept = name.with_name(f"{name.name}{CUT}")
                    self._put_in_place(file, self.root / folder_name(nodeid) / kept)
                    what = f"artifact {kept.as_posix()!r} of {nodeid}"
                    said.append(f"{what} is cut: no more than {file.size} bytes of it came")
                else:
                    self._give_up(file)
            received.open.clear()
        return said

    def _weigh(
        self,
        nodeid: str,
        received: _Received,
        name: PurePosixPath,
        piece: events.Artifact,
        before: int,
    ) -> None:
        received.came += len(piece.data)
        received.pieces += 1
        most = TIMES * self._limit
        size = received.size_beside(name) + before + len(piece.data)
        if size > self._limit or received.came > most or received.pieces * LEAST > most + SLACK:
            raise ProtocolError(f"the artifacts of {nodeid} are larger than {self._limit} bytes")

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

    # the disk

    def _begin(self, nodeid: str, name: PurePosixPath) -> Path | None:
        """Make the place where a file's pieces are put together."""
        folder = self.root / folder_name(nodeid)
        with self._minding():
            make(folder)
            return made_below(folder, folder / name)
        return None

    def _write(self, path: Path, data: bytes) -> bool:
        """Write a piece; say whether that went well. Nothing stays of a file of which one fails."""
        flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        with self._minding():
            try:
                with os.fdopen(os.open(path, flags), "ab") as file:
                    file.write(data)
            except OSError:
                with contextlib.suppress(OSError):
                    path.unlink()
                raise
            return True
        return False

    def _put_in_place(self, file: _Arriving, target: Path) -> bool:
        """Give a file its name; say whether that went well."""
        if file.path is None:
            return False
        with self._minding():
            if target.is_dir() and not target.is_symlink():
                file.path.unlink()
                raise ProtocolError(f"artifact {target.name!r} is a file and a folder at once")
            file.path.replace(target)
            return True
        return False

    def _give_up(self, file: _Arriving | None) -> None:
        if file is not None and file.path is not None:
            self._remove(file.path)

    def _remove(self, path: Path) -> None:
        with self._minding():
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _minding(self) -> Iterator[None]:
        """Say once what the disk refuses."""
        try:
            yield
        except OSError as error:
            self._trouble(f"artifacts are missing: {self.root} can't be written to: {_why(error)}")


def made_below(folder: Path, target: Path) -> Path:
    """Make a file of a name of its own beside ``target``, which lies below a folder.

    :raises ProtocolError: where it would not, or a file and a folder would have one name.
    :raises OSError: where it can't be made.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(folder.resolve()):
            raise ProtocolError(f"artifact {target.name!r} would leave its folder")
    except (FileExistsError, NotADirectoryError) as error:
        raise ProtocolError(
            f"artifact {target.name!r} is a file and a folder at once: {error}"
        ) from None
    path = target.with_name(f"{target.name[:LONGEST_PART]}.{secrets.token_hex(4)}{CUT}")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    return path


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def make(folder: Path) -> None:
    """Make the folder of a test; :data:`OWN` above it is made as pytest makes its cache.

    :raises OSError: where it can't be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    home = folder.parent.parent
    if home.name == OWN:
        with contextlib.suppress(FileExistsError), Path(home, ".gitignore").open("x") as file:
            file.write("# Made by pytest-remotegpu.\n*\n")


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


def shown(path: Path, root: Path) -> str:
    """Name a path as seen from the project's root, where it lies below that."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()
