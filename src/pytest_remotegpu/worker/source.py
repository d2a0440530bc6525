"""The source tree of one order on its way in: what is missing, and the folder once all is there.

Knows the wire's files and blobs; who sends them, and what runs in the folder, it does not know.
"""

from __future__ import annotations

from pathlib import Path

from pytest_remotegpu.protocol import orders
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.worker.tree import Incoming, Store, TreeError

__all__ = ["Source"]


class Source:
    """Receives the files of an order.

    :param scratch: the worker's folder, in which the tree is built and contents are kept.
    :param name: the tree's own name; empty for any.
    :param files: what the order lists.
    :ivar root: the folder to build.
    :ivar built: whether the folder is there.
    """

    def __init__(self, scratch: str, name: str, files: list[orders.File]) -> None:
        self.root = Path(scratch, "tree", name or "root")
        self._store = Store(Path(scratch, "store"))
        self._entries = [
            (
                from_text(file.path),
                file.digest,
                file.mode,
                None if file.link is None else from_text(file.link),
            )
            for file in files
        ]
        self._digests = {file.digest for file in files if file.link is None}
        self._missing = set(self._store.missing(self._digests))
        self._incoming: tuple[str, Incoming] | None = None
        self.built = False

    def missing(self) -> list[str]:
        """Give the digests whose content has not come."""
        return sorted(self._missing)

    def put(self, blob: orders.Blob) -> None:
        """Take in a piece of content; the pieces of one content come in a row.

        :raises TreeError: for content that was not asked for, or that is not what its digest says.
        """
        if blob.gone:
            self._missing.discard(blob.digest)
            self._entries = [entry for entry in self._entries if entry[1] != blob.digest]
            return
        if self._incoming is None:
            if blob.digest not in self._missing:
                raise TreeError(f"content {blob.digest!r} came and was not asked for")
            self._incoming = (blob.digest, self._store.receive(blob.digest))
        digest, incoming = self._incoming
        if digest != blob.digest:
            raise TreeError(f"a piece of {blob.digest!r} came within {digest!r}")
        incoming.write(blob.data)
        if blob.last:
            incoming.finish()
            incoming.discard()
            self._incoming = None
            self._missing.discard(digest)

    def build(self) -> None:
        """Lay out the tree.

        :raises TreeError: where an entry is unsafe or the system refuses.
        """
        self._store.build(self.root, self._entries)
        self.built = True
