"""One process of this user at a time: a lock in a folder that nobody else can reach.

Knows what is locked by its name only.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from pytest_remotegpu.errors import UsageError

if sys.platform != "win32":
    import fcntl

__all__ = ["alone"]

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@contextlib.contextmanager
def alone(name: str, environ: Mapping[str, str], waits: Callable[[], None]) -> Iterator[None]:
    """Have other processes wait meanwhile that come here with the same name.

    The kernel lets the lock go where a process is killed. Its file is taken away at the end.

    :param environ: names the folder for caches. :param waits: is called before a wait.
    :raises UsageError: where something strange is in the lock's place.
    """
    if sys.platform == "win32":
        yield
        return
    path = _folder(environ) / name
    lock = _taken(path, waits)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # while it is ours, so that nobody's is taken away
        os.close(lock)


if sys.platform != "win32":

    def _taken(path: Path, waits: Callable[[], None]) -> int:
        """Open and lock a file, which may be taken away by its last owner meanwhile."""
        while True:
            lock = _opened(path)
            try:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    waits()
                    fcntl.flock(lock, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(lock), path.lstat()):
                        return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _opened(path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe is not waited for
        try:
            lock = os.open(path, flags, 0o600)
        except OSError as error:
            raise _strange(path, error.strerror or str(error)) from None
        if stat.S_ISREG(os.fstat(lock).st_mode):
            return lock
        os.close(lock)
        raise _strange(path, "it is no file")

    def _folder(environ: Mapping[str, str]) -> Path:
        """Give a folder of this user's alone: in that for caches, else in that for other files."""
        reasons = []
        for place in (_cache, _temporary):
            try:
                return _private(place(environ))
            except (OSError, RuntimeError) as error:  # the latter where there is no home
                reasons.append(str(error))
        raise UsageError(
            f"there is no folder for a lock that keeps two sessions apart: {'; '.join(reasons)}",
            fix="name one of your own in XDG_CACHE_HOME or in TMPDIR",
        )

    def _cache(environ: Mapping[str, str]) -> Path:
        base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base, "pytest-remotegpu", "deploying")

    def _temporary(_environ: Mapping[str, str]) -> Path:
        return Path(tempfile.gettempdir(), f"pytest-remotegpu-deploying-{os.getuid()}")

    def _private(folder: Path) -> Path:
        """Make a folder that only this user can reach.

        :raises OSError: where there is something else, or somebody else's.
        """
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise OSError(f"{str(folder)!r} is no folder")
        if found.st_uid != os.getuid():
            raise OSError(f"{str(folder)!r} is somebody else's")
        if found.st_mode & OTHERS:
            folder.chmod(0o700)
        return folder


def _strange(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{str(path)!r}, which keeps two sessions apart, can't be opened ({what})",
        fix="remove it, or name another folder in XDG_CACHE_HOME",
    )
