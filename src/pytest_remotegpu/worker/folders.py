"""Folders that the user has named for what plugins write, and that lie on another machine.

What is written here goes into a folder beside, and is sent piece by piece. Knows no plugin.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker import artifacts

__all__ = ["Folders"]

PLACE: Final = "folders"
"""Beside the folders of the tests' artifacts, which have numbers for names."""


class Folders:
    """Sends what comes into them, each file once it is there after a test.

    :param names: the options that name them. :param base: where this session's folders are.
    """

    def __init__(self, names: Sequence[str], base: str) -> None:
        self._places = {name: Path(base, PLACE, name) for name in names}
        self._sent: dict[Path, tuple[int, int]] = {}

    def redirect(self, option: argparse.Namespace) -> None:
        """Let plugins write here what they would write there."""
        for name, place in self._places.items():
            value = getattr(option, name, None)
            if value is not None:
                setattr(option, name, place if isinstance(value, Path) else str(place))

    def news(self) -> Iterator[events.Event]:
        """Yield what has come since the last time."""
        for name, top in self._places.items():
            for path, about in artifacts.look(top):
                state = about.st_size, about.st_mtime_ns
                if self._sent.get(path) != state:
                    self._sent[path] = state
                    yield from _pieces(name, path.relative_to(top).as_posix(), path)


def _pieces(option: str, name: str, path: Path) -> Iterator[events.Event]:
    try:
        with path.open("rb") as file:
            for piece in artifacts.pieces(0, name, file, path.stat().st_size):
                said = to_text(option), piece.name, piece.data, piece.last, piece.first
                yield events.Written(*said)
    except OSError as error:
        yield events.Note(to_text(f"{name!r} of {option} can't be read: {error}"))
