"""The far side of one session: its lanes, its workers, its news, its limit, its end.

Whoever drives it knows in which order tests run and when they are replayed; this does not. Called
from the main thread only. Backends are known by their contract only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import endings, selection, terminal
from pytest_remotegpu.advice import Refusal
from pytest_remotegpu.backends.base import Backend, Environment, Heading, Tells
from pytest_remotegpu.collection import Collection
from pytest_remotegpu.config import Settings
from pytest_remotegpu.controller import Controller, Said, Worker
from pytest_remotegpu.desk import Desk
from pytest_remotegpu.durations import Durations
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.lanes import Lane
from pytest_remotegpu.larger import Larger
from pytest_remotegpu.members import Member
from pytest_remotegpu.news import News
from pytest_remotegpu.outputs import Artifacts, shown
from pytest_remotegpu.pool import Pool, Serves, job_of, what_fits, width_of
from pytest_remotegpu.protocol import orders
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.replay import Replayer
from pytest_remotegpu.reports import Shipped
from pytest_remotegpu.runlimit import LAST_LOOK, RunLimit
from pytest_remotegpu.shipping import Shipping
from pytest_remotegpu.signals import Interrupts
from pytest_remotegpu.spending import Spending
from pytest_remotegpu.stretch import Following
from pytest_remotegpu.summary import RunSummary
from pytest_remotegpu.timeline import HERE, Timeline

__all__ = ["SILENCE", "TICK", "FarSide"]

TICK: Final = 0.2
"""Seconds to wait for news before looking whether the session should stop."""
SILENCE: Final = 60.0
"""Seconds after which a worker that should speak at once is given up."""
CLOSING: Final = 15.0
"""Seconds to wait for a worker's last words once all verdicts are in."""
AT_ONCE: Final = 100
"""Tests that may be complete before they are shown; then the rest of the news waits."""


class FarSide:
    """Lanes and workers of one session.

    :ivar lanes: those that have been asked for. :ivar tests: the shipped tests by their item.
    :ivar replayer: shows what came back. :ivar summary: what there is to say of it all.
    :ivar failures: explains them. :ivar here: what the timeline calls this process.
    :ivar interrupts: hold signals back while news is taken in. :ivar desk: lends the terminal.
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
        interrupts: Interrupts,
        began: float,
    ) -> None:
        self._config = session.config
        self._settings = settings
        self._shipping = shipping
        self.failures = shipping.failures
        self._artifacts = Artifacts(artifacts_dir, settings.max_artifact)
        self._began = began
        self._environ: dict[str, str] = {}
        self._deadline = float("inf")  # where it is not the run limit that ends it
        self._clock: RunLimit | None = None
        self._limit = ""
        self._expired = self._ends = False
        self.backend = backend
        self.here = shipping.sender.worker or HERE
        self.interrupts = interrupts
        self.controller: Controller | None = None
        self.desk = Desk(session.config, offered=not shipping.nobody)
        interrupts.diverts = self.desk.diverts
        self._durations = Durations.of_session(session.config)
        self._width = 1 if shipping.sender.worker else settings.workers
        if getattr(session.config.option, "stepwise", False):
            self._width = 1  # it goes on from the one test that failed
        self.lanes: dict[Shape, Serves] = {}
        self.tests: dict[pytest.Item, Shipped] = {}
        self.summary = RunSummary(
            where=backend.where, began=time.time() - (time.monotonic() - began)
        )
        self.timeline = Timeline(self.summary, began)
        self.replayer = Replayer(
            session.config, self.summary, shipping.failures.explain, self.interrupts.noticing
        )
        self.spending = Spending(
            backend,
            settings,
            shipping.sender.workers or 1,
            began,
            records=bool(settings.json),
        )
        self.larger = Larger(
            backend,
            None if shipping.sender.worker else settings.oom_retry,
            note=self.summary.note,
            charge=self.spending.charge,
        )
        self.replayer.charge = self.larger.charge
        self.news = News(
            session.config,
            self.lanes,
            replayer=self.replayer,
            artifacts=self._artifacts,
            collection=collection,
            shipping=shipping,
            timeline=self.timeline,
            spending=self.spending,
            desk=self.desk,
            debug=self._debug,
        )

    # before the first test

    def _on_ready(self, test: Shipped) -> None:
        """Let a verdict be shown; under pytest-xdist it waits until its test is asked for."""
        if self.larger.takes(test):
            return
        test = self.larger.settle(test)
        if (kept := self._artifacts.folder(test.item.nodeid)) is not None:
            test.tell("remotegpu_artifacts", shown(kept, self._config.rootpath))
        if not test.verdict:
            self._durations.note(test.item.nodeid, test.seconds)
        if not self._shipping.sender.worker:
            self.replayer.ready.append(test)

    def prepare(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        """Take in which tests are to be shipped; starts nothing."""
        name = self.backend.name
        for item, shape in zip(items, shapes, strict=True):
            if shape is not None:
                rules = selection.rules_of(item, self._settings.aliases)
                self.tests[item] = Shipped(item, shape, name, **rules._asdict())

    def lane(self, shape: Shape) -> Serves:
        """Give the lane of a shape, or its lanes; none of its workers is started by that.

        :raises UsageError: where the project can't be sent.
        """
        if shape not in self.lanes:
            self.lanes[shape] = self._make_lanes(shape)
        return self.lanes[shape]

    def again(self) -> list[Serves]:
        """Give lanes for the tests that are to be run on larger cards, once all others are done."""
        tests = [] if self._expired else self.larger.again()
        if not tests:
            self.replayer.ready += self.larger.release()
        self.tests.update((test.item, test) for test in tests)
        return [self.lane(shape) for shape in dict.fromkeys(test.shape for test in tests)]

    def _make_lanes(self, shape: Shape) -> Serves:
        tests = [test for test in self.tests.values() if test.shape == shape]
        common: dict[str, Any] = {
            "controller": self.opened(),
            "summary": self.summary,
            "make_order": self._make_order,
            "required": self._settings.required,
        }
        self.summary.note(what_fits(self._width, shape, self.backend.capacity, self.backend.name))
        width = width_of(self._width, len(tests), shape.count, self.backend.capacity)
        if width == 1:
            return Lane(shape, tests, on_ready=self._on_ready, **common)
        return Pool(
            shape,
            tests,
            [job_of(test.item.nodeid, self._durations.of(test.item.nodeid)) for test in tests],
            width,
            make_member=lambda done: Member(tests, shape=shape, on_ready=done, **common),
            on_ready=self._on_ready,
            summary=self.summary,
            start=getattr(self.backend, "start_seconds", 0.0),
        )

    def opened(self) -> Controller:
        """Begin the far work: list the files, ask for the variables, let the clock run."""
        if self.controller is None:
            with self.timeline.measured(self.here, "snapshot"):
                self._shipping.take_snapshot()
            self._shipping.ask_for_commit()
            self._environ = self._shipping.environ()
            ships = self.backend.ships_tree
            own = self._shipping.start.environ if ships else self._environ
            sender = self._shipping.sender.worker
            self.controller = Controller(self.backend, Hello.here(), Environment(own), sender)
            self.controller.hides = self._shipping.blotted
            self._set_limit()
        return self.controller

    def _make_order(
        self,
        worker: Worker,
        tests: list[Shipped],
        run: orders.Run,
        files: list[str] | None = None,
    ) -> orders.Order:
        if worker.hello is None:  # one that has collected was opened before
            self.timeline.span(worker.name, "worker opened", worker.started, worker.opened)
        order = self._shipping.order(
            worker, tests, run, self._environ, self._workers(), files=files
        )
        for note in (getattr(worker.channel, "note", ""), *self._shipping.notes):
            self.summary.note(note)
        what = f"{len(tests)} tests" if files is None else "collection"
        words = getattr(worker.channel, "command", [self.backend.name])
        command, args = map(self._shipping.blotted_command, (words, order.options.args))
        self._debug(f"{worker.name}: {what} on {worker.shape}: {command}")
        self._debug(f"{worker.name}: runs there: pytest {args}")
        return order

    # collection there

    def gather(self, shape: Shape, files: list[str]) -> Worker:
        """Start a worker that collects these files, and then waits to be told its tests.

        :raises FarSideError: where none is to be had.
        """
        run = orders.Run(0, 0)
        return self.opened().open(shape, lambda worker: self._make_order(worker, [], run, files))

    def hand_on(self, worker: Worker, said: list[Said]) -> None:
        """Let a worker that has collected run the tests of its shape."""
        self.opened().keep(worker, said)

    def explain(self, text: str, *, ends: bool = False) -> list[str]:
        """Say what a failure there comes from; see :meth:`Explaining.explain`."""
        return self.failures.explain(text, self.replayer.far_root, ends=ends)

    def _debug(self, text: str) -> None:
        if self._settings.debug:
            said = self._shipping.blotted(text)
            terminal.debug(self._config, f"+{time.monotonic() - self._began:.3f} s  {said}")

    def _workers(self) -> int:
        """Say how many workers the session has."""
        return max(sum(len(lane.members) for lane in self.lanes.values()), 1)

    def is_too_large(self, lane: Serves) -> bool:
        """Refuse at once what this far side can never offer."""
        capacity = self.backend.capacity
        if capacity is None or lane.shape.count <= capacity:
            return False
        lane.give_up(f"{lane.shape} asked for, and {self.backend.name} has {capacity}")
        return True

    def start(
        self,
        lane: Serves,
        tests: list[Shipped],
        failures: int,
        *,
        last: bool,
        following: Following = None,
    ) -> None:
        """Start tests of a lane, unless a limit of the run is reached; see :meth:`Lane.start`."""
        self._look_at_limit()
        if not self._expired and (refused := self.spending.refuses_tests(lane.shape)):
            lane.expire(refused, LAST_LOOK)
        lane.start(tests, failures, last=last, following=following)

    def pump(self, timeout: float) -> bool:
        """Take in what has come; say whether anything had.

        :param timeout: seconds to wait for it.
        """
        controller = self.opened()
        self.pass_on_words()
        said = self.desk.next(controller, timeout)
        found = said is not None
        until = time.monotonic() + TICK
        while said is not None:
            self._look_at_limit()
            with self.interrupts.held():
                self.news.take(said, controller)
                self._turn()
            more = len(self.replayer.ready) < AT_ONCE and time.monotonic() < until
            said = self.desk.next(controller, 0) if more else None
        self._look_at_limit()
        self._expire_silent()
        self._turn()
        return found

    def pass_on_words(self) -> None:
        """Say what the backend has to say while a worker is on its way."""
        for text in self.backend.told() if isinstance(self.backend, Tells) else ():
            (terminal.head if isinstance(text, Heading) else terminal.say)(self._config, text)
            self.summary.show(text.page if isinstance(text, Heading) else "")

    def _turn(self) -> None:
        for lane in self.lanes.values():
            if isinstance(lane, Pool):
                lane.turn()

    def capacity(self) -> int | None:
        """Say how many GPUs all lanes share; ``None`` where each worker has a host of its own.

        Of one host that has not spoken yet nothing is known: a single lane starts there.
        """
        if self.backend.capacity is not None or not self.backend.one_host:
            return self.backend.capacity
        hellos = [w.hello for w in self.opened().workers if w.hello is not None]
        if not hellos:
            return 0
        return len(hellos[0].gpus) if hellos[0].pretend is None else hellos[0].pretend

    def in_use(self) -> int:
        """Say how many GPUs tests have now."""
        return sum(lane.in_use for lane in self.lanes.values())

    def widen(self) -> None:
        """Let lanes of one shape start further workers, where GPUs are left."""
        for lane in self.lanes.values():
            if isinstance(lane, Pool) and lane.busy:
                lane.widen(self._room(lane))

    def _room(self, pool: Pool) -> int | None:
        """Say how many more workers of a shape there are GPUs for; ``None`` for any number."""
        capacity, count = self.capacity(), pool.shape.count
        if capacity is None or not count:
            return None
        self.summary.note(what_fits(self._width, pool.shape, capacity, self.backend.name))
        return max(capacity - self.in_use(), 0) // count

    def _expire_silent(self) -> None:
        """Wait for no worker for ever that should have said hello at once."""
        now = time.monotonic()
        for lane in self._each_lane():
            worker = lane.worker
            if worker is None or worker.hello is not None or not self.backend.prompt:
                continue
            if now - worker.started > SILENCE:
                self._drop(lane, worker)
                lane.lose(f"{worker.name} said no hello within {SILENCE:.0f} s", retry=False)

    def _each_lane(self) -> Iterator[Lane]:
        """Give the lanes that each serve one worker."""
        for served in self.lanes.values():
            yield from served.members

    def _drop(self, lane: Lane, worker: Worker) -> None:
        threading.Thread(target=worker.channel.stop, daemon=True).start()
        lane.worker = None

    def refusals(self) -> list[Refusal]:
        """Give, once each, why the far side can't serve this session at all."""
        return endings.refusals(self.lanes.values(), self.backend.name, self.explain)

    def end_where_a_test_did(self) -> None:
        """End the session as a shipped test has asked for.

        :raises KeyboardInterrupt: or what ``pytest.exit`` raises.
        """
        endings.end(self.lanes.values(), failed=bool(self.summary.causes))

    # the limit of the run

    def _set_limit(self) -> None:
        """Let the clock run; a thread of its own minds it, since a local test may take long."""
        assert self.controller is not None
        own = self.backend.run_limit if isinstance(self.backend, Tells) else 0.0
        seconds = self._settings.run_timeout or own
        clock = self._clock = RunLimit(self.controller, seconds, lambda: self.spending.gone)
        self._limit = clock.text
        self.spending.watch(self.controller, lambda late: clock.end(self.spending.text, late))

    def _ends_at(self) -> float:
        """Say when the first limit of the run is reached, as far as that is known."""
        return min(self._deadline, float("inf") if self._clock is None else self._clock.deadline)

    def _look_at_limit(self) -> None:
        """At the limit: nothing starts any more, and who says nothing is not waited for."""
        now = time.monotonic()
        if self._ends:
            return
        if now < self._ends_at() and not self._expired and self.spending.reached():
            self._deadline, self._limit = now, self.spending.text
        if now < self._ends_at():
            return
        late = now > self._ends_at() + LAST_LOOK + 1.0
        for served in () if self._expired else self.lanes.values():
            served.expire(self._limit, LAST_LOOK)
        for lane in self._each_lane() if self._expired and late else ():
            if lane.busy and lane.worker is not None:
                self.summary.fail(f"{lane.worker.name} has not ended, although {self._limit}")
                self._drop(lane, lane.worker)
                lane.end_at_limit()
        self._expired = True

    # the end

    def finish(self) -> None:
        """Let every worker end in good order, and take in its last words.

        A hook at the end of a far session may take as long as a test; who was told to stop may not.
        """
        began, now = self.desk.clock(), time.monotonic()
        limit = self._settings.timeout + CLOSING if self._settings.timeout else float("inf")
        limit = min(limit, max(self._ends_at() - now, CLOSING))
        limit = min(limit, self.spending.seconds_left() + CLOSING)
        self._ends = True
        for lane in self.lanes.values():
            lane.finish()
        if self.controller is not None:
            self.controller.dismiss()
        if self._await_ends(began + CLOSING, everybody=True):
            return
        leaving = (lane.worker for lane in self._each_lane() if lane.leaves)
        names = ", ".join(worker.name for worker in leaving if worker)
        if names:
            terminal.say(self._config, f"waiting for the end of the far session on {names}")
        self._await_ends(began + limit, everybody=False)
        for lane in self.lanes.values():
            lane.wait_no_more(f"it has not ended after {limit:g} s")
        for worker in self.controller.living() if self.controller is not None else []:
            if worker.limit:
                self.summary.fail(f"{worker.name} has not ended, although {worker.limit}")

    def _await_ends(self, until: float, *, everybody: bool) -> bool:
        """Take in last words; say whether all workers have ended.

        :param everybody: whether to wait also for those that were told to stop.
        """
        controller = self.controller
        while controller is not None and controller.living():
            leaving = everybody or any(lane.leaves for lane in self.lanes.values())
            if self.desk.clock() >= until or not leaving:
                return False
            self.pump(TICK)
        return True

    def interrupt(self, grace: float, *, replay: bool) -> None:
        """Let the far side tear down within ``grace`` seconds, and keep what arrives.

        :param replay: whether to show it as well.
        """
        controller = self.controller
        if controller is None or not any(worker.hello for worker in controller.workers):
            return
        self.desk.close()
        for lane in self.lanes.values():
            lane.stop(grace)
        deadline = time.monotonic() + grace + 1.0
        while controller.living() and time.monotonic() < deadline:
            said = self.desk.next(controller, TICK)
            with self.interrupts.held():
                if said is not None:
                    self.news.take(said, controller)
                self._turn()
                if replay:
                    self.replayer.replay_ready()
        self.replayer.ready += self.larger.release()
        if replay:
            self.replayer.replay_ready()
        for worker in controller.living():
            late = f"{worker.name} had not ended {grace + 1:g} s after Ctrl-C: it was cut off"
            self.summary.note(late)

    def close(self) -> None:
        """Leave no worker behind; see :meth:`Controller.close`."""
        if not self._shipping.sender.worker:
            self._durations.keep()
        self.desk.close()
        if self._clock is not None:
            self._clock.close()
            for late in self._clock.late:
                self.summary.fail(late)
        if self.controller is not None:
            self.controller.close()
            self.pass_on_words()
            self.summary.left = self.spending.left()
        self.spending.conclude(self.summary)
        self._shipping.remember()
        self.summary.commit = self.summary.commit or self._shipping.commit()
        self.news.covered.close(contexts=bool(self._config.getoption("cov_context", None)))
        for note in (*self._artifacts.close(), *self.news.written.close()):
            self.summary.note(note)
        self.summary.artifacts = self._artifacts.count
        self.summary.artifact_names = self._artifacts.names()
        self.summary.artifacts_dir = str(self._artifacts.root)
