"""Which Python files of the project have been read so far: imported, or opened as any file is.

Knows what Python tells of a process that it runs; what somebody does with the names, it does not.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pytest_remotegpu.protocol.plain import to_text

__all__ = ["Reads"]


class Reads:
    """Listens from its making on.

    :param root: the folder of the project.
    """

    def __init__(self, root: str) -> None:
        self._roots = tuple(dict.fromkeys(f"{each}/" for each in (root, os.path.realpath(root))))
        self._opened: dict[str, None] = {}
        self._told: set[str] = set()
        self._listens = True
        sys.addaudithook(self._hear)  # for as long as the process lives

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self._listens and event == "open" and args[0].__class__ is str:
            path: str = args[0]
            if path.endswith(".py"):
                self._opened[path] = None

    def news(self) -> list[bytes]:
        """Give those that have been read since the last call, seen from the project's folder."""
        imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        found = {path for path in imported if isinstance(path, str) and path.endswith(".py")}
        found.update(str(Path.cwd() / path) for path in list(self._opened))
        self._opened.clear()
        new = sorted({name for path in found if (name := self._inside(path))} - self._told)
        self._told.update(new)
        return [to_text(name) for name in new]

    def _inside(self, path: str) -> str:
        for root in self._roots:
            if path.startswith(root):
                return os.path.normpath(path[len(root) :])
        return ""

    def close(self) -> None:
        """Listen no longer."""
        self._listens = False
        self._opened.clear()
