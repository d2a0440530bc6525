"""All source trees of one order on their way in: the project's, and those of editable installs.

One comes after the other, so that what arrives belongs to the one that waits. Knows nothing of how
a tree is made.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.worker import source
from pytest_remotegpu.worker.source import Source

__all__ = ["Sources", "folders", "locks", "of"]


def of(order: orders.Order | None, scratch: str) -> Sources | None:
    """Begin to receive an order's files; ``None`` for an order that comes without.

    :raises TreeError: as :class:`Source` does.
    """
    first = source.of(order, scratch)
    if first is None or order is None:
        return None
    return Sources(first, order.further, scratch)


def locks(found: Sources | None) -> list[int]:
    """Give the descriptors that whoever works in the folders has to hold."""
    return [] if found is None else [lock for part in found.parts for lock in source.locks(part)]


def folders(found: Sources | None, root: str) -> tuple[str, dict[str, str]]:
    """Give the project's folder, and those of further trees by what they are on the other side.

    :param root: the project's, where no files came.
    """
    if found is None:
        return root, {}
    first, *others = found.parts
    pairs = zip(found.further, others, strict=True)
    return str(first.root), {tree.root: str(part.root) for tree, part in pairs}


class Sources:
    """Receives the trees of an order.

    :param first: the project's. :param further: what the order says of the others.
    :ivar parts: all of them; the later ones are not there before the earlier ones are built.
    """

    def __init__(self, first: Source, further: list[orders.Tree], scratch: str) -> None:
        self.parts = [first]
        self.further = further
        self._scratch = scratch
        self._built = False

    def go_on(self, emit: Callable[[events.Event], None], *came: orders.Blob | orders.Pack) -> bool:
        """Take in contents, ask for what is lacking; say whether all is there just now.

        :raises TreeError: as :meth:`Source.go_on` does
        """
        if self._built:
            return False
        while self.parts[-1].go_on(emit, *came):
            came = ()
            if len(self.parts) > len(self.further):
                self._built = True
                return True
            tree = self.further[len(self.parts) - 1]
            self.parts.append(source.received(tree, self._scratch))
        return False

    def close(self) -> None:
        """Let the folders go."""
        for part in self.parts:
            part.close()
