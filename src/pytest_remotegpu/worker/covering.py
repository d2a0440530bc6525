"""Which lines of the project run in this process, told bit by bit; measured by coverage.py.

Knows coverage.py by its documented interface, and imports it only where it is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.plain import to_text

__all__ = ["Covering"]

DEAR: Final = 20
"""What takes long to read is read again after so many times as long."""
AT_ONCE: Final = 50_000
"""Numbers in one event."""
WORDLESS: Final = [
    *("no-data-collected", "module-not-imported", "module-not-measured", "module-not-python"),
    *("already-imported", "couldnt-parse", "no-ctracer", "no-sysmon"),
]
"""Warnings that would be those of some test here; the user's side gives its own."""


class Covering:
    """Measures from now on, where somebody wants to know.

    :param asked: what is to be measured; ``None`` for nothing.
    :param there: the project's folder here. :param here: the same on the user's side.
    """

    def __init__(self, asked: orders.Coverage | None, there: str, here: str) -> None:
        self._there, self._here = f"{there}/", f"{here}/"
        self._cov: Any = None
        self._arcs = asked is not None and asked.branch
        self._told: dict[str, set[Any]] = {}
        self._next = 0.0
        self._trouble = ""
        if asked is not None:
            self._start(asked)

    def _start(self, asked: orders.Coverage) -> None:
        try:
            import coverage  # noqa: PLC0415 -- only where it is asked for
        except ImportError:
            self._trouble = (
                "lines that run on the far side are not counted: coverage is not installed there"
            )
            return
        other = coverage.Coverage.current()
        if other is not None:  # it came with a variable, and nobody will read what it finds
            other.stop()
        given: Any = {name: self._moved(found) for name, found in asked.what.items()}
        self._cov = coverage.Coverage(
            data_file=None,
            config_file=False,
            branch=asked.branch,
            check_preimported=False,
            # processes that tests start would write files that nobody reads
            concurrency=[name for name in asked.concurrency if name != "multiprocessing"] or None,
            **given,
        )
        self._cov.set_option("run:disable_warnings", WORDLESS)
        self._cov.start()

    def _moved(self, names: list[str]) -> list[str]:
        """Name folders as they are called in this process."""
        return [
            self._there + name[len(self._here) :] if f"{name}/".startswith(self._here) else name
            for name in names
        ]

    def news(self, *, last: bool = False) -> Iterator[events.Event]:
        """Yield what has run since the last time.

        :param last: whether no other call follows: until then what is dear may have to wait.
        """
        if self._trouble:
            yield events.Note(to_text(self._trouble))
            self._trouble = ""
        if self._cov is None or (time.monotonic() < self._next and not last):
            return
        began = time.monotonic()
        if last:
            self._cov.stop()
        data = self._cov.get_data()
        for path in data.measured_files():
            yield from self._of_file(path, data)
        now = time.monotonic()
        self._next = now + DEAR * (now - began)

    def _of_file(self, path: str, data: Any) -> Iterator[events.Event]:
        # one of which nothing has run is told, too: it is part of what was to be measured
        unknown = path not in self._told
        told = self._told.setdefault(path, set())
        new = set((data.arcs(path) if self._arcs else data.lines(path)) or ()) - told
        told |= new
        numbers = [n for arc in sorted(new) for n in arc] if self._arcs else sorted(new)
        name = path
        if path.startswith(self._there):
            name = self._here + path[len(self._there) :]
        for at in range(0, len(numbers) or unknown, AT_ONCE):
            yield events.Covered(to_text(name), numbers[at : at + AT_ONCE], self._arcs)
