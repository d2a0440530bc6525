"""What the session does with events that are not one test's alone: output, files, values, errors.

Hands the others to their lane; must not decide what becomes of a test.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import cloudpickle
import pytest
from msgspec.structs import replace

from pytest_remotegpu import software, terminal
from pytest_remotegpu.backends.base import Prepares
from pytest_remotegpu.collection import Collection
from pytest_remotegpu.controller import Controller, Lost, Notice, Said, Worker
from pytest_remotegpu.covered import Covered
from pytest_remotegpu.desk import Desk
from pytest_remotegpu.errors import ProtocolError, RemoteGpuError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.incoming import Incoming
from pytest_remotegpu.lanes import Lane
from pytest_remotegpu.outputs import Artifacts
from pytest_remotegpu.pool import Serves
from pytest_remotegpu.protocol import events, inventory, orders
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.replay import Replayer
from pytest_remotegpu.shipping import Shipping
from pytest_remotegpu.spending import Spending
from pytest_remotegpu.timeline import Timeline
from pytest_remotegpu.written import Written

__all__ = ["FAR_ERROR", "KIND", "REFUSAL", "UNLOADABLE", "News", "failed_collection"]

MILESTONES: Final = (events.Collected, events.StretchEnded, events.StartFailed, events.Ended)

MOST_FAILED_FILES: Final = 200
MOST_ASKED: Final = 3
"""How often a far side may ask for one content."""

KIND: Final = "remotegpu_kind"
"""An attribute of reports on errors of no file that was collected here; one of the next three."""
FAR_ERROR: Final = "collection"
REFUSAL: Final = "refusal"
"""The far side, or the mark of a test, makes the whole session one that can't be meant."""
UNLOADABLE: Final = "unloadable"
"""The same, since its conftests or plugins don't load there."""


class News:
    """Takes in what workers say and hands it to whom it concerns.

    :param debug: receives lines for ``--remote-debug``.
    :ivar collect_errors: how many errors of far collection were reported.
    """

    def __init__(  # noqa: PLR0913 -- each is a thing of its own that news may concern
        self,
        config: pytest.Config,
        lanes: Mapping[Shape, Serves],
        *,
        replayer: Replayer,
        artifacts: Artifacts,
        collection: Collection,
        shipping: Shipping,
        timeline: Timeline,
        spending: Spending,
        desk: Desk,
        debug: Callable[[str], None],
    ) -> None:
        self._config = config
        self._lanes = lanes
        self._replayer = replayer
        self._artifacts = artifacts
        self._collection = collection
        self._shipping = shipping
        self._summary = replayer.summary
        self._timeline = timeline
        self._spending = spending
        self._desk = desk
        self._debug = debug
        self.covered = Covered([str(config.rootpath), *sys.path], lambda: shipping.measures)
        self.written = Written(lambda: shipping.folders, shipping.max_artifact)
        self._live = terminal.LiveOutput(config)
        self._incoming = Incoming(config)
        config.pluginmanager.register(self._incoming, terminal.MOVING)
        self._failed_files: set[str] = set()
        self._asked: set[tuple[str, str]] = set()
        self._needed: Counter[tuple[str, str]] = Counter()
        self._waits: dict[str, str] = {}
        self._properties: dict[tuple[str, str], Counter[str]] = {}
        self.collect_errors = 0
        self._headed = False
        self._handlers: dict[type, Callable[[Lane, Worker, Controller, Any], None]] = {
            events.Warned: self._take_warning,
            events.Live: self._take_live,
            events.Log: self._take_log,
            events.Started: self._take_start,
            events.Artifact: self._take_artifact,
            events.Dropped: self._drop_artifact,
            events.Covered: lambda _l, _w, _c, event: self.covered.take(event),
            events.Junit: self._take_junit,
            events.Written: self._take_written,
            events.Wants: self._take_wants,
            events.Need: self._take_need,
            events.SessionEnded: self._take_session_end,
            events.CollectFailed: self._take_collect_failure,
            events.Note: self._take_note,
            events.Collected: self._take_collected,
            events.Waiting: self._take_waiting,
            events.Leased: self._take_lease,
            events.Phases: lambda *_: None,
            events.Attached: self._take_debugger,
            events.Screen: self._take_debugger,
            events.Detached: self._take_debugger,
            inventory.Has: lambda _l, _w, _c, event: shipping.failures.take(event),
            events.StartFailed: self._take_start_failure,
            events.Ended: self._take_ended,
        }
        if shipping.shows_live:
            self._handlers[events.Finished] = self._take_finish

    def take(self, said: Said, controller: Controller) -> None:
        """Take in one piece of news.

        A worker that breaks the protocol is ended, and its tests are errors.
        """
        lanes = (lane for served in self._lanes.values() for lane in served.members)
        lane = next((lane for lane in lanes if lane.worker is said.worker), None)
        if isinstance(said.what, Lost):
            self._live.end(said.worker.name)
            self._incoming.end(said.worker.name)
            self._desk.gone(said.worker)
        self._timeline.take(said)
        self.tell(said)
        if lane is None:
            return
        if isinstance(said.what, Lost) and said.what.reason:
            self._see_cut(lane, said.worker)
        try:
            if isinstance(said.what, Hello | Notice | Lost):
                lane.take(said.what)
                self._look_at_software(lane, said.what, controller)
            else:
                for event in said.what:
                    self._spending.before(lane.test, event, said.at)
                    self._take_event(lane, said.worker, controller, event)
                    self._spending.after(lane.test, event, said.at)
        except ProtocolError as error:
            threading.Thread(target=said.worker.channel.stop, daemon=True).start()
            lane.lose(f"{said.worker.name} broke the protocol: {error}", retry=False)
        except RemoteGpuError as error:
            threading.Thread(target=said.worker.channel.stop, daemon=True).start()
            lane.lose(f"{said.worker.name} can't be served: {error}", retry=False)

    def _look_at_software(
        self, lane: Lane, what: Hello | Notice | Lost, controller: Controller
    ) -> None:
        """Keep what a far side is made of, and say where an environment of its own differs."""
        if not isinstance(what, Hello):
            return
        backend = controller.backend
        self._shipping.failures.meet(what, made=isinstance(backend, Prepares))
        self._summary.equip(software.in_words(what.extra))
        if not self._headed and lane.refusal is None:
            self._headed = True
            real = bool(what.gpus) and what.pretend is None
            terminal.head(
                self._config, software.heading(what.extra, real=real, elsewhere=backend.ships_tree)
            )
        if backend.ships_tree:
            self._summary.note(software.differences(software.installed(), what.extra))

    def tell(self, said: Said) -> None:
        """Write the timeline that ``--remote-debug`` asks for, once: what ends a phase there."""
        told: list[Any]
        if said.told:
            told = []
        elif isinstance(said.what, list):
            told = [event for event in said.what if isinstance(event, MILESTONES)]
        else:
            told = [said.what]
        for what in told:
            self._debug(f"{said.worker.name}: {what!r}")

    def _take_event(
        self, lane: Lane, worker: Worker, controller: Controller, event: events.Event
    ) -> None:
        """Hand an event to the lane, or to the method for its kind."""
        if isinstance(event, events.Finished | events.Crashed):
            self._desk.ended(worker)
        handler = self._handlers.get(type(event))
        if handler is None:
            lane.take([event])
        else:
            handler(lane, worker, controller, event)

    def _take_warning(self, lane: Lane, _w: Worker, _c: Controller, event: events.Warned) -> None:
        if event.item >= 0:
            lane.open_test(event.item).keep_warning(event)
        else:
            self._replayer.warn(event, "")

    def _take_live(self, _l: Lane, worker: Worker, _c: Controller, event: events.Live) -> None:
        if not self._shipping.shows_live:
            self._replayer.replay_ready()  # what is shown follows what came before it
        self._live.write(worker.name, event.stream, event.data)

    def _take_debugger(self, lane: Lane, worker: Worker, _c: Controller, event: Any) -> None:
        """Lend a debugger the terminal once all is shown that came before; show what it says."""
        name = ""
        if isinstance(event, events.Attached):
            name = lane.open_test(event.item).item.nodeid if event.item >= 0 else ""
            self._live.end(worker.name)
            self._replayer.replay_ready()
        self._desk.take(worker, event, name)

    def _take_finish(self, lane: Lane, worker: Worker, _c: Controller, event: events.Event) -> None:
        self._live.end(worker.name)
        lane.take([event])
        self._replayer.replay_ready()

    def _take_start(self, lane: Lane, worker: Worker, _c: Controller, event: Any) -> None:
        """Let a test begin; where another worker had it before, without what came from there."""
        lane.take([event])
        self._artifacts.begin(lane.test(event.item).item.nodeid, worker.nonce)

    def _drop_artifact(
        self, lane: Lane, worker: Worker, _c: Controller, event: events.Dropped
    ) -> None:
        self._artifacts.drop(lane.open_test(event.item).item.nodeid, event, worker.nonce)
        self._incoming.end(worker.name)

    def _take_artifact(
        self, lane: Lane, worker: Worker, _c: Controller, event: events.Artifact
    ) -> None:
        nodeid = lane.open_test(event.item).item.nodeid
        self._artifacts.take(nodeid, event, worker.nonce)
        self._incoming.take(worker.name, nodeid, len(event.data), event.left)
        for trouble in self._artifacts.troubles:
            self._summary.note(trouble)

    def _take_written(self, _l: Lane, w: Worker, _c: Controller, event: events.Written) -> None:
        self.written.take(w.name, event)

    def _take_junit(self, lane: Lane, worker: Worker, _c: Controller, event: events.Junit) -> None:
        name, value = from_text(event.name), from_text(event.value)
        if event.item >= 0:
            lane.open_test(event.item).keep_attribute(name, value)
        elif self._is_new_property(worker, name, value):
            self._replayer.write_junit(None, name, value)

    def _is_new_property(self, worker: Worker, name: str, value: str) -> bool:
        """Say whether no other worker has said this of the suite; session fixtures do in each."""
        said = self._properties.setdefault((name, value), Counter())
        most = max(said.values(), default=0)
        said[worker.name] += 1
        return said[worker.name] > most

    def _take_session_end(
        self, _l: Lane, worker: Worker, _c: Controller, event: events.SessionEnded
    ) -> None:
        """Keep an exit status that no test accounts for: the session here must not be green."""
        text = f"the session on {worker.name} failed at its end: {from_text(event.text)}"
        self._summary.fail(text, event.status)

    def _take_ended(self, lane: Lane, worker: Worker, _c: Controller, event: events.Ended) -> None:
        if from_text(event.text) == events.CUT_SHORT:
            self._see_cut(lane, worker)

    def _see_cut(self, lane: Lane, worker: Worker) -> None:
        """Let no session be green whose tests have passed and whose end a limit has cut short."""
        if worker.limit and all(test.done for test in lane.tests):
            text = f"the end of the session on {worker.name} was cut short: {worker.limit}"
            self._summary.fail(text)

    def _take_start_failure(
        self, lane: Lane, _w: Worker, _c: Controller, event: events.StartFailed
    ) -> None:
        """Let a file that could not be begun with be one of here, with why it was not sent."""
        text = self._shipping.failures.of_start(from_text(event.text))
        lane.take([replace(event, text=to_text(text))])

    def _take_note(self, _l: Lane, _w: Worker, _c: Controller, event: events.Note) -> None:
        self._summary.note(from_text(event.text))

    def _take_collected(
        self, _l: Lane, _w: Worker, _c: Controller, event: events.Collected
    ) -> None:
        self._replayer.far_root = from_text(event.root)

    def _take_waiting(
        self, lane: Lane, worker: Worker, _c: Controller, event: events.Waiting
    ) -> None:
        """Say for whom the tests wait: once, and again where that changes."""
        text = from_text(event.text)
        if text and self._waits.get(worker.name) != text:
            terminal.say(self._config, f"waiting for {lane.shape}: {text}")
        self._waits[worker.name] = text

    def _take_lease(self, lane: Lane, _w: Worker, _c: Controller, event: events.Leased) -> None:
        cards = [from_text(card) for card in event.cards]
        lane.lease(cards)
        self._summary.use(cards)

    def _take_log(self, _l: Lane, worker: Worker, _c: Controller, event: events.Log) -> None:
        """Hand a record to whoever listens here: pytest's live log and log file."""
        text = f"[{worker.name}] {from_text(event.text)}"
        name, path, function = (from_text(t) for t in (event.name, event.path, event.function))
        record = logging.LogRecord(
            name, event.level, path, event.lineno, text, None, None, function
        )
        record.created = event.created
        logging.getLogger().handle(record)

    def _count_once(self, worker: Worker, question: str) -> None:
        if (worker.name, question) in self._asked:
            raise ProtocolError(f"{question} are asked for twice")
        self._asked.add((worker.name, question))

    def _take_wants(self, lane: Lane, worker: Worker, _c: Controller, event: events.Wants) -> None:
        self._count_once(worker, "values")
        tests = {place: lane.test(place) for place in event.items}
        values = {place: self._collection.wanted(test.item) for place, test in tests.items()}
        worker.send(orders.Values(cloudpickle.dumps(values)))

    def _take_need(self, _l: Lane, worker: Worker, _c: Controller, event: events.Need) -> None:
        """Send what the far side lacks; it may ask again for what did not last there."""
        for digest in event.digests:
            self._needed[worker.name, digest] += 1
            if self._needed[worker.name, digest] > MOST_ASKED:
                raise ProtocolError("the same contents are asked for again and again")
        self.supply(event.digests, worker)

    def supply(self, digests: list[str], worker: Worker) -> None:
        """Send a worker contents that it lacks.

        :raises ProtocolError: for contents that are no part of what was announced.
        """
        sent = self._shipping.supply(digests, worker.send, self._summary.note)
        self._summary.sent_files += sent.files
        self._summary.sent_bytes += sent.size

    def _take_collect_failure(
        self, _l: Lane, _w: Worker, _c: Controller, event: events.CollectFailed
    ) -> None:
        nodeid = from_text(event.nodeid)
        if nodeid in self._failed_files or event.skipped:  # each test says so of itself
            return
        if len(self._failed_files) >= MOST_FAILED_FILES:
            raise ProtocolError(f"more than {MOST_FAILED_FILES} files failed to be collected there")
        self._failed_files.add(nodeid)
        text = from_text(event.text)
        why = self._shipping.failures.explain(text, self._replayer.far_root)
        self.report_collect_error(nodeid, "\n".join(["on the far side:", text, *why]))

    def report_collect_error(self, nodeid: str, text: str, kind: str = FAR_ERROR) -> None:
        """Report an error of far collection as one of collection here would be.

        :param kind: for whoever gets the report from another process.
        """
        self.collect_errors += 1
        report = failed_collection(nodeid, text, kind)
        self._config.hook.pytest_collectreport(report=report)


def failed_collection(nodeid: str, text: str, kind: str) -> pytest.CollectReport:
    """Make the report of an error that came up in no collection of this process."""
    report = pytest.CollectReport(nodeid, "failed", text, [])
    setattr(report, KIND, kind)
    return report
