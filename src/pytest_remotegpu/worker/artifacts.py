"""What a test leaves in its ``artifacts_dir``, made into events; knows nothing of pytest."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text

__all__ = ["collect", "folder"]

PIECE: Final = 2**20


def folder(base: str, item: int) -> Path:
    """Name the folder of one test's artifacts; it is there only once the test asked for it."""
    return Path(base, str(item))


def collect(base: str, item: int, limit: int) -> Iterator[events.Event]:
    """Yield the files that a test left, in pieces, smallest first.

    :param limit: bytes that they may have together; a note names each that is left out.
    """
    if not os.path.isdir(f"{base}/{item}"):  # noqa: PTH112 -- asked for each test, and a Path is dear
        return
    top = folder(base, item)
    room = limit
    for size, path in sorted(_files(top)):
        name = path.relative_to(top).as_posix()
        if size > room:
            text = (
                f"artifact {name!r} of {size} bytes is left out: "
                f"remotegpu_max_artifact is {limit} bytes a test"
            )
            yield events.Note(to_text(text))
            continue
        room -= size
        yield from _pieces(item, name, path, size)


def _files(top: Path) -> Iterator[tuple[int, Path]]:
    """Find the files and their sizes; a process that goes on may take some away meanwhile."""
    for parent, _folders, names in os.walk(top):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(OSError):
                about = path.lstat()
                if stat.S_ISREG(about.st_mode):
                    yield about.st_size, path


def _pieces(item: int, name: str, path: Path, size: int) -> Iterator[events.Event]:
    """Cut a file into events.

    One that grows meanwhile is cut at ``size``; one that can't be read is named.
    """
    try:
        with path.open("rb") as file:
            left = size
            while True:
                data = file.read(min(PIECE, left))
                left -= len(data)
                last = not data or left <= 0
                yield events.Artifact(item, to_text(name), data, last)
                if last:
                    return
    except OSError as error:
        yield events.Note(to_text(f"artifact {name!r} can't be read: {error}"))
