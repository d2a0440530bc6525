"""Folders for temporary files of workers: how they are called, and which of them nobody uses.

Knows a worker by the process id in its folder's name. Of what lies in there it knows one thing: the
notes of jobs of MPI, whose shared memory lies elsewhere, and goes with the folder.
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

__all__ = ["PREFIX", "abandoned", "exists", "free_shared", "note_shared", "remove", "sweep"]

PREFIX: Final = "remotegpu-"
"""Of a worker's folder for temporary files; its process id follows."""
NOTE: Final = "mpi-job-"
"""Of a note in such a folder; the number of the job follows, in hexadecimal digits."""
SHARED: Final = "/dev/shm"  # noqa: S108 -- where MPI puts its segments


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
        remove(folder)
    return [folder for folder in found if not folder.exists()]


def remove(folder: str | Path) -> None:
    """Take away a folder, and what its notes tell of."""
    free_shared(folder)
    shutil.rmtree(folder, ignore_errors=True)


def note_shared(folder: str | Path, job: int) -> None:
    """Note in a worker's folder that a job of MPI may leave shared memory, if it is killed."""
    with contextlib.suppress(OSError):
        Path(folder, f"{NOTE}{job:x}").touch()


def free_shared(folder: str | Path, shared: str = SHARED) -> None:
    """Remove the shared memory of the jobs that are noted in a folder, and the notes.

    :param shared: where such memory lies.
    """
    for note in Path(folder).glob(f"{NOTE}*"):
        job = note.name.removeprefix(NOTE)
        if re.fullmatch("[0-9a-f]{1,16}", job, re.ASCII):
            for segment in Path(shared).glob(f"*_segment.*.{job}.*"):
                _unlink(segment)
        _unlink(note)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
