"""Files that plugins have written on the far side, for the folders that the user has named here.

Trusts no name and no size from there; nothing leaves those folders.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.outputs import made_below, safe_parts
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text

__all__ = ["Written"]

SLACK: Final = 128
"""Bytes that each piece counts for beside its own."""
MANY: Final = 100
"""A session may bring so many times what one test may leave as artifacts."""


class Written:
    """Puts files into folders as their pieces come.

    :param folders: by the name of the option; asked for when something comes.
    :param limit: bytes that one test may leave as artifacts.
    :ivar troubles: why files are missing, each reason once.
    """

    def __init__(self, folders: Callable[[], Mapping[str, Path]], limit: int) -> None:
        self._folders = folders
        self._room = MANY * limit
        self._open: dict[tuple[str, str, str], Path] = {}
        self.troubles: list[str] = []

    def take(self, worker: str, event: events.Written) -> None:
        """Take in a piece.

        :param worker: the one that sends it.
        :raises ProtocolError: for a folder that nobody has asked for, an unsafe name, or too much.
        """
        option, name = from_text(event.option), from_text(event.name)
        folder = self._folders().get(option)
        if folder is None:
            raise ProtocolError(f"a file of {option!r} came, and nobody has asked for it")
        parts = safe_parts(name)
        self._room -= len(event.data) + SLACK
        if self._room < 0:
            raise ProtocolError(f"the files of {option!r} are too large")
        key = worker, option, name
        try:
            if event.first:
                self._drop(key)
                folder.mkdir(parents=True, exist_ok=True)
                self._open[key] = made_below(folder, folder.joinpath(*parts))
            self._put(key, event, folder.joinpath(*parts))
        except OSError as error:
            self._trouble(f"files of {option} are missing: {error}")
            self._drop(key)

    def _put(self, key: tuple[str, str, str], event: events.Written, target: Path) -> None:
        path = self._open.get(key)
        if path is None:
            return
        with path.open("ab") as file:
            file.write(event.data)
        if event.last:
            del self._open[key]
            path.replace(target)

    def _drop(self, key: tuple[str, str, str]) -> None:
        """Give up what has come of a file."""
        path = self._open.pop(key, None)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()

    def _trouble(self, text: str) -> None:
        if text not in self.troubles:
            self.troubles.append(text)

    def close(self) -> list[str]:
        """Leave nothing behind that is not whole.

        :return: what there is to say.
        """
        for key in list(self._open):
            self._trouble(f"{key[2]!r} of {key[1]} is missing: not all of it came")
            self._drop(key)
        return self.troubles
