"""One source tree of an order on its way in: what is missing, and the folder once all is there.

Knows the wire's trees and contents; who sends them, and what runs in the folder, it does not know.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pytest_remotegpu.manifest import Delta, Manifest
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.worker import ageing
from pytest_remotegpu.worker.place import Place, take_place
from pytest_remotegpu.worker.tree import Incoming, Store, TreeError

__all__ = ["Source", "locks", "of", "received"]

MOST_PACKED: Final = 64 * 2**20
"""Bytes that one message may unfold to."""
MOST_ASKED: Final = 50_000
MOST_MANIFEST: Final = 2**30
_OURS_ALONE: Final = 0o700
ATTEMPTS: Final = 3
"""How often one content may be asked for, where it does not last."""


def of(order: orders.Order | None, scratch: str) -> Source | None:
    """Begin to receive an order's files; ``None`` for an order that comes without.

    :raises TreeError: as :class:`Source` does.
    """
    if order is None or order.tree is None:
        return None
    return received(order.tree, scratch)


def received(tree: orders.Tree, scratch: str) -> Source:
    """Begin to receive one tree.

    :raises TreeError: as :class:`Source` does.
    """
    return Source(_home(os.environ), scratch, tree)


def locks(found: Source | None) -> list[int]:
    """Give the descriptors that whoever works in the folder has to hold."""
    return [] if found is None or found.lock is None else [found.lock]


def _home(environ: Mapping[str, str]) -> Path:
    """Name this user's folder for what is kept from session to session."""
    try:
        return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pytest-remotegpu")
    except RuntimeError:  # a user without a home
        return Path(os.devnull, "none")


class Source:
    """Receives the files of an order.

    :param kept: the folder for what lasts, where it can be used.
    :param scratch: the worker's own folder, which serves where the other can't be used.
    :param tree: what the order says of its files.
    :ivar root: the folder to build, once it is known.
    :ivar built: whether the folder is there.
    """

    def __init__(self, kept: Path, scratch: str, tree: orders.Tree) -> None:
        self._tree = tree
        self._scratch = Path(scratch)
        usable = _is_ours(kept / "store") and _is_ours(kept / "trees")
        self._kept = kept if usable else Path(scratch)
        self._store = Store(self._kept / "store")
        self._manifest = self._read_manifest()
        self._place: Place | None = None
        self._waiting: set[str] = set()
        self._asked: dict[str, int] = {}
        self._incoming: tuple[str, Incoming] | None = None
        self._received = 0
        self.built = False

    @property
    def root(self) -> Path:
        """The folder in which the tree is built."""
        assert self._place is not None
        return self._place.root

    @property
    def lock(self) -> int | None:
        """The descriptor that keeps the folder from being changed by others."""
        return None if self._place is None else self._place.lock

    def go_on(self, emit: Callable[[events.Event], None], *came: orders.Blob | orders.Pack) -> bool:
        """Take in contents, ask for what is lacking; say whether the tree is there just now.

        :raises TreeError: as :meth:`put` and :meth:`advance` do
        """
        if self.built:
            return False
        for message in came:
            self.put(message)
        digests = self.advance()
        for start in range(0, len(digests), MOST_ASKED):  # each fits into a frame
            emit(events.Need(digests[start : start + MOST_ASKED]))
        return self.built

    def advance(self) -> list[str]:
        """Go on as far as possible; give the digests of contents that are to be asked for now.

        :raises TreeError: where an entry is unsafe or the system refuses
        """
        if self._waiting or self.built:
            return []
        lacking = self._lacking()
        if not lacking:
            self.built = True
            return []
        for digest in lacking:
            self._asked[digest] = self._asked.get(digest, 0) + 1
            if self._asked[digest] > ATTEMPTS:
                raise TreeError(f"content {digest!r} does not last in {str(self._kept)!r}")
        self._waiting = set(lacking)
        return sorted(self._waiting)

    def _lacking(self) -> list[str]:
        if self._manifest is None:
            return [self._tree.digest]
        if self._place is None:
            self._place = self._take_place()
            if lacking := self._place.wants(self._manifest, self._store):
                return lacking  # before the tree is looked at: that can wait till they are here
        return self._place.lay_out(self._manifest, self._store)

    def _take_place(self) -> Place:
        """Take a folder that lasts; where there is none, as on a disk without locks, a new one."""
        trees = self._kept / "trees"
        try:
            place = take_place(trees, self._tree.project, self._tree.name)
        except OSError:
            return take_place(self._scratch / "trees", self._tree.project, self._tree.name)
        ageing.limit_places(trees)
        return place

    def _read_manifest(self) -> Manifest | None:
        """Find the manifest: in the order, in the store, or from one in the store."""
        tree = self._tree
        if tree.manifest:
            data = unfold(tree.manifest, tree.unfolded, MOST_MANIFEST)
            return self._checked(Manifest.decode(data))
        if (known := self._store.get(tree.digest)) is not None:
            return Manifest.decode(known, known=True)
        base = self._store.get(tree.base) if tree.base else None
        if base is None:
            return None
        made = Manifest.decode(base, known=True).with_changes(Delta.decode(tree.delta))
        return self._checked(made) if made.digest == tree.digest else None

    def _checked(self, manifest: Manifest) -> Manifest:
        """Keep a manifest for later differences.

        :raises TreeError: it is not the one that was announced
        """
        if manifest.digest != self._tree.digest:
            raise TreeError("the list of files is not what its digest says")
        with contextlib.suppress(TreeError):  # the next session sends it whole, then
            self._store.put_small(manifest.digest, manifest.encoded)
        return manifest

    # contents

    def put(self, message: orders.Blob | orders.Pack) -> None:
        """Take in contents; the pieces of one content come in a row.

        :raises TreeError: for content that is no part of the tree, or not what its digest says
        """
        if isinstance(message, orders.Pack):
            self._put_pack(message)
        elif message.gone:
            self._leave_out(message.digest)
        else:
            self._put_piece(message)

    def _put_pack(self, pack: orders.Pack) -> None:
        """Take in many small contents, whose sizes are known from the list of files."""
        if self._incoming is not None or len(pack.digests) != len(pack.sizes):
            raise TreeError("contents came within another one")
        for digest, size in zip(pack.digests, pack.sizes, strict=True):
            self._expect(digest, size)
        data = unfold(pack.data, sum(pack.sizes), MOST_PACKED)
        at = 0
        for digest, size in zip(pack.digests, pack.sizes, strict=True):
            if digest in self._waiting:
                self._keep(digest, data[at : at + size])
            at += size

    def _expect(self, digest: str, size: int) -> None:
        """Refuse what is no part of the tree.

        :raises TreeError: where it is not
        """
        known = self._size_of(digest)
        if known is None:
            raise TreeError(f"content {digest!r} came and is no part of the tree")
        if size > known:
            raise TreeError(f"content {digest!r} of {known} bytes came with {size}")

    def _size_of(self, digest: str) -> int | None:
        if self._manifest is None:
            return MOST_MANIFEST if digest == self._tree.digest else None
        place = self._manifest.find(digest)
        return None if place is None else self._manifest.sizes[place]

    def _keep(self, digest: str, content: bytes) -> None:
        if self._manifest is None:
            self._manifest = self._checked(Manifest.decode(content))
        else:
            self._store_small(digest, content)
        self._received += len(content)
        self._waiting.discard(digest)

    def _store_small(self, digest: str, content: bytes) -> None:
        try:
            self._store.put_small(digest, content)
        except TreeError:
            if not self._make_room():
                raise
            self._store.put_small(digest, content)

    def _put_piece(self, blob: orders.Blob) -> None:
        if self._incoming is None:
            self._expect(blob.digest, 0)
            self._incoming = (blob.digest, self._open(blob.digest))
        digest, incoming = self._incoming
        if digest != blob.digest:
            raise TreeError(f"a piece of {blob.digest!r} came within {digest!r}")
        piece = unfold(blob.data, blob.unfolded, MOST_PACKED) if blob.unfolded else blob.data
        self._expect(digest, incoming.size + len(piece))
        incoming.write(piece)
        if blob.last:
            incoming.finish()
            incoming.discard()
            self._incoming = None
            self._received += incoming.size
            self._waiting.discard(digest)
            if self._manifest is None:
                self._manifest = Manifest.decode(self._store.get(digest) or b"")

    def _make_room(self) -> bool:
        """Remove contents that this order has no use for; say whether there were any."""
        needed = {line.digest for line in self._manifest or ()}
        return ageing.make_room(self._kept / "store", needed)

    def _open(self, digest: str) -> Incoming:
        try:
            if (self._size_of(digest) or 0) > ageing.free(
                self._kept
            ) and self._manifest is not None:
                self._make_room()
            return self._store.receive(digest)
        except OSError as error:
            raise TreeError(f"can't store {digest!r}: {error.strerror}") from error

    def _leave_out(self, digest: str) -> None:
        """Do without a content that has changed on the user's side since it was listed."""
        self._waiting.discard(digest)
        if self._manifest is None:
            raise TreeError("the list of files never came")
        self._manifest = Manifest.of(line for line in self._manifest if line.digest != digest)

    def close(self) -> None:
        """Let the folder go, and the store not grow for ever."""
        if self._incoming is not None:
            self._incoming[1].discard()
        if self._place is not None:
            self._place.close()
        ageing.limit_store(self._kept / "store", self._received)


def unfold(data: bytes, size: int, most: int) -> bytes:
    """Decompress what must come to so many bytes; never more than those are made.

    :param most: how many it may be.
    :raises TreeError: where it comes to other than that
    """
    if not 0 <= size <= most:
        raise TreeError(f"contents of {size} bytes came at once, where {most} is the most")
    machine = zlib.decompressobj()
    try:
        found = machine.decompress(data, size + 1)
    except zlib.error as error:
        raise TreeError(f"contents came damaged: {error}") from error
    if len(found) != size or not machine.eof or machine.unused_data:
        raise TreeError(f"contents announced with {size} bytes came with others")
    return found


def _is_ours(folder: Path) -> bool:
    """Whether a folder is there, or can be made, that this user alone can look into."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
            return False
        if stat.S_IMODE(status.st_mode) != _OURS_ALONE:
            folder.chmod(_OURS_ALONE)
        return os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    except OSError:
        return False
