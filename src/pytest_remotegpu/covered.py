"""Lines that ran on the far side, added to those that coverage.py has counted here.

Believes no path and no number without a look. Imports coverage.py nowhere: it is there, or is not.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.plain import from_text

__all__ = ["Covered", "wanted"]

WHAT: Final = ("source", "source_pkgs", "source_dirs", "include", "omit")
MOST: Final = 20_000_000
"""Numbers that all workers together may send."""
LARGEST: Final = 10_000_000
ELSEWHERE: Final = frozenset({"no-data-collected", "module-not-imported"})
"""Warnings of a process that runs none of the code itself, which is as it should be then."""
CONTEXT: Final = "far side"
"""What coverage.py's reports call tests that ran there, where they are asked for contexts."""


def _running() -> Any:
    """Give the measurement that runs in this process; ``None`` where there is none."""
    coverage: Any = sys.modules.get("coverage")
    return None if coverage is None else coverage.Coverage.current()


def wanted(*, by_pytest_cov: bool) -> orders.Coverage | None:
    """Say what is to be measured on the far side: what is measured here.

    :param by_pytest_cov: whether pytest-cov measures; else only ``coverage run`` counts, and not
        coverage.py in a process that another measured one has started.
    """
    child = any(name.startswith("COVERAGE_PROCESS") for name in os.environ)
    cov = _running() if by_pytest_cov or not child else None
    if cov is None:
        return None
    given = {name: _option(cov, name) for name in WHAT}
    quiet = set(cov.get_option("run:disable_warnings") or ())
    cov.set_option("run:disable_warnings", sorted(quiet | ELSEWHERE))
    return orders.Coverage(
        branch=bool(cov.get_option("run:branch")),
        concurrency=list(cov.get_option("run:concurrency") or ()),
        what={name: [str(each) for each in found] for name, found in given.items() if found},
    )


def _option(cov: Any, name: str) -> Any:
    """Give an option's value; an older version of coverage.py may not know it."""
    with contextlib.suppress(sys.modules["coverage"].CoverageException):
        return cov.get_option(f"run:{name}")
    return None


class Covered:
    """Keeps what workers say has run, until the session's end.

    :param roots: folders in which files may lie. :param measures: whether they were asked to.
    """

    def __init__(self, roots: Iterable[str], measures: Callable[[], bool]) -> None:
        self._roots = [f"{os.path.realpath(root)}{os.sep}" for root in roots if root]
        self._measures = measures
        self._files: dict[str, set[Any]] = {}
        self._count = 0

    def take(self, event: events.Covered) -> None:
        """Take in lines or arcs of one file.

        :raises ProtocolError: where nobody has asked for them, or they can't be true.
        """
        numbers = event.numbers
        path = from_text(event.path)
        if not self._measures():
            raise ProtocolError("lines that have run were sent, and nobody has asked for them")
        self._count += len(numbers)
        odd = event.arcs and len(numbers) % 2
        if odd or self._count > MOST or any(abs(number) > LARGEST for number in numbers):
            raise ProtocolError(f"lines of {path!r} that no file can have, or too many of them")
        if self._is_fit(path):
            found = self._files.setdefault(path, set())
            pairs = zip(numbers[::2], numbers[1::2], strict=True)
            found.update(pairs if event.arcs else numbers)

    def _is_fit(self, path: str) -> bool:
        """Say whether a path is that of a Python file which a report may show."""
        if "\0" in path or not path.endswith(".py") or not os.path.isabs(path):  # noqa: PTH117
            return False
        real = os.path.realpath(path)
        return real.startswith(tuple(self._roots)) and Path(real).is_file()

    def close(self, *, contexts: bool) -> None:
        """Add it all to what was measured here.

        :param contexts: whether what runs is booked to a test; then this is booked to none.
        """
        cov = _running() if self._files else None
        if cov is None:
            return
        if contexts:
            cov.switch_context(CONTEXT)
        data = cov.get_data()
        ran = {_named(cov, path): found for path, found in self._files.items() if found}
        if cov.get_option("run:branch"):
            data.add_arcs(ran)
        else:
            data.add_lines(ran)
        if ran:
            data.touch_files([_named(cov, path) for path in self._files])
        self._files = {}


def _named(cov: Any, path: str) -> str:
    """Call a file what coverage.py calls it in its data."""
    if not cov.get_option("run:relative_files"):
        return path
    files: Any = sys.modules["coverage.files"]
    return str(files.relative_filename(path))
