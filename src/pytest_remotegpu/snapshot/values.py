"""What goes into a snapshot and what comes out: plain frozen values that can read their files.

They know nothing of how a snapshot is taken, nor of where it goes.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from pytest_remotegpu import guards
from pytest_remotegpu.errors import RemoteGpuError
from pytest_remotegpu.manifest import Manifest
from pytest_remotegpu.snapshot import git, globs

__all__ = ["Entry", "Rules", "Snapshot", "SnapshotError", "printable"]


class SnapshotError(RemoteGpuError):
    """Raised when content is asked for that the snapshot lacks, or that has changed on disk."""


class Rules(Struct, frozen=True):
    """What the user wants sent beside, or instead of, what git lists.

    ``include`` and ``exclude`` are globs as the package describes them; ``max_bytes`` bounds the
    sum of the files' sizes. ``written`` are globs of what the session itself writes.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    max_bytes: int
    written: tuple[str, ...] = ()

    @property
    def barred(self) -> tuple[str, ...]:
        """All globs of what does not travel."""
        return (*self.exclude, *self.written)


class Entry(Struct, frozen=True):
    """One file or symbolic link of a snapshot.

    ``path`` is relative to the root, with forward slashes. ``digest`` is the SHA-256 of the content
    in hex and ``size`` its length in bytes; a link has ``""`` and 0. ``mode`` is 0o755 or 0o644.
    ``link`` is the link's text, relative and never above the root, and None for a file.
    """

    path: str
    digest: str
    size: int
    mode: int
    link: str | None


def _forget() -> None:
    pass


class Snapshot(Struct, frozen=True, dict=True):
    """The files of one root as they were when they were read.

    ``root`` is absolute, links resolved. ``manifest`` lists the files; ``entries`` are its lines.
    ``left_out`` pairs a path, or the folder above many, with the reason; what git ignores is not in
    it. ``lfs_pointers`` are the files sent whose content was never fetched from Git LFS. ``notes``
    are sentences for the user to see. ``base`` is the list of the snapshot that was remembered
    last; ``remember`` writes down what makes the next one quick, and may be left out.
    """

    root: Path
    manifest: Manifest
    left_out: tuple[tuple[str, str], ...]
    lfs_pointers: tuple[str, ...]
    notes: tuple[str, ...] = ()
    base: Manifest | None = None
    remember: Callable[[], None] = _forget

    @property
    def size(self) -> int:
        """The sum of all files' sizes in bytes; equal contents count each time."""
        return self.manifest.size

    @functools.cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The files and links, sorted by path."""
        return tuple(Entry(*line) for line in self.manifest)

    def has(self, digest: str) -> bool:
        """Whether it is the digest of one of the files, or of the manifest."""
        return digest == self.manifest.digest or self.manifest.find(digest) is not None

    @functools.cached_property
    def _present(self) -> frozenset[str]:
        """Every entry's path, and every folder above one."""
        paths = map(Path, self.manifest.paths)
        return frozenset(here.as_posix() for path in paths for here in (path, *path.parents))

    def read(self, digest: str) -> bytes:
        """Return the content with this digest, read anew and checked.

        :raises SnapshotError: no entry has this digest, or its file no longer has this content
        """
        if digest == self.manifest.digest:
            return self.manifest.encoded
        place = self.manifest.find(digest)
        if place is None:
            raise SnapshotError(f"the snapshot of {str(self.root)!r} has no content {digest!r}")
        return self.read_at(place, digest)

    def read_at(self, place: int, digest: str) -> bytes:
        """Return the content of the manifest's line at this place; its digest is checked.

        :raises SnapshotError: its file no longer has this content
        """
        path = self.manifest.paths[place]
        try:
            # a log that grows meanwhile still begins with what it was
            content = _beginning_of(f"{self.root}{os.sep}{path}", self.manifest.sizes[place])
        except OSError as error:
            raise SnapshotError(
                f"{path!r} can't be read any more ({error.strerror}); run again"
            ) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise SnapshotError(f"{path!r} changed after the snapshot was taken; run again")
        return content

    def blobs(self, digests: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield each digest with its content, one file in memory at a time.

        :raises SnapshotError: as `read` does
        """
        return ((digest, self.read(digest)) for digest in digests)

    def why_left_out(self, path: str) -> str | None:
        """Say why a path that exists here was not sent, and which glob sends it.

        ``path`` is absolute or relative to the root. The answer is None where the path was sent
        (a folder: in part), or does not exist here.
        """
        here = Path(os.path.normpath(self.root / path))
        if not os.path.lexists(here):
            return None
        name = self._name(here)
        if name in self._present:
            return None
        real = Path(os.path.realpath(here.parent), here.name)
        reason = self._noted(name) or self._reason(self._name(real), real)
        return f"{printable(path)!r} was not sent: {reason}" if reason else None

    def _name(self, here: Path) -> str | None:
        inside = here.is_relative_to(self.root)
        return printable(here.relative_to(self.root).as_posix()) if inside else None

    def _noted(self, name: str | None) -> str | None:
        for path, reason in self.left_out:
            if name is not None and f"{name}/".startswith(f"{path}/"):
                return f"{path!r} {reason}{_way_out(name) if reason in guards.SPELT_OUT else ''}"
        return None

    def _reason(self, name: str | None, here: Path) -> str | None:
        if name is None:
            return f"{printable(str(here))!r} is outside the project root {str(self.root)!r}"
        if name in self._present:
            return None
        for path, reason in self.left_out:
            if path.startswith(f"{name}/"):
                return f"{path!r} {reason}, and nothing else in it travels"
        if git.ignores(here):
            return f"git ignores it{_way_out(name)}{_like_it(name, here)}"
        if here.is_dir():
            return f"it is empty, or git ignores what it holds{_way_out(name)}"
        return "it is newer than the snapshot; run again"


def _beginning_of(path: str, size: int) -> bytes:
    """Read so many bytes, unless the file ends before."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        content = os.read(descriptor, size)
        while len(content) < size and (more := os.read(descriptor, size - len(content))):
            content += more
        return content
    finally:
        os.close(descriptor)


def _like_it(name: str, here: Path) -> str:
    """Give the glob of all files like this one, where there are any."""
    try:
        others = any(other != here for other in here.parent.glob(f"*{glob.escape(here.suffix)}"))
    except (OSError, ValueError):
        return ""
    if not here.suffix or not others or here.is_dir():
        return ""
    folder, _, _ = name.rpartition("/")
    pattern = f"*{globs.escaped(here.suffix)}"
    return f", or {f'{globs.escaped(folder)}/{pattern}' if folder else pattern!r} for all like it"


def _way_out(name: str) -> str:
    return f"; to send it, add {globs.escaped(name)!r} to remotegpu_include"


def printable(path: str) -> str:
    r"""Return the path itself where it is UTF-8, else with the odd bytes spelt as ``\xNN``."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
