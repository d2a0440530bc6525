"""Shipped tests one by one, for a session whose next test somebody else decides.

That is each process of pytest-xdist. Knows the far side of its own process, nothing of the others
or of who hands the tests over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

import pytest

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.far import TICK, FarSide
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.news import REFUSAL, UNLOADABLE
from pytest_remotegpu.pool import Serves
from pytest_remotegpu.replay import Replayer, looks_inside
from pytest_remotegpu.reports import Shipped
from pytest_remotegpu.stretch import NOTHING_FOLLOWS, Following

__all__ = ["Answer", "OneByOne", "Outermost"]

GRACE: Final = 4.0
"""Seconds for tear-downs after Ctrl-C: pytest-xdist ends its processes a second time after five."""
TEARING_DOWN: Final = ("runner", "capturemanager")
"""Pytest's own plugins that tear down fixtures, and that catch what these write."""


class OneByOne:
    """Runs single tests far away, in whatever order they come."""

    def __init__(self, session: pytest.Session, far: FarSide) -> None:
        self._session = session
        self._config = session.config
        self._far = far
        self._any_here = False

    def prepare(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        """Take in which tests are to be shipped; the first of each shape starts its worker."""
        self._far.prepare(items, shapes)
        for impl in self._config.hook.pytest_runtest_protocol.get_hookimpls():
            if (impl.wrapper or impl.hookwrapper) and looks_inside(impl.plugin):
                around = self._only_here(impl.function, impl.argnames.index("item"))
                # pluggy offers no other way to put something around one plugin's hook
                impl.function = around  # type: ignore[misc]

    def _only_here(self, wrapper: Callable[..., Any], place: int) -> Callable[..., Any]:
        """Let a wrapper be about tests that run here; those that come back have no phases in it.

        :param place: that of the test among its arguments.
        """

        def around(*arguments: Any) -> Generator[None, Any, Any]:
            if self.ships(arguments[place]):
                return (yield)
            return (yield from wrapper(*arguments))

        return around

    def ships(self, item: pytest.Item) -> bool:
        """Say whether a test runs far away."""
        return item in self._far.tests

    @contextlib.contextmanager
    def protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Have a test's verdict before the block, in which it is shown.

        :param nextitem: the test that this process will run after it.
        """
        test = self._far.tests.get(item)
        if test is None:
            self._any_here = True
            yield
            return
        self._settle(test, nextitem)
        if self._any_here:
            self._tear_down_here(test, nextitem)
        with self._far.replayer.showing(test):
            yield
        self._far.end_where_a_test_did()

    def _settle(self, test: Shipped, nextitem: pytest.Item | None) -> None:
        """Run a test unless it has its verdict, and wait for that."""
        lane = None
        try:
            if not test.done:
                lane = self._far.lane(test.shape)
                self._far.pump(0)
            if lane is not None and not test.done and not self._far.is_too_large(lane):
                following = self._following(nextitem)
                self._far.start(lane, [test], 0, last=nextitem is None, following=following)
                self._wait(lane)
        except UsageError as error:
            self.refuse(str(error))
        for refusal in self._far.refusals():
            kind = UNLOADABLE if refusal.loading else REFUSAL
            self._far.news.report_collect_error("", refusal.text, kind)
        if lane is not None and lane.reason:
            self._session.shouldstop = lane.reason
        if not test.done:
            test.fail("the far side gave this test no verdict")
            test.done = True

    def _wait(self, lane: Serves) -> None:
        while lane.busy:
            self._far.pump(TICK)

    def _following(self, nextitem: pytest.Item | None) -> Following:
        if nextitem is None:
            return NOTHING_FOLLOWS
        return self._far.tests.get(nextitem)

    def refuse(self, text: str) -> None:
        """Report that this session can't be meant; no test of it runs."""
        self._far.news.report_collect_error("", text, REFUSAL)
        for test in self._far.tests.values():
            if not test.done:
                test.fail(f"not run: {text}")
                test.done = True

    def _tear_down_here(self, test: Shipped, nextitem: pytest.Item | None) -> None:
        """Tear down what earlier tests here left up and the next one does not need.

        In a session of this process alone, pytest would do so after this very test.
        """
        manager = self._config.pluginmanager
        hook = manager.hook.pytest_runtest_teardown
        kept = [manager.get_plugin(name) for name in TEARING_DOWN]
        others = [impl.plugin for impl in hook.get_hookimpls() if impl.plugin not in kept]
        caller: Any = manager.subset_hook_caller("pytest_runtest_teardown", others)
        try:
            caller(item=test.item, nextitem=nextitem)
        except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
            raise
        except BaseException as error:  # noqa: BLE001 -- a fixture's end may raise anything
            shown = test.item.repr_failure(pytest.ExceptionInfo.from_exception(error))
            test.spoil_teardown(str(shown))

    def finish(self) -> None:
        """Let every worker end in good order."""
        self._far.finish()

    def interrupt(self) -> None:
        """After Ctrl-C: let the far side tear down within its grace."""
        self._far.interrupt(GRACE, replay=False)


class Outermost:
    """Has a test run far away before any other plugin sees it run here."""

    def __init__(self, one: OneByOne) -> None:
        self._one = one

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        """Wait for the verdict, then let it be shown as any test's."""
        with self._one.protocol(item, nextitem):
            return (yield)


class Answer:
    """Answers for a shipped test before a conftest of a folder could run it here."""

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Replay what came back for the test at hand."""
        return self._replayer.answer(item)
