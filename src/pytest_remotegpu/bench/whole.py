"""Files that are put in their places in one step: whoever reads finds the old one or the new one.

Knows files; nothing of what is in them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["put"]


def put(path: Path, data: bytes) -> None:
    """Put a file in its place, whole; it has the mode of the one that was there, else a new file's.

    :raises OSError: where that can't be done; then the old one is still there, and nothing else is.
        So it is where something is there that is no file: a device would be one afterwards.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "it is there and is no file", str(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, name)
        else:
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
