"""Takes a snapshot: has the candidates judged, reads and hashes what is left.

Knows no glob and no name of a secret; those are the sieve's business.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.snapshot import guards
from pytest_remotegpu.snapshot.globs import Parts
from pytest_remotegpu.snapshot.listing import candidates, unreadable
from pytest_remotegpu.snapshot.sieve import NOT_UTF8, Sieve
from pytest_remotegpu.snapshot.values import Entry, Rules, Snapshot, printable

__all__ = ["take"]

_LEAVES: Final = "is a symbolic link that leaves the project root"
_SPECIAL: Final = "is a pipe, a socket or a device, no file"
_UNSTEADY: Final = "kept changing while it was read"
_VANISHED: Final = "vanished while the snapshot was taken"
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_POINTER_BELOW: Final = 1024  # bytes, by the specification

_CHUNK: Final = 1 << 20
_ATTEMPTS: Final = 3
_LARGEST_SHOWN: Final = 10
_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a named pipe put in the file's place must not hang us
)

_Found = tuple[Parts, os.stat_result]


class _Content(NamedTuple):
    """What reading a file to its end gives: digest, first bytes, and the status afterwards."""

    digest: str
    head: bytes
    status: os.stat_result


def take(root: Path, rules: Rules) -> Snapshot:
    """List, judge and hash what travels from a folder, which may be in a git checkout or not.

    :raises UsageError: the root is no folder, a glob reaches outside it, git finds its repository
        broken, or the files exceed ``rules.max_bytes``
    """
    if not root.is_dir():
        raise UsageError(f"the project root {str(root)!r} is not a folder")
    sieve = Sieve(root.resolve(), rules)
    found = list(_existing(sieve, sorted(candidates(sieve))))
    _check_size([(status.st_size, "/".join(path)) for path, status in found], rules.max_bytes)
    pointers: list[str] = []
    entries = tuple(_entries(sieve, found, pointers))
    _check_size([(entry.size, entry.path) for entry in entries], rules.max_bytes)
    return Snapshot(
        root=sieve.root,
        entries=tuple(sorted(entries, key=lambda entry: entry.path)),
        left_out=tuple(sorted(sieve.left_out.items())),
        lfs_pointers=tuple(pointers),
        notes=(*sieve.notes, *_lfs_note(pointers)),
    )


def _existing(sieve: Sieve, paths: Iterable[Parts]) -> Iterator[_Found]:
    """Yield the files and links that may travel, with their status."""
    for path in paths:
        try:
            status = sieve.root.joinpath(*path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # tracked, and deleted here
        except OSError as error:
            sieve.leave("/".join(path), unreadable(error))
            continue
        if stat.S_ISDIR(status.st_mode) or not sieve.admits(path):
            continue
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield path, status
        else:
            sieve.leave("/".join(path), _SPECIAL)


def _entries(sieve: Sieve, found: Iterable[_Found], pointers: list[str]) -> Iterator[Entry]:
    for path, status in found:
        if stat.S_ISLNK(status.st_mode):
            made = _link(sieve.root, path)
        else:
            made = _file(sieve, path, pointers)
        if isinstance(made, Entry):
            yield made
        else:
            sieve.leave("/".join(path), made)


def _link(root: Path, path: Parts) -> Entry | str:
    """Return the link's entry, or why it has none."""
    here = root.joinpath(*path)
    try:
        text = os.readlink(here).replace(os.sep, "/")  # noqa: PTH115 -- Path alters the text
    except OSError as error:
        return unreadable(error)
    target = Path(os.path.realpath(here))
    if not target.is_relative_to(root):
        return _LEAVES
    if not _stays(text, len(path) - 1):
        text = Path(os.path.relpath(target, here.parent)).as_posix()
    return Entry("/".join(path), "", 0, 0o644, text) if printable(text) == text else NOT_UTF8


def _stays(text: str, depth: int) -> bool:
    """Whether a link so many folders deep is relative, goes up at its start only, and not too far.

    What goes down through another link and then up may end anywhere; this form can't.
    """
    parts = [part for part in text.split("/") if part not in {"", "."}]
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return not Path(text).is_absolute() and ups <= depth and ".." not in parts[ups:]


def _file(sieve: Sieve, path: Parts, pointers: list[str]) -> Entry | str:
    """Return the file's entry, or why it has none."""
    content = _read(sieve.root.joinpath(*path))
    if isinstance(content, str):
        return content
    reason = guards.of_content(content.head)
    if reason is not None and not sieve.spells_out(path, (len(path) - 1,)):
        return reason
    size = content.status.st_size
    if size < _LFS_POINTER_BELOW and content.head.startswith(_LFS_POINTER):
        pointers.append("/".join(path))
    return Entry("/".join(path), content.digest, size, _mode(content.status), None)


def _read(path: Path) -> _Content | str:
    """Return a file's content as it was at one moment, or why there is none."""
    try:
        for _ in range(_ATTEMPTS):
            before = path.lstat()
            content = _read_once(path)
            if not stat.S_ISREG(content.status.st_mode):
                return _SPECIAL
            if _stamp(before) == _stamp(content.status):
                return content
    except (FileNotFoundError, NotADirectoryError):
        return _VANISHED
    except OSError as error:
        return unreadable(error)
    return _UNSTEADY


def _read_once(path: Path) -> _Content:
    digest = hashlib.sha256()
    with open(os.open(path, _FLAGS), "rb", buffering=0) as file:  # noqa: PTH123 -- a descriptor
        chunk = head = file.read(_CHUNK)
        while chunk:
            digest.update(chunk)
            chunk = file.read(_CHUNK)
        return _Content(digest.hexdigest(), head, os.fstat(file.fileno()))


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _mode(status: os.stat_result) -> int:
    return 0o755 if status.st_mode & stat.S_IXUSR else 0o644


def _lfs_note(pointers: list[str]) -> Iterator[str]:
    if pointers:
        yield (
            f"{len(pointers)} of the files sent are Git LFS pointers without their content,"
            f" for instance {pointers[0]!r}; run git lfs pull"
        )


def _check_size(sizes: list[tuple[int, str]], limit: int) -> None:
    total = sum(size for size, _ in sizes)
    if total <= limit:
        return
    largest = sorted(sizes, key=lambda pair: (-pair[0], pair[1]))[:_LARGEST_SHOWN]
    lines = "\n".join(f"  {_amount(size):>10}  {printable(path)!r}" for size, path in largest)
    raise UsageError(
        f"the {len(sizes)} files to send come to {_amount(total)} ({total} bytes), over the limit"
        f" of {_amount(limit)} ({limit} bytes); the largest are\n{lines}\n"
        "leave files out with remotegpu_exclude, or raise remotegpu_max_upload"
    )


def _amount(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:  # noqa: PLR2004 -- the binary step
            return f"{value:.1f} {unit}" if unit != "B" else f"{size} B"
        value /= 1024
    return f"{value:.1f} GiB"
