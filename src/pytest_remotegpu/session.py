"""The running of a session with a far side: local tests here, shipped ones there, reports in between.

The main thread alone calls pytest's hooks. Backends are known by their contract only.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import cloudpickle
import pytest

from pytest_remotegpu import plan, terminal
from pytest_remotegpu.backends.base import Backend, Environment
from pytest_remotegpu.collection import Collection
from pytest_remotegpu.config import Settings
from pytest_remotegpu.controller import Controller, Lost, Said, Worker
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.lanes import Lane
from pytest_remotegpu.outputs import Artifacts
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.reports import Shipped, synthesised_warning
from pytest_remotegpu.shipping import Shipping
from pytest_remotegpu.summary import RunSummary

__all__ = ["RemoteSession"]

TICK: Final = 0.2
"""Seconds to wait for news before looking whether the session should stop."""
GREETING: Final = 20.0
"""Seconds to wait for the hello of a worker that is started at once, before local tests begin."""
GRACE: Final = 5.0
"""Seconds that the far side has for its tear-downs after Ctrl-C."""
CLOSING: Final = 15.0
"""Seconds to wait for a worker's last words once all verdicts are in."""


class RemoteSession:
    """Runs the tests of one pytest session, some of them far away.

    Two ways to drive it: :meth:`run` does a whole session; :meth:`submit` and :meth:`result` serve a caller
    that hands over tests one by one.
    """

    def __init__(
        self,
        session: pytest.Session,
        settings: Settings,
        backend: Backend,
        collection: Collection,
        shipping: Shipping,
        artifacts_dir: Path,
    ) -> None:
        self._session = session
        self._config = session.config
        self._settings = settings
        self._backend = backend
        self._collection = collection
        self._shipping = shipping
        self.summary = RunSummary(where=backend.where)
        self.artifacts = Artifacts(artifacts_dir, settings.max_artifact)
        self._live = terminal.LiveOutput(self._config)
        self._run_id = secrets.token_hex(8)
        self._controller: Controller | None = None
        self._environ: dict[str, str] = {}
        self._tests: dict[pytest.Item, Shipped] = {}
        self.lanes: dict[Shape, Lane] = {}
        self._waiting: list[tuple[Lane, list[Shipped]]] = []
        self._ready: list[Shipped] = []
        self._replaying: Shipped | None = None
        self._reported = 0
        self._far_collect_errors: list[str] = []
        self._collect_warnings: set[tuple[str, ...]] = set()

    # a whole session

    def run(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        """Run all tests: in collection order where a failure may end the session, else both sides at once."""
        self._prepare(items, shapes)
        try:
            if self._failure_budget() is not None:
                self._run_in_order(items, shapes)
            else:
                self._run_concurrently(items, shapes)
            self._close_lanes()
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            self.close()
        self._end_with_errors()

    def _prepare(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        far = [Shipped(item, shape, backend=self._backend.name)
               for item, shape in zip(items, shapes, strict=True) if shape is not None]  # fmt: skip
        self._tests = {test.item: test for test in far}
        for shape in dict.fromkeys(test.shape for test in far):
            self._add_lane(shape, [test for test in far if test.shape == shape])

    def _add_lane(self, shape: Shape, tests: list[Shipped]) -> None:
        self.lanes[shape] = Lane(
            shape, tests, self._opened(), self.summary, self._make_order, self._ready.append
        )

    def _opened(self) -> Controller:
        if self._controller is None:
            self._shipping.take_snapshot()
            self._environ = self._shipping.environ()
            variables = self._shipping.start.environ if self._backend.ships_tree else self._environ
            self._controller = Controller(self._backend, Hello.here(), Environment(variables))
        return self._controller

    def _make_order(self, worker: Worker, tests: list[Shipped], run: orders.Run) -> orders.Order:
        order = self._shipping.order(worker, tests, run, self._environ, self._run_id, max(len(self.lanes), 1))
        for note in self._shipping.notes:
            self.summary.note(note)
        return order

    def _failure_budget(self) -> int | None:
        """Say how many more failures this session takes; ``None`` for any number."""
        option = self._config.option
        maxfail = getattr(option, "maxfail", 0) or 0
        if maxfail:
            return max(maxfail - self._session.testsfailed, 1)
        if getattr(option, "stepwise", False):
            allowed = 2 if getattr(option, "stepwise_skip", False) else 1
            return max(allowed - self._session.testsfailed, 1)
        return None

    def _run_in_order(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        following = _following([i for i, shape in zip(items, shapes, strict=True) if shape is None])
        self._greet(shapes)
        for stretch in plan.stretches(shapes):
            part = items[stretch.first : stretch.last]
            if stretch.shape is None:
                for item in part:
                    self._run_here(item, following[item])
            else:
                self._run_far_stretch(self.lanes[stretch.shape], part)

    def _run_far_stretch(self, lane: Lane, part: Sequence[pytest.Item]) -> None:
        if self._too_large(lane):
            return
        lane.start([self._tests[item] for item in part], self._failure_budget() or 0, last=False)
        while lane.busy:
            self._pump(TICK)
        self._replay_ready()
        self._stop_where_told()
        if lane.reason:
            self._session.shouldstop = lane.reason
            self._stop_where_told()

    def _run_concurrently(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        self._waiting = [(lane, lane.tests) for lane in self.lanes.values() if not self._too_large(lane)]
        self._start_waiting()
        local = [item for item, shape in zip(items, shapes, strict=True) if shape is None]
        if local:
            self._greet(shapes)
        self._replay_ready()
        for item, following in _following(local).items():
            self._run_here(item, following)
            while self._pump(0):
                pass
        while self._waiting or any(lane.busy for lane in self.lanes.values()):
            self._pump(TICK)
        self._replay_ready()

    def _too_large(self, lane: Lane) -> bool:
        """Refuse at once what this far side can never offer."""
        capacity = self._backend.capacity
        if capacity is None or lane.shape.count <= capacity:
            return False
        if any(not test.done for test in lane.tests):
            lane._give_up(f"{lane.shape} asked for, and {self._backend.name} has {capacity}")  # noqa: SLF001
            self._replay_ready()
        return True

    def _start_waiting(self) -> None:
        """Start the lanes whose GPUs are free, as many at once as fit."""
        capacity = self._backend.capacity
        used = sum(lane.shape.count for lane in self.lanes.values() if lane.busy)
        for entry in list(self._waiting):
            lane, tests = entry
            if capacity is None or used + lane.shape.count <= capacity:
                self._waiting.remove(entry)
                used += lane.shape.count
                lane.start(tests, 0, last=True)

    def _greet(self, shapes: Sequence[Shape | None]) -> None:
        """Wait for the first words of workers that come at once: a refusal must come before any test."""
        if not self._backend.prompt or all(shape is None for shape in shapes):
            return
        deadline = time.monotonic() + GREETING
        while time.monotonic() < deadline and any(
            lane.worker is not None and lane.worker.hello is None for lane in self.lanes.values()
        ):
            self._pump(0.05)

    # one test here

    def _run_here(self, item: pytest.Item, following: pytest.Item | None) -> None:
        self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self._reported += 1
        self._stop_where_told()

    def _stop_where_told(self) -> None:
        """End the loop as pytest's own does."""
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    # one by one

    def submit(self, items: Sequence[pytest.Item], shapes: Sequence[Shape]) -> None:
        """Send tests away; their results are asked for one by one."""
        self._prepare(items, shapes)
        self._waiting = [(lane, lane.tests) for lane in self.lanes.values() if not self._too_large(lane)]
        self._start_waiting()

    def result(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Wait for the verdict of one submitted test, without replaying it."""
        test = self._tests[item]
        while not test.done:
            self._pump(TICK, replay=False)
        return test.reports

    # news from afar

    def _pump(self, timeout: float, *, replay: bool = True) -> bool:
        """Take in what has come, and replay what is complete; say whether anything had come."""
        controller = self._opened()
        said = controller.next(timeout)
        found = said is not None
        while said is not None:
            self._take(said)
            said = controller.next(0) if len(self._ready) < 100 else None  # noqa: PLR2004  show some, then go on
        self._start_waiting()
        if replay:
            self._replay_ready()
        self._check_refusals()
        return found

    def _take(self, said: Said) -> None:
        lane = next((lane for lane in self.lanes.values() if lane.worker is said.worker), None)
        if isinstance(said.what, Lost):
            if lane is not None:
                lane.take(said.what)
            return
        if lane is None:
            return
        try:
            if isinstance(said.what, Hello):
                lane.take(said.what)
                return
            for event in said.what:
                if not self._take_here(lane, said.worker, event):
                    lane.take([event])
                if lane.ending is not None and self._ready:
                    self._replay_ready()
        except ProtocolError as error:
            said.worker.channel.stop()
            lane.lose(f"{said.worker.name} broke the protocol: {error}", retry=False)

    def _take_here(self, lane: Lane, worker: Worker, event: events.Event) -> bool:
        """Handle the events that concern the session more than a lane."""
        match event:
            case events.Warned():
                self._take_warning(lane, event)
            case events.Live():
                self._live.write(worker.name, event.stream, event.data)
            case events.Log():
                self._take_log(worker, event)
            case events.Artifact():
                self.artifacts.take(lane._open_test(event.item).item.nodeid, event)  # noqa: SLF001
            case events.Wants():
                self._take_wants(lane, worker, event)
            case events.Need():
                self._take_need(worker, event)
            case events.CollectFailed():
                self._take_collect_failure(event)
            case events.Note():
                self.summary.note(from_text(event.text))
            case events.Collected() | events.Phase() | events.Ended():
                terminal.debug(self._config, self._settings.debug, f"{worker.name}: {event!r}")
            case _:
                return False
        return True

    def _take_warning(self, lane: Lane, event: events.Warned) -> None:
        if event.item >= 0:
            lane._open_test(event.item).warnings.append(event)  # noqa: SLF001
            return
        self._warn(event, "")

    def _warn(self, event: events.Warned, nodeid: str) -> None:
        message = synthesised_warning(event)
        if event.when != "runtest":
            key = (message.category.__name__, str(message.message), message.filename, str(message.lineno))
            if key in self._collect_warnings:
                return
            self._collect_warnings.add(key)
        location = event.location and (from_text(event.location[0]), event.location[1], from_text(event.location[2]))
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": event.when, "nodeid": nodeid, "location": location}
        )

    def seen_here(self, message: Any, when: str) -> None:
        """Remember a warning of this side's own collection, which the far side's would repeat."""
        if when != "runtest":
            key = (message.category.__name__, str(message.message), str(message.filename), str(message.lineno))
            self._collect_warnings.add(key)

    def _take_log(self, worker: Worker, event: events.Log) -> None:
        record = logging.LogRecord(
            from_text(event.name), event.level, from_text(event.path), event.lineno,
            f"[{worker.name}] {from_text(event.text)}", None, None, from_text(event.function),
        )  # fmt: skip
        record.created = event.created
        logging.getLogger().handle(record)

    def _take_wants(self, lane: Lane, worker: Worker, event: events.Wants) -> None:
        tests = {place: lane._test(place) for place in event.items}  # noqa: SLF001
        values = {place: self._collection.wanted(test.item) for place, test in tests.items()}
        worker.send(orders.Values(cloudpickle.dumps(values)))

    def _take_need(self, worker: Worker, event: events.Need) -> None:
        taken = self._shipping.snapshot
        if taken is None:
            raise ProtocolError("contents are asked for where no tree was sent")
        known = {entry.digest for entry in taken.entries}
        if not known.issuperset(event.digests):
            raise ProtocolError("contents are asked for that are no part of the tree")
        sent = self._opened().supply(worker, taken.blobs(event.digests))
        self.summary.sent = f"sent {len(event.digests)} files, {sent / 2**10:.1f} KiB"

    def _take_collect_failure(self, event: events.CollectFailed) -> None:
        nodeid = from_text(event.nodeid)
        if nodeid in self._far_collect_errors:
            return
        self._far_collect_errors.append(nodeid)
        report = pytest.CollectReport(nodeid, "failed", f"on the far side:\n{from_text(event.text)}", [])
        self._config.hook.pytest_collectreport(report=report)

    def _check_refusals(self) -> None:
        """End the session with a usage error where no test has been reported; else its tests are errors."""
        for lane in self.lanes.values():
            text = lane.refused or lane.unstartable
            if text and self._reported == 0:
                what = "can't serve this session" if lane.refused else "could not start its pytest session"
                raise pytest.UsageError(f"the far side ({self._backend.name}) {what}:\n{text}")
            if text and text not in self._far_collect_errors:
                self._far_collect_errors.append(text)

    # replay

    def _replay_ready(self) -> None:
        if any(lane.refused or lane.unstartable for lane in self.lanes.values()):
            self._check_refusals()
        while self._ready:
            ready, self._ready[:] = list(self._ready), []
            for test in ready:
                self._replay(test)
        for lane in self.lanes.values():
            if lane.ending is not None:
                self._end_as(lane)

    def _replay(self, test: Shipped) -> None:
        """Pass a test through the hook that local tests pass through, with our answer in place of theirs."""
        self._live.end(test.worker)
        self._config.hook.pytest_remotegpu_result(item=test.item, result=test.result())
        self._replaying = test
        try:
            self._protocol()(item=test.item, nextitem=None)
        finally:
            self._replaying = None
        for warning in test.warnings:
            self._warn(warning, test.item.nodeid)
        self._reported += 1
        self.summary.ran(test.shape, test.item.nodeid, test.seconds)
        test.warnings.clear()
        test.reports.clear()

    def _protocol(self) -> Callable[..., Any]:
        manager = self._config.pluginmanager
        ours = self._config.pluginmanager.get_plugin("remotegpu-controller")
        foreign = [
            impl.plugin
            for impl in manager.hook.pytest_runtest_protocol.get_hookimpls()
            if not (impl.wrapper or impl.hookwrapper) and impl.plugin is not ours
        ]
        return manager.subset_hook_caller("pytest_runtest_protocol", foreign)

    def answer(self, item: pytest.Item) -> bool | None:
        """Replay the reports of the test at hand; ``None`` for a test that runs here."""
        test = self._replaying
        if test is None or test.item is not item:
            return None
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in list(test.reports):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    # the end

    def _end_as(self, lane: Lane) -> None:
        """End the session as the far test has: ``pytest.exit`` or an interrupt."""
        ending, lane.ending = lane.ending, None
        assert ending is not None
        if ending.interrupt:
            raise KeyboardInterrupt(ending.text)
        pytest.exit(ending.text, ending.status)

    def _close_lanes(self) -> None:
        for lane in self.lanes.values():
            lane.finish()
        deadline = time.monotonic() + CLOSING
        controller = self._controller
        while controller is not None and controller.living() and time.monotonic() < deadline:
            self._pump(TICK)

    def _interrupt(self) -> None:
        """After Ctrl-C: the far side tears down within its grace, and what arrives is kept."""
        if self._controller is None:
            return
        for lane in self.lanes.values():
            lane.stop(GRACE)
        deadline = time.monotonic() + GRACE
        while self._controller.living() and time.monotonic() < deadline:
            said = self._controller.next(TICK)
            if said is not None:
                self._take(said)
            while self._ready:
                self._replay(self._ready.pop(0))

    def close(self) -> None:
        """Leave no worker behind."""
        if self._controller is not None:
            self._controller.close()
        self.summary.artifacts = self.artifacts.count
        self.summary.artifacts_dir = str(self.artifacts.root)

    def _end_with_errors(self) -> None:
        if self._far_collect_errors:
            number = len(self._far_collect_errors)
            raise self._session.Interrupted(f"{number} error{'s' if number != 1 else ''} during far collection")


def _following(local: Sequence[pytest.Item]) -> dict[pytest.Item, pytest.Item | None]:
    """Pair each local test with the local one after it, whose fixtures decide what is torn down between."""
    return dict(zip(local, [*local[1:], None], strict=True)) if local else {}
