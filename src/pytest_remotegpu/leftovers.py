"""Folders for temporary files of workers: how they are called, and which of them nobody uses.

Knows a worker by the process id in its folder's name; must not know what lies in there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["PREFIX", "abandoned", "exists", "sweep"]

PREFIX: Final = "remotegpu-"
"""Of a worker's folder for temporary files; its process id follows."""


def exists(pid: int) -> bool:
    """Say whether there is a process of this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def abandoned() -> Iterator[Path]:
    """Find what workers of this user left that were killed before they could take it away."""
    if sys.platform == "win32":  # where no worker runs, and no process can be asked for this way
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}[0-9]*-*"):
        owner = re.fullmatch(rf"{PREFIX}([0-9]{{1,9}})-.*", folder.name, re.ASCII)
        with contextlib.suppress(OSError):
            mine = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
            if owner and mine and not exists(int(owner[1])):
                yield folder


def sweep() -> list[Path]:
    """Take that away; give what is gone."""
    found = list(abandoned())
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder for folder in found if not folder.exists()]
