"""The run of a session with a far side: local tests here, shipped ones there, reports in between.

The main thread alone calls pytest's hooks. Backends are known by their contract only.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import plan, terminal
from pytest_remotegpu.backends.base import Backend, Environment
from pytest_remotegpu.collection import Collection
from pytest_remotegpu.config import Settings
from pytest_remotegpu.controller import Controller, Worker
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.lanes import Lane
from pytest_remotegpu.news import News
from pytest_remotegpu.outputs import Artifacts
from pytest_remotegpu.protocol import orders
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.replay import Replayer
from pytest_remotegpu.reports import Shipped
from pytest_remotegpu.shipping import Shipping
from pytest_remotegpu.summary import RunSummary

__all__ = ["RemoteSession"]

TICK: Final = 0.2
"""Seconds to wait for news before looking whether the session should stop."""
GREETING: Final = 20.0
"""Seconds to wait for the hello of a worker that is started at once, before local tests begin."""
SILENCE: Final = 60.0
"""Seconds after which a worker that should speak at once is given up."""
GRACE: Final = 5.0
"""Seconds that the far side has for its tear-downs after Ctrl-C."""
CLOSING: Final = 15.0
"""Seconds to wait for a worker's last words once all verdicts are in."""
AT_ONCE: Final = 100
"""Tests that may be complete before they are shown; then the rest of the news waits."""


class _Interrupts:
    """Holds Ctrl-C back while news is taken in or replayed, lest half a batch be lost."""

    def __init__(self) -> None:
        self._depth = 0
        self._pending = False
        self._before: Any = None

    def __enter__(self) -> None:
        ours = threading.current_thread() is threading.main_thread()
        if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *_error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, _number: int, _frame: object) -> None:
        if not self._depth:
            raise KeyboardInterrupt
        self._pending = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let an interrupt wait until the end of the block."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._pending and not self._depth:
            self._pending = False
            raise KeyboardInterrupt


class RemoteSession:
    """Runs the tests of one pytest session, some of them far away.

    Two ways to drive it: :meth:`run` does a whole session; :meth:`submit` and :meth:`result` serve
    a caller that hands over tests one by one.
    """

    def __init__(
        self,
        session: pytest.Session,
        settings: Settings,
        backend: Backend,
        *,
        collection: Collection,
        shipping: Shipping,
        artifacts_dir: Path,
    ) -> None:
        config = session.config
        self._began = time.monotonic()
        self._settings = settings
        self._session = session
        self._config = config
        self._backend = backend
        self._shipping = shipping
        self.summary = RunSummary(where=backend.where)
        self._artifacts = Artifacts(artifacts_dir, settings.max_artifact)
        self.replayer = Replayer(config, self.summary, shipping.why_left_out)
        self.lanes: dict[Shape, Lane] = {}
        self._news = News(
            config,
            self.lanes,
            replayer=self.replayer,
            artifacts=self._artifacts,
            collection=collection,
            shipping=shipping,
            summary=self.summary,
            debug=self._debug,
        )
        self._required = settings.required
        self._interrupts = _Interrupts()
        self._run_id = secrets.token_hex(8)
        self._controller: Controller | None = None
        self._environ: dict[str, str] = {}
        self._tests: dict[pytest.Item, Shipped] = {}
        self._waiting: list[Lane] = []
        self._ran_here = 0

    @property
    def far_status(self) -> int:
        """The exit status of a far session that failed at its end; 0 where none did."""
        return self._news.far_status

    # a whole session

    def run(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        """Run all tests: in order where a failure may end the session, else both sides at once."""
        self._prepare(items, shapes)
        with self._interrupts:
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
        pairs = zip(items, shapes, strict=True)
        name = self._backend.name
        far = [Shipped(item, shape, backend=name) for item, shape in pairs if shape is not None]
        self._tests = {test.item: test for test in far}
        ready: Callable[[Shipped], None] = self.replayer.ready.append
        for shape in dict.fromkeys(test.shape for test in far):
            self.lanes[shape] = Lane(
                shape,
                [test for test in far if test.shape == shape],
                controller=self._opened(),
                summary=self.summary,
                make_order=self._make_order,
                on_ready=ready,
                required=self._required,
            )

    def _opened(self) -> Controller:
        if self._controller is None:
            self._shipping.take_snapshot()
            self._environ = self._shipping.environ()
            own = self._shipping.start.environ if self._backend.ships_tree else self._environ
            self._controller = Controller(self._backend, Hello.here(), Environment(own))
        return self._controller

    def _make_order(self, worker: Worker, tests: list[Shipped], run: orders.Run) -> orders.Order:
        context = {"run": self._run_id, "workers": max(len(self.lanes), 1)}
        order = self._shipping.order(worker, tests, run, self._environ, context)
        for note in self._shipping.notes:
            self.summary.note(note)
        command = shlex.join(getattr(worker.channel, "command", [self._backend.name]))
        self._debug(f"{worker.name}: {len(tests)} tests on {worker.shape}: {command}")
        self._debug(f"{worker.name}: runs there: pytest {shlex.join(order.options.args)}")
        return order

    def _debug(self, text: str) -> None:
        if self._settings.debug:
            terminal.debug(self._config, f"+{time.monotonic() - self._began:.3f} s  {text}")

    def _failure_budget(self) -> int | None:
        """Say how many more failures this session takes; ``None`` for any number."""
        option = self._config.option
        maxfail = getattr(option, "maxfail", 0) or 0
        if not maxfail and getattr(option, "stepwise", False):
            maxfail = 2 if getattr(option, "stepwise_skip", False) else 1
        return max(maxfail - self._session.testsfailed, 1) if maxfail else None

    def _run_in_order(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        local = [item for item, shape in zip(items, shapes, strict=True) if shape is None]
        following = _following(local)
        for stretch in plan.stretches(shapes):
            part = items[stretch.first : stretch.last]
            if stretch.shape is None:
                for item in part:
                    self._run_here(item, following[item])
            else:
                self._run_stretch(self.lanes[stretch.shape], part)

    def _run_stretch(self, lane: Lane, part: Sequence[pytest.Item]) -> None:
        if self._is_too_large(lane):
            return
        lane.start([self._tests[item] for item in part], self._failure_budget() or 0, last=False)
        while lane.busy:
            self._pump(TICK)
        self._replay_ready()
        self._stop_where_told()
        if lane.reason:
            self._session.shouldstop = lane.reason
            self._stop_where_told()

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
        while self._waiting or any(lane.busy for lane in self.lanes.values()):
            self._pump(TICK)
        self._replay_ready()
        self._stop_where_told()
        for lane in self.lanes.values():
            self._session.shouldstop = self._session.shouldstop or lane.reason
        self._stop_where_told()

    def _start_all(self) -> None:
        lanes = self.lanes.values()
        self._waiting = [lane for lane in lanes if not self._is_too_large(lane)]
        self._start_waiting()

    def _is_too_large(self, lane: Lane) -> bool:
        """Refuse at once what this far side can never offer."""
        capacity = self._backend.capacity
        if capacity is None or lane.shape.count <= capacity:
            return False
        lane.give_up(f"{lane.shape} asked for, and {self._backend.name} has {capacity}")
        self._replay_ready()
        return True

    def _start_waiting(self) -> None:
        """Start the lanes whose GPUs are free, as many at once as fit."""
        capacity = self._capacity()
        used = sum(lane.shape.count for lane in self.lanes.values() if lane.busy)
        for lane in list(self._waiting):
            if capacity is None or used == 0 or used + lane.shape.count <= capacity:
                self._waiting.remove(lane)
                used += lane.shape.count
                lane.start(lane.tests, 0, last=True)

    def _capacity(self) -> int | None:
        """Say how many GPUs all lanes share; ``None`` where each worker has a host of its own.

        Of one host that has not spoken yet nothing is known: a single lane starts there.
        """
        if self._backend.capacity is not None or not self._backend.one_host:
            return self._backend.capacity
        hellos = [w.hello for w in self._opened().workers if w.hello is not None]
        if not hellos:
            return 0
        return len(hellos[0].gpus) if hellos[0].pretend is None else hellos[0].pretend

    def _greet(self) -> None:
        """Wait for workers that speak at once: a refusal must come before the first test."""
        deadline = time.monotonic() + GREETING
        while self._backend.prompt and time.monotonic() < deadline:
            workers = [lane.worker for lane in self.lanes.values() if lane.worker is not None]
            if all(worker.hello is not None for worker in workers):
                return
            self._pump(0.05)

    # one test here

    def _run_here(self, item: pytest.Item, following: pytest.Item | None) -> None:
        self._ran_here += 1
        self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
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
        self._start_all()

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
        until = time.monotonic() + TICK
        while said is not None:
            with self._interrupts.held():
                self._news.take(said, controller)
            more = len(self.replayer.ready) < AT_ONCE and time.monotonic() < until
            said = controller.next(0) if more else None
        self._start_waiting()
        self._expire_silent()
        if replay:
            self._replay_ready()
        return found

    def _expire_silent(self) -> None:
        """Wait for no worker for ever that should have said hello at once."""
        now = time.monotonic()
        for lane in self.lanes.values():
            worker = lane.worker
            if worker is None or worker.hello is not None or not self._backend.prompt:
                continue
            if now - worker.started > SILENCE:
                threading.Thread(target=worker.channel.stop, daemon=True).start()
                lane.lose(f"{worker.name} said no hello within {SILENCE:.0f} s", retry=False)

    def _replay_ready(self) -> None:
        self._check_refusals()
        with self._interrupts.held():
            self.replayer.replay_ready()
        for lane in self.lanes.values():
            ending, lane.ending = lane.ending, None
            if ending is not None and ending.interrupt:
                raise KeyboardInterrupt(ending.text)
            if ending is not None:
                # its own status, unless that would hide that the far side failed
                pytest.exit(
                    ending.text, (ending.status or 1) if self.summary.causes else ending.status
                )

    def _check_refusals(self) -> None:
        """Make a refusal a usage error; where tests have been reported, an error of collection."""
        for lane in self.lanes.values():
            text, lane.refusal = lane.refusal, ""
            if not text:
                continue
            head = f"the far side ({self._backend.name}) can't serve this session"
            if self._ran_here + self.replayer.replayed == 0:
                raise pytest.UsageError(f"{head}:\n{text}")
            self._news.report_collect_error("", f"{head}:\n{text}")

    # the end

    def _close_lanes(self) -> None:
        for lane in self.lanes.values():
            lane.finish()
        deadline = time.monotonic() + CLOSING
        controller = self._controller
        while controller is not None and controller.living() and time.monotonic() < deadline:
            self._pump(TICK)

    def _interrupt(self) -> None:
        """After Ctrl-C: the far side tears down within its grace, and what arrives is kept."""
        controller = self._controller
        if controller is None or not any(worker.hello for worker in controller.workers):
            return
        for lane in self.lanes.values():
            lane.stop(GRACE)
        deadline = time.monotonic() + GRACE + 1.0
        while controller.living() and time.monotonic() < deadline:
            said = controller.next(TICK)
            with self._interrupts.held():
                if said is not None:
                    self._news.take(said, controller)
                self.replayer.replay_ready()

    def close(self) -> None:
        """Leave no worker behind."""
        if self._controller is not None:
            self._controller.close()
        self.summary.artifacts = self._artifacts.count
        self.summary.artifact_names = self._artifacts.names()
        self.summary.artifacts_dir = str(self._artifacts.root)

    def _end_with_errors(self) -> None:
        number = self._news.collect_errors
        if number:
            plural = "s" if number != 1 else ""
            raise self._session.Interrupted(f"{number} error{plural} during far collection")


def _following(local: Sequence[pytest.Item]) -> dict[pytest.Item, pytest.Item | None]:
    """Pair each local test with the local one after it, whose fixtures decide what is torn down."""
    return dict(zip(local, [*local[1:], None], strict=True)) if local else {}
