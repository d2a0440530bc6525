"""The list of a tree's files as one value: canonical bytes, their digest, and differences.

Both sides of the wire speak of a tree by the digest of its manifest, and send what differs from one
that the other has already. Knows no file system; whether a tree can be made of the paths is for
whoever makes it.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from pytest_remotegpu.errors import ProtocolError

__all__ = ["DIGEST", "NO_CONTENT", "Delta", "Line", "Manifest"]

DIGEST: Final = 32
"""Bytes of a digest."""
NO_CONTENT: Final = bytes(DIGEST)
"""The digest of a link."""
_EXECUTABLE: Final = 0o100
MOST_LINES: Final = 5_000_000
_HEX: Final = re.compile("[0-9a-f]{64}")
_NO_HEX: Final = NO_CONTENT.hex()
_FEW: Final = 32
"""Searches that are made one by one; for more a table pays."""


class Line(NamedTuple):
    """One file or symbolic link.

    :ivar path: relative, with forward slashes. :ivar digest: the SHA-256 of a file's content in
        hex; empty for a link. :ivar size: in bytes. :ivar mode: 0o755 or 0o644.
    :ivar link: a link's text; ``None`` for a file.
    """

    path: str
    digest: str
    size: int
    mode: int
    link: str | None


class _Columns(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The columns of a manifest, in the order of the paths."""

    paths: list[str]
    digests: bytes
    sizes: list[int]
    executable: bytes
    links: dict[str, str]


class Delta(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What makes one manifest of another: lines to put in, and paths to take away."""

    changed: _Columns
    removed: list[str]

    def lines(self) -> Iterator[Line]:
        """Give the lines to put in."""
        return iter(Manifest(self.changed))

    def encode(self) -> bytes:
        """Give it as bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Delta:
        """Undo :meth:`encode`.

        :raises ProtocolError: where it is none.
        """
        try:
            return _DELTA.decode(data)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise ProtocolError(f"no difference of manifests: {error}") from None


_COLUMNS: Final = msgspec.msgpack.Decoder(_Columns)
_DELTA: Final = msgspec.msgpack.Decoder(Delta)


class Manifest:
    """The files of one tree, sorted by path; equal ones have equal bytes."""

    def __init__(self, columns: _Columns) -> None:
        count = len(columns.paths)
        lengths = (len(columns.digests), len(columns.sizes), len(columns.executable))
        if lengths != (count * DIGEST, count, count) or count > MOST_LINES:
            raise ProtocolError(f"a manifest of {count} files has columns of other lengths")
        self._columns = columns
        self._searches = 0

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Manifest:
        """Make one of its lines."""
        return cls(_columns(sorted(lines)))

    @classmethod
    def of_columns(
        cls,
        paths: list[str],
        digests: bytes,
        sizes: list[int],
        executable: bytes,
        links: dict[str, str],
    ) -> Manifest:
        """Make one of columns, of which the paths are sorted; a link's digest is all zeros."""
        return cls(_Columns(paths, digests, sizes, executable, links))

    @classmethod
    def decode(cls, data: bytes, *, known: bool = False) -> Manifest:
        """Undo :attr:`encoded`.

        :param known: whether these very bytes were decoded before.
        :raises ProtocolError: where it is none, or not in the one form that it may have.
        """
        try:
            made = cls(_COLUMNS.decode(data))
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise ProtocolError(f"no manifest: {error}") from None
        if not known:
            made.check_order()
        return made

    def check_order(self) -> None:
        """Refuse paths that are not sorted, or come twice.

        :raises ProtocolError: where that is so.
        """
        paths = self._columns.paths
        for before, after in itertools.pairwise(paths):
            if before >= after:
                raise ProtocolError(f"{after!r} comes twice, or out of order, in a manifest")

    @functools.cached_property
    def encoded(self) -> bytes:
        """The canonical bytes."""
        return msgspec.msgpack.encode(self._columns)

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical bytes, in hex."""
        return hashlib.sha256(self.encoded).hexdigest()

    def __len__(self) -> int:
        """Count the lines."""
        return len(self._columns.paths)

    def __iter__(self) -> Iterator[Line]:
        """Give every line."""
        return map(self.line, range(len(self)))

    @property
    def paths(self) -> list[str]:
        """All paths, sorted."""
        return self._columns.paths

    @property
    def sizes(self) -> list[int]:
        """The sizes, in the order of the paths."""
        return self._columns.sizes

    @property
    def size(self) -> int:
        """The bytes of all files; equal contents count each time."""
        return sum(self._columns.sizes)

    def line(self, index: int) -> Line:
        """Give one line by its place."""
        columns = self._columns
        path = columns.paths[index]
        mode = 0o755 if columns.executable[index] else 0o644
        link = columns.links.get(path)
        digest = "" if link is not None else self.raw_digest(index).hex()
        return Line(path, digest, columns.sizes[index], mode, link)

    def raw_digest(self, index: int) -> bytes:
        """Give the digest of one line, all zeros for a link."""
        return self._columns.digests[index * DIGEST : (index + 1) * DIGEST]

    def place(self, path: str) -> int | None:
        """Find a path's place."""
        index = bisect.bisect_left(self._columns.paths, path)
        return index if self._columns.paths[index : index + 1] == [path] else None

    def find(self, digest: str) -> int | None:
        """Find a file by the digest of its content; any of several."""
        if not _HEX.fullmatch(digest) or digest == _NO_HEX:
            return None
        raw = bytes.fromhex(digest)
        self._searches += 1
        if self._searches > _FEW:
            return self._by_digest.get(raw)
        at = self._columns.digests.find(raw)
        while at % DIGEST and at >= 0:
            at = self._columns.digests.find(raw, at + 1)
        return None if at < 0 else at // DIGEST

    @functools.cached_property
    def _by_digest(self) -> dict[bytes, int]:
        return {self.raw_digest(place): place for place in range(len(self))}

    # differences

    def since(self, base: Manifest) -> Delta:
        """Say what makes this manifest of another one."""
        if self.paths == base.paths:
            return Delta(_columns(map(self.line, self._differing(base))), [])
        there = {path: index for index, path in enumerate(base.paths)}
        mine = set(self.paths)
        places = [
            index
            for index, path in enumerate(self.paths)
            if path not in there or self._differs(base, index, there[path])
        ]
        removed = [path for path in base.paths if path not in mine]
        return Delta(_columns(map(self.line, places)), removed)

    def _differing(self, base: Manifest) -> list[int]:
        """Give the places at which two manifests of the same paths differ."""
        if self._columns.links != base._columns.links:
            return [place for place in range(len(self)) if self._differs(base, place, place)]
        pending = [(0, len(self))]
        found: list[int] = []
        while pending:  # halves that are equal are equal as a whole, and mostly all but one are
            first, last = pending.pop()
            if self._part(first, last) == base._part(first, last):
                continue
            if last - first == 1:
                found.append(first)
            else:
                middle = (first + last) // 2
                pending += [(first, middle), (middle, last)]
        return sorted(found)

    def _part(self, first: int, last: int) -> tuple[bytes, bytes, list[int]]:
        columns = self._columns
        digests = columns.digests[first * DIGEST : last * DIGEST]
        return digests, columns.executable[first:last], columns.sizes[first:last]

    def _differs(self, base: Manifest, here: int, there: int) -> bool:
        mine, others = self._columns, base._columns
        return (
            self.raw_digest(here) != base.raw_digest(there)
            or mine.executable[here] != others.executable[there]
            or mine.sizes[here] != others.sizes[there]
            or mine.links.get(mine.paths[here]) != others.links.get(others.paths[there])
        )

    def with_changes(self, delta: Delta) -> Manifest:
        """Undo :meth:`since`.

        :raises ProtocolError: where the difference can't be one to this manifest.
        """
        changed = Manifest(delta.changed)
        changed.check_order()
        places = [self.place(path) for path in changed.paths]
        if not delta.removed and None not in places:
            return self._spliced(changed, [place for place in places if place is not None])
        lines = {line.path: line for line in self}
        for path in delta.removed:
            if lines.pop(path, None) is None:
                raise ProtocolError(f"{path!r} is to be taken from a manifest that lacks it")
        lines.update((line.path, line) for line in changed)
        return Manifest.of(lines.values())

    def _spliced(self, changed: Manifest, places: list[int]) -> Manifest:
        columns = self._columns
        digests, executable = bytearray(columns.digests), bytearray(columns.executable)
        sizes, links = list(columns.sizes), dict(columns.links)
        for index, place in enumerate(places):
            line = changed.line(index)
            digests[place * DIGEST : (place + 1) * DIGEST] = changed.raw_digest(index)
            executable[place] = bool(line.mode & _EXECUTABLE)
            sizes[place] = line.size
            links.pop(line.path, None)
            if line.link is not None:
                links[line.path] = line.link
        links = dict(sorted(links.items()))
        return Manifest(_Columns(columns.paths, bytes(digests), sizes, bytes(executable), links))


def _columns(lines: Iterable[Line]) -> _Columns:
    paths: list[str] = []
    digests = bytearray()
    sizes: list[int] = []
    executable = bytearray()
    links: dict[str, str] = {}
    for path, digest, size, mode, link in lines:
        paths.append(path)
        digests += NO_CONTENT if link is not None else bytes.fromhex(digest)
        sizes.append(size)
        executable.append(bool(mode & _EXECUTABLE))
        if link is not None:
            links[path] = link
    return _Columns(paths, bytes(digests), sizes, bytes(executable), links)
