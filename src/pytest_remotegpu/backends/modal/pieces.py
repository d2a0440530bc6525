"""What a session sends to a container, in numbered pieces: none is missed, or taken twice.

A piece is sent again where nobody knows whether it has arrived. Values in, values out; knows no
queue and what is in the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

__all__ = ["PIECE", "GapError", "Joiner", "Splitter"]

PIECE: Final = 768 * 1024
"""Bytes of one message to a container; the service takes 1 MiB."""
NUMBER: Final = struct.Struct("!Q")
"""Stands before each piece."""


class GapError(Exception):
    """Raised where a piece is missing."""


class Splitter:
    """Numbers pieces from 1 on."""

    def __init__(self) -> None:
        self._number = 0

    def split(self, data: bytes) -> Iterator[bytes]:
        """Yield pieces that are small enough."""
        for at in range(0, len(data), PIECE):
            self._number += 1
            yield NUMBER.pack(self._number) + data[at : at + PIECE]


class Joiner:
    """Takes what a :class:`Splitter` gives."""

    def __init__(self) -> None:
        self._number = 0

    def take(self, piece: bytes) -> bytes:
        """Give what is in a piece; nothing where that was had before.

        :raises GapError: where an earlier one has not come.
        """
        if len(piece) < NUMBER.size:
            raise GapError(f"a piece of {len(piece)} bytes has no number")
        [number] = NUMBER.unpack_from(piece)
        if number <= self._number:
            return b""
        if number > self._number + 1:
            raise GapError(f"piece {number} came where {self._number + 1} was due")
        self._number = number
        return piece[NUMBER.size :]
