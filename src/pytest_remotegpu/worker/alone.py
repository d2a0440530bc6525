"""Which tests have a process for themselves, and when another one must go on for that.

Values in, values out; knows no process and no pytest.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Alone"]


class Alone:
    """Remembers what has run in this process.

    :param places: of the tests that run alone.
    """

    def __init__(self, places: Iterable[int] = ()) -> None:
        self._places = frozenset(places)
        self._last: int | None = None

    def __contains__(self, place: int | None) -> bool:
        return place in self._places

    def begin(self, place: int) -> None:
        """Take note that a test runs here."""
        self._last = place

    def bars(self, place: int) -> bool:
        """Say whether a test must run in another process, because of itself or what ran here."""
        return self._last is not None and (place in self or self._last in self)
