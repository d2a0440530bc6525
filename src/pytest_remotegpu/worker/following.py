"""Which test comes after which: what a tear-down is told, and how to go on where that was wrong.

Tests may come in any order, and one by one. Knows pytest and a run's places, nothing of the wire
beyond that.
"""

from __future__ import annotations

import traceback
from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import orders
from pytest_remotegpu.worker.alone import Alone

__all__ = ["Following"]

TEARING_DOWN: Final = ("runner", "capturemanager")
"""Pytest's own plugins that tear down fixtures, and that catch what these write."""
MOST_FAILURES: Final = 20
"""Failures that are told; a session that has so many has failed well enough."""
LONGEST: Final = 10_000
"""Characters of one failure's text."""


class Following:
    """Remembers what tear-downs were told, for one session.

    :param items: the tests by their place; ``None`` for one that is not there.
    :param neighbours: for each place the next test there is.
    :param alone: those that nothing follows in their process, and that follow nothing.
    """

    def __init__(
        self,
        items: list[pytest.Item | None],
        neighbours: list[pytest.Item | None],
        alone: Alone,
    ) -> None:
        self._items = items
        self._neighbours = neighbours
        self._alone = alone
        self._next = _next_places(items)
        self._barred = {item for place, item in enumerate(items) if item and place in alone}
        self._last: pytest.Item | None = None
        self._told: pytest.Item | None = None
        self._failures = 0

    def after(self, run: orders.Run, place: int) -> pytest.Item | None:
        """Give the test that will run after this one; a guess, where nobody knows."""
        if place in self._alone:
            return None
        if not self.ends(run, place) or run.following < 0:
            return self._not_alone(self._neighbours[place])
        return self._at(run.following)

    def ends(self, run: orders.Run, place: int) -> bool:
        """Say whether no further test of a stretch is there."""
        return self._next[place] >= min(run.last, len(self._items))

    def _at(self, place: int) -> pytest.Item | None:
        """Give the test at a place, or the next one there is."""
        if place >= len(self._items):
            return None
        return self._not_alone(self._items[place] or self._neighbours[place])

    def _not_alone(self, item: pytest.Item | None) -> pytest.Item | None:
        """Give a test that can follow others in their process."""
        return None if item in self._barred else item

    def told(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Take note of what the tear-down of a test is told."""
        self._last, self._told = item, following

    def make_way(self, item: pytest.Item) -> str:
        """Tear down what is still up and this test does not need.

        That is so where another test was expected. What fails here is no fault of this test.

        :return: the text of the failure, if there is one.
        """
        last, self._last = self._last, None
        if last is None or self._told is item:
            return ""
        try:
            _tear_down(last, item)
        except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
            raise
        except BaseException:  # noqa: BLE001 -- a fixture's end may raise anything
            self._failures += 1
            text = traceback.format_exc()[-LONGEST:]
            return f"after {last.nodeid}:\n{text}" if self._failures <= MOST_FAILURES else ""
        return ""

    def settle(
        self, item: pytest.Item, report: pytest.TestReport, place: int | None
    ) -> pytest.TestReport:
        """Tear down what only tests need that are not to come after all, as a part of this test.

        Plain pytest would do so, too, in the last test of a module that is run.

        :param item: the test that has just been torn down. :param report: of that.
        :param place: of the test that comes instead; where that is not known, -1 or ``None``: then
            what the whole session has stays up.
        :return: the report to go by.
        """
        keep: pytest.Item | pytest.Session | None = item.session
        if place is not None and place >= 0:
            keep = self._at(place)
        if self._last is not item or self._told is keep:
            return report
        self._told = keep if isinstance(keep, pytest.Item) else None
        call = pytest.CallInfo.from_call(
            lambda: _tear_down(item, keep),
            when="teardown",
            reraise=(KeyboardInterrupt, SystemExit, pytest.exit.Exception),
        )
        if call.excinfo is None:
            return report
        late: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
        late.start, late.duration = report.start, report.duration + late.duration
        if report.failed:  # of two failures the first one stays
            late.sections.append(("This tear-down failed before, with", report.longreprtext))
        return late


def _next_places(items: list[pytest.Item | None]) -> list[int]:
    """Give for each place the next one whose test is there; their number where there is none."""
    found: list[int] = []
    after = len(items)
    for place in reversed(range(len(items))):
        found.append(after)
        after = place if items[place] is not None else after
    return found[::-1]


def _tear_down(item: pytest.Item, following: pytest.Item | pytest.Session | None) -> None:
    """Tear down what the next one does not need, and no more than pytest itself would."""
    manager = item.config.pluginmanager
    present = manager.hook.pytest_runtest_teardown.get_hookimpls()
    kept = [manager.get_plugin(name) for name in TEARING_DOWN]
    others = [impl.plugin for impl in present if impl.plugin not in kept]
    caller: Any = manager.subset_hook_caller("pytest_runtest_teardown", others)
    caller(item=item, nextitem=following)
