"""The run of a session with a far side: local tests here, shipped ones there, reports in between.

Decides what runs when, and when what came back is shown. The main thread alone calls pytest's
hooks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import pytest

from pytest_remotegpu import plan, terminal
from pytest_remotegpu.far import TICK, FarSide
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.pool import Pool, Serves

__all__ = ["RemoteSession"]

GREETING: Final = 20.0
"""Seconds to wait for the hello of a worker that is started at once, before local tests begin."""
GRACE: Final = 5.0
"""Seconds that the far side has for its tear-downs after Ctrl-C."""


class RemoteSession:
    """Runs the tests of one pytest session, some of them far away."""

    def __init__(self, session: pytest.Session, far: FarSide) -> None:
        self._session = session
        self._config = session.config
        self._far = far
        self._backend = far.backend
        self._waiting: list[Serves] = []
        self._ran_here = 0
        self._in_order = False

    def run(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        """Run all tests: in order where a failure may end the session, else both sides at once."""
        self._far.prepare(items, shapes)
        if self._debugs and any(shape.launcher for shape in shapes if shape):
            terminal.say(self._config, "tests that run in several ranks get no debugger")
        for shape in dict.fromkeys(shapes):
            if shape is not None:
                self._far.lane(shape)
        with self._far.interrupts:
            try:
                with self._far.interrupts.noticing():
                    self._in_order = self._failure_budget() is not None or self._debugs
                    self._far.larger.in_order = self._in_order
                    if self._in_order:
                        self._run_in_order(items, shapes)
                    else:
                        self._run_concurrently(items, shapes)
                    self._close_lanes()
            except KeyboardInterrupt:
                self._far.interrupt(GRACE, replay=True)
                raise
            finally:
                self._show_held()
                self._far.close()
        self._end_with_errors()

    def _show_held(self) -> None:
        """Show the failures that a second attempt was to follow, however the session ends."""
        if held := self._far.larger.release():
            self._far.replayer.ready = held
            self._far.replayer.replay_ready()

    def _failure_budget(self) -> int | None:
        """Say how many more failures this session takes; ``None`` for any number."""
        option = self._config.option
        maxfail = getattr(option, "maxfail", 0) or 0
        if getattr(option, "stepwise", False):
            own = 2 if getattr(option, "stepwise_skip", False) else 1
            maxfail = min(maxfail or own, own)
        return max(maxfail - self._session.testsfailed, 1) if maxfail else None

    @property
    def _debugs(self) -> bool:
        """Whether a debugger waits for failures, or for each test: one after the other."""
        option = self._config.option
        return bool(getattr(option, "usepdb", False) or getattr(option, "trace", False))

    # one after the other

    def _run_in_order(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        local = [item for item, shape in zip(items, shapes, strict=True) if shape is None]
        following = _following(local)
        for stretch in plan.stretches(shapes):
            part = items[stretch.first : stretch.last]
            if stretch.shape is None:
                for item in part:
                    self._run_here(item, following[item])
            else:
                self._run_stretch(self._far.lane(stretch.shape), part)

    def _run_stretch(self, lane: Serves, part: Sequence[pytest.Item]) -> None:
        if self._is_too_large(lane):
            self._stop_where_told()
            return
        tests = [self._far.tests[item] for item in part]
        self._far.start(lane, tests, self._failure_budget() or 0, last=False)
        while lane.busy:
            self._pump(TICK)
        self._replay_ready()
        self._stop_where_told()
        if lane.reason:
            self._session.shouldstop = lane.reason
            self._stop_where_told()

    # both sides at once

    def _run_concurrently(
        self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]
    ) -> None:
        self._start_all()
        local = [item for item, shape in zip(items, shapes, strict=True) if shape is None]
        if local:
            self._greet()
        self._replay_ready()
        for item, following in _following(local).items():
            self._run_here(item, following)
            self._pump(0)
        self._wait_for_all()
        self._replay_ready()
        self._stop_where_told()
        self._waiting = [lane for lane in self._far.again() if not self._is_too_large(lane)]
        self._start_waiting()
        self._wait_for_all()
        self._replay_ready()
        self._stop_where_told()
        for lane in self._far.lanes.values():
            self._session.shouldstop = self._session.shouldstop or lane.reason
        self._stop_where_told()

    def _wait_for_all(self) -> None:
        while self._waiting or any(lane.busy for lane in self._far.lanes.values()):
            self._pump(TICK)

    def _start_all(self) -> None:
        lanes = self._far.lanes.values()
        self._waiting = [lane for lane in lanes if not self._is_too_large(lane)]
        self._start_waiting()

    def _is_too_large(self, lane: Serves) -> bool:
        refused = self._far.is_too_large(lane)
        if refused:
            self._replay_ready()
        return refused

    def _start_waiting(self) -> None:
        """Start the lanes whose GPUs are free, as many at once as fit."""
        capacity = self._far.capacity()
        used = self._far.in_use()
        for lane in list(self._waiting):
            if capacity is None or used == 0 or used + lane.shape.count <= capacity:
                self._waiting.remove(lane)
                used += lane.shape.count
                self._far.start(lane, lane.tests, 0, last=True)
        self._far.widen()

    def _greet(self) -> None:
        """Wait for workers that speak at once: a refusal must come before the first test."""
        deadline = time.monotonic() + GREETING
        while self._backend.prompt and time.monotonic() < deadline:
            workers = [
                lane.worker for served in self._far.lanes.values() for lane in served.members
            ]
            if all(worker is None or worker.hello is not None for worker in workers):
                return
            self._pump(0.05)

    # one test here

    def _run_here(self, item: pytest.Item, following: pytest.Item | None) -> None:
        self._ran_here += 1
        with self._far.desk.aside():
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self._stop_where_told()

    def _stop_where_told(self) -> None:
        """End the loop as pytest's own does."""
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    # news from afar

    def _pump(self, timeout: float) -> None:
        """Take in what has come, and replay what is complete.

        While somebody debugs, nothing is shown and no test begins here.
        """
        self._far.pump(timeout)
        while self._far.desk.busy:
            self._far.pump(TICK)
        self._start_waiting()
        self._replay_ready()

    def _replay_ready(self) -> None:
        self._check_refusals()
        with self._far.interrupts.held():
            if not self._is_over():
                self._far.replayer.replay_ready(self._is_over)
        self._far.end_where_a_test_did()

    def _is_over(self) -> bool:
        """Say whether plain pytest would run no further test after the one that was just shown."""
        if any(isinstance(lane, Pool) for lane in self._far.lanes.values()):
            return False  # what ran beside it may still be shown
        return self._in_order and bool(self._session.shouldfail or self._session.shouldstop)

    def _check_refusals(self) -> None:
        """Make a refusal a usage error; where tests have been reported, its tests have errors.

        A far conftest that does not load is one of collection besides.
        """
        for refusal in self._far.refusals():
            if self._ran_here + self._far.replayer.replayed == 0:
                raise pytest.UsageError(refusal.text)
            if refusal.loading:
                self._far.news.report_collect_error("", refusal.text)

    # the end

    def _close_lanes(self) -> None:
        self._far.finish()
        self._replay_ready()

    def _end_with_errors(self) -> None:
        number = self._far.news.collect_errors
        if number:
            plural = "s" if number != 1 else ""
            raise self._session.Interrupted(f"{number} error{plural} during far collection")


def _following(local: Sequence[pytest.Item]) -> dict[pytest.Item, Any]:
    """Pair each local test with the local one after it, whose fixtures decide what is torn down."""
    return dict(zip(local, [*local[1:], None], strict=True)) if local else {}
