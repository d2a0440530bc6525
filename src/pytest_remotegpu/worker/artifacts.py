"""What a test leaves in its ``artifacts_dir``, made into events; knows nothing of pytest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text

__all__ = ["Sent", "asked", "collect", "folder", "look", "pieces", "send"]

PIECE: Final = 2**20


def folder(base: str, item: int) -> Path:
    """Name the folder of one test's artifacts; it is there only once the test asked for it."""
    return Path(base, str(item))


class Sent:
    """Which files of a test were sent while it ran, and with which contents.

    It is kept in a file beside the test's folder: one process writes that, another one reads it.

    :ivar known: size and digest of each file, by its name.
    """

    def __init__(self, base: str, item: int) -> None:
        self._path = Path(base, f"{item}.sent")
        self.known: dict[str, tuple[int, str]] = {}

    def read(self) -> Sent:
        """Take in what the file says, where there is one."""
        with contextlib.suppress(OSError):
            for line in self._path.read_bytes().splitlines():
                self._take(*json.loads(line))
        return self

    def note(self, name: str, size: int, digest: str) -> None:
        """Take note of a file; of one that is gone, where ``digest`` is empty."""
        self._take(name, size, digest)
        with self._path.open("ab") as file:
            file.write(json.dumps([name, size, digest]).encode() + b"\n")

    def _take(self, name: str, size: int, digest: str) -> None:
        self.known.pop(name, None)
        if digest:
            self.known[name] = (size, digest)

    def has(self, name: str, size: int, path: Path) -> bool:
        """Say whether just this content of a file was sent."""
        before, digest = self.known.get(name, (-1, ""))
        return size == before and digest == _digest(path)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def asked(base: str, item: int) -> bool:
    """Say whether a test has asked for its folder."""
    # for each test, and a Path is dear
    return os.path.isdir(f"{base}/{item}") or os.path.exists(f"{base}/{item}.sent")  # noqa: PTH110, PTH112


def collect(base: str, item: int, limit: int) -> Iterator[events.Event]:
    """Yield the files that a test left, in pieces, smallest first.

    What was sent while it ran, and is as it was then, is not sent again.

    :param limit: bytes that they may have together; a note names each that is left out.
    """
    if not asked(base, item):
        return
    top = folder(base, item)
    sent = Sent(base, item).read()
    room, there, due = limit, set(), []
    for size, path in sorted((about.st_size, path) for path, about in look(top)):
        name = path.relative_to(top).as_posix()
        if size > room:
            text = (
                f"artifact {name!r} of {size} bytes is left out: "
                f"remotegpu_max_artifact is {limit} bytes a test"
            )
            yield events.Note(to_text(text))
            continue
        room -= size
        if sent.has(name, size, path):
            there.add(name)
        else:
            due.append((name, path, size))
    yield from (events.Dropped(item, to_text(name)) for name in sent.known if name not in there)
    yield from _all_pieces(item, due)


class Sends(Protocol):
    """Who hands on events."""

    def put(self, event: events.Event) -> None:
        """Keep one for the next flush."""

    def flush(self, *, waits: bool = False) -> None:
        """Hand on what is kept; where that is said, what comes next waits until it is shown."""


def send(base: str, item: int, limit: int, sender: Sends, shown: Callable[[], None]) -> None:
    """Hand on what a test has left.

    :param limit: as :func:`collect` has it. :param shown: waits until what was flushed is shown.
    """
    if not asked(base, item):
        return
    sender.flush(waits=True)  # from now on the supervisor sends none of them by itself
    shown()
    for event in collect(base, item, limit):
        sender.put(event)
        if isinstance(event, events.Artifact) and len(event.data) > 2**16:
            sender.flush()


def _all_pieces(item: int, due: list[tuple[str, Path, int]]) -> Iterator[events.Event]:
    left = sum(size for _, _, size in due)
    for name, path, size in due:
        left -= size
        try:
            with path.open("rb") as file:
                yield from pieces(item, name, file, size, left)
        except OSError as error:
            yield events.Note(to_text(f"artifact {name!r} can't be read: {error}"))


def look(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Find the files, not links; a process that goes on may take some away meanwhile."""
    for parent, _folders, names in os.walk(top):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(OSError):
                about = path.lstat()
                if stat.S_ISREG(about.st_mode):
                    yield path, about


def pieces(
    item: int, name: str, file: BinaryIO, size: int, others: int = 0, digest: Any = None
) -> Iterator[events.Artifact]:
    """Cut a file into events; one that grows meanwhile is cut at ``size``.

    :param others: bytes of the files that come after it. :param digest: is fed all of it.
    """
    left, first = size, True
    while first or left > 0:
        data = file.read(min(PIECE, left))
        left = left - len(data) if data else 0
        if digest is not None:
            digest.update(data)
        last = left <= 0
        yield events.Artifact(item, to_text(name), data, last, first, left + others)
        first = False
