"""Takes a snapshot: has the candidates judged, reads and hashes what has changed since the last.

Knows no glob and no name of a secret; those are the sieve's business.
"""

from __future__ import annotations

import bisect
import functools
import os
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from pytest_remotegpu import stamps
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.manifest import NO_CONTENT, Manifest
from pytest_remotegpu.snapshot import index, renewing
from pytest_remotegpu.snapshot.index import LEFT, POINTER, SECRET, Index, Rows
from pytest_remotegpu.snapshot.listing import Trace, candidates, unreadable
from pytest_remotegpu.snapshot.sieve import Sieve
from pytest_remotegpu.snapshot.values import Rules, Snapshot, printable

__all__ = ["take"]

_LARGEST_SHOWN: Final = 10

_Found = tuple[str, stamps.Stamp]


def take(root: Path, rules: Rules, memory: Path | None = None) -> Snapshot:
    """List, judge and hash what travels from a folder, which may be in a git checkout or not.

    :param memory: the file in which the last snapshot was remembered, if any: only files that
        have changed since are read. None to read every file.
    :raises UsageError: the root is no folder, a glob reaches outside it, git finds its repository
        broken, or the files exceed ``rules.max_bytes``
    """
    if not root.is_dir():
        raise UsageError(f"the project root {str(root)!r} is not a folder")
    sieve = Sieve(root.resolve(), rules)
    blank = Index.blank(_package(), sieve.root, rules.include, rules.barred)
    known = index.load(memory, blank)
    at = stamps.now(str(memory.parent if memory is not None else sieve.root))
    renewed = renewing.renew(sieve, known, at) if known.steady else None
    now = renewed if renewed is not None else _judge_all(sieve, rules, known, at)
    remember = functools.partial(index.save, memory, now) if now is not known else _nothing
    base = _manifest(known.rows) if known.rows.paths else None
    return _snapshot(sieve.root, now, rules, base, remember)


def _nothing() -> None:
    """Remember nothing: it is known already."""


@functools.cache
def _package() -> str:
    try:
        return version("pytest-remotegpu")
    except PackageNotFoundError:
        return ""


def _judge_all(sieve: Sieve, rules: Rules, known: Index, at: int) -> Index:
    """Judge every candidate anew; files that are remembered are not read again."""
    trace = Trace()
    found = sorted(_existing(sieve, trace, sorted(candidates(sieve, trace))))
    sizes = [(stamp[stamps.SIZE], path) for path, stamp in found]
    _check_size(sizes, rules.max_bytes)  # before any is read
    rows = _rows(sieve, found, _Known(known))
    folders = sieve.folders()
    names = sorted({*folders, *trace.walked})
    root = str(sieve.root)
    blank = Index.blank(_package(), sieve.root, rules.include, rules.barred)
    blank.at, blank.steady, blank.listings = at, trace.steady, trace.listings
    blank.folders, blank.folder_stamps = names, stamps.survey(root, names).tobytes()
    blank.environments = sorted(name for name, is_one in folders.items() if is_one)
    blank.walked, blank.absent = sorted(trace.walked), sorted(trace.absent)
    blank.left_out, blank.notes, blank.rows = dict(sieve.left_out), list(sieve.notes), rows
    return blank


class _Known:
    """The contents that are remembered, by path and stamp."""

    def __init__(self, known: Index) -> None:
        self._rows = known.rows
        self._at = known.at
        self._places = {path: place for place, path in enumerate(known.rows.paths)}
        self._stamps = index.unpacked(known.rows.stamps)

    def content(self, path: str, stamp: stamps.Stamp) -> tuple[bytes, int] | None:
        """Give digest and flags of a file that has not changed since."""
        place = self._places.get(path)
        if place is None or stamps.is_fresh(stamp[stamps.CTIME], self._at):
            return None
        digest = self._rows.digest(place)
        if digest == NO_CONTENT or stamps.pick(self._stamps, place) != stamp:
            return None
        return digest, self._rows.flags[place] & (SECRET | POINTER)


def _existing(sieve: Sieve, trace: Trace, paths: Iterable[tuple[str, ...]]) -> Iterator[_Found]:
    """Yield the files and links that may travel, with their stamps."""
    for parts in paths:
        path = "/".join(parts)
        try:
            status = os.lstat(sieve.prefix + path)
        except (FileNotFoundError, NotADirectoryError):
            trace.absent.add(path)  # tracked, and deleted here
            continue
        except OSError as error:
            trace.steady = False
            sieve.leave(path, unreadable(error))
            continue
        if stat.S_ISDIR(status.st_mode):
            trace.steady = False
        elif sieve.admits(parts):
            yield path, stamps.of(status)


def _rows(sieve: Sieve, found: list[_Found], known: _Known) -> Rows:
    rows = Rows([path for path, _ in found], b"", b"", b"", {}, {})
    kept: array[int] = array("q")
    digests, flags = bytearray(), bytearray()
    for path, stamp in found:
        remembered = known.content(path, stamp) if stat.S_ISREG(stamp[stamps.MODE]) else None
        if remembered is None:
            stamp, digest, flag = renewing.look(sieve, path, stamp, rows)  # noqa: PLW2901
        else:
            digest, flag = remembered
        kept.extend(stamp)
        digests += digest
        flags.append(renewing.judged(sieve, path, flag, rows))
    rows.stamps, rows.digests, rows.flags = kept.tobytes(), bytes(digests), bytes(flags)
    return rows


def _snapshot(
    root: Path, now: Index, rules: Rules, base: Manifest | None, remember: Callable[[], None]
) -> Snapshot:
    manifest = _manifest(now.rows)
    if sum(manifest.sizes) > rules.max_bytes:
        _check_size(list(zip(manifest.sizes, manifest.paths, strict=True)), rules.max_bytes)
    pointers = _pointers(now.rows)
    left_out = {**now.left_out, **{printable(p): why for p, why in now.rows.reasons.items()}}
    return Snapshot(
        root=root,
        manifest=manifest,
        left_out=tuple(sorted(left_out.items())),
        lfs_pointers=tuple(pointers),
        notes=(*now.notes, *_lfs_note(pointers)),
        base=base,
        remember=remember,
    )


def _manifest(rows: Rows) -> Manifest:
    numbers = index.unpacked(rows.stamps)
    paths, digests = rows.paths, rows.digests
    sizes = numbers[stamps.SIZE :: stamps.WIDTH].tolist()
    executable = bytearray([mode >> 6 & 1 for mode in numbers[stamps.MODE :: stamps.WIDTH]])
    for path in rows.links:
        place = bisect.bisect_left(paths, path)
        sizes[place] = executable[place] = 0
    if any(kind & LEFT for kind in set(rows.flags)):
        kept = [place for place, flag in enumerate(rows.flags) if not flag & LEFT]
        paths = [paths[place] for place in kept]
        sizes = [sizes[place] for place in kept]
        executable = bytearray(executable[place] for place in kept)
        digests = b"".join(map(rows.digest, kept))
    links = dict(sorted(rows.links.items()))
    return Manifest.of_columns(paths, digests, sizes, bytes(executable), links)


def _pointers(rows: Rows) -> list[str]:
    if not any(kind & POINTER for kind in set(rows.flags)):
        return []
    pairs = zip(rows.paths, rows.flags, strict=True)
    return [path for path, flag in pairs if flag & POINTER and not flag & LEFT]


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
