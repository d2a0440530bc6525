"""Captured output of a test as events: each text once, and no more than a wire should bear.

Texts in, events out; knows no pytest and no process.
"""

from __future__ import annotations

from typing import Final

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text

__all__ = ["PIECE", "Sections", "cut"]

PIECE: Final = 2**20
"""Bytes of text in one event."""
MOST: Final = 64 * 2**20
"""Bytes of captured output that one test may send; what is over is left out and said so."""


class Sections:
    """The sections of one test that have been sent."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], int] = {}
        self._bytes = 0

    def add(self, item: int, name: str, text: str) -> tuple[int, list[events.Section]]:
        """Give a section's number, and what has to be sent for it: nothing where that was."""
        index = self._known.get((name, text))
        if index is not None:
            return index, []
        index = self._known[name, text] = len(self._known)
        head, data = to_text(name), to_text(text)
        room = max(MOST - self._bytes, 0)
        if len(data) > room:
            data = cut(data, room, f"more than {MOST >> 20} MiB of output")
        self._bytes += len(data)
        return index, [
            events.Section(item, index, head, data[at : at + PIECE], at + PIECE >= len(data))
            for at in range(0, max(len(data), 1), PIECE)
        ]


def cut(text: bytes, size: int, why: str) -> bytes:
    """Cut a text for the wire, and say so in it."""
    return to_text(text[:size].decode("utf-8", "replace")) + to_text(f"\n[cut here: {why}]")
