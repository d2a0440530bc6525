"""The source tree on its way in: which contents are missing, and the folder once all are there."""

from __future__ import annotations

from pathlib import Path

from pytest_remotegpu.protocol import orders

__all__ = ["Source"]


class Source:
    """Receives the files of an order; the paths are checked in ``tree``.

    :param root: the folder to build.
    :param files: the files of the order.
    """

    def __init__(self, root: Path, files: list[orders.File]) -> None:
        self.root = root
        self._files = files

    def missing(self) -> list[str]:
        """Give the digests that have not come."""
        return []

    def put(self, blob: orders.Blob) -> None:
        """Take in a piece of content."""

    def build(self) -> None:
        """Lay out the tree."""
