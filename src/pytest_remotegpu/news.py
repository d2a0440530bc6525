"""What the session does with events that concern it more than one test: output, files, values, errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import cloudpickle
import pytest

from pytest_remotegpu import terminal
from pytest_remotegpu.collection import Collection
from pytest_remotegpu.controller import Controller, Lost, Said, Worker
from pytest_remotegpu.errors import ProtocolError, RemoteGpuError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.lanes import Lane
from pytest_remotegpu.outputs import Artifacts
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.replay import Replayer
from pytest_remotegpu.shipping import Shipping
from pytest_remotegpu.summary import RunSummary

__all__ = ["News"]


class News:
    """Takes in what workers say and hands it to whom it concerns.

    :param debug: receives lines for ``--remote-debug``.
    """

    def __init__(  # noqa: PLR0913 -- it stands between all of these
        self,
        config: pytest.Config,
        lanes: Mapping[Shape, Lane],
        *,
        replayer: Replayer,
        artifacts: Artifacts,
        collection: Collection,
        shipping: Shipping,
        summary: RunSummary,
        debug: Callable[[str], None],
    ) -> None:
        self._config = config
        self._lanes = lanes
        self._replayer = replayer
        self._artifacts = artifacts
        self._collection = collection
        self._shipping = shipping
        self._summary = summary
        self._debug = debug
        self._live = terminal.LiveOutput(config)
        self._failed_files: set[str] = set()
        self.collect_errors = 0

    def take(self, said: Said, controller: Controller) -> None:
        """Take in one piece of news; a worker that breaks the protocol is ended and its tests are errors."""
        lane = next((lane for lane in self._lanes.values() if lane.worker is said.worker), None)
        if isinstance(said.what, Lost):
            self._live.end(said.worker.name)
        if lane is None:
            return
        try:
            if isinstance(said.what, Hello | Lost):
                lane.take(said.what)
            else:
                for event in said.what:
                    self._take_event(lane, said.worker, controller, event)
        except ProtocolError as error:
            threading.Thread(target=said.worker.channel.stop, daemon=True).start()
            lane.lose(f"{said.worker.name} broke the protocol: {error}", retry=False)
        except RemoteGpuError as error:
            threading.Thread(target=said.worker.channel.stop, daemon=True).start()
            lane.lose(f"{said.worker.name} can't be served: {error}", retry=False)

    def _take_event(
        self, lane: Lane, worker: Worker, controller: Controller, event: events.Event
    ) -> None:
        match event:
            case events.Warned(item=place) if place >= 0:
                lane.open_test(place).keep_warning(event)
            case events.Warned():
                self._replayer.warn(event, "")
            case events.Live():
                self._live.write(worker.name, event.stream, event.data)
            case events.Log():
                self._take_log(worker, event)
            case events.Artifact(item=place):
                self._artifacts.take(lane.open_test(place).item.nodeid, event)
            case events.Junit(item=place):
                test = lane.open_test(place) if place >= 0 else None
                self._replayer.write_junit(test, from_text(event.name), from_text(event.value))
            case events.Wants():
                self._take_wants(lane, worker, event)
            case events.Need():
                self._take_need(worker, controller, event)
            case events.CollectFailed():
                self._take_collect_failure(event)
            case events.Note():
                self._summary.note(from_text(event.text))
            case events.Collected() | events.Phase() | events.Ended():
                self._debug(f"{worker.name}: {event!r}")
            case events.Finished():
                self._live.end(worker.name)
                lane.take([event])
            case _:
                lane.take([event])

    def _take_log(self, worker: Worker, event: events.Log) -> None:
        """Hand a record to whoever listens here: pytest's live log and log file."""
        text = f"[{worker.name}] {from_text(event.text)}"
        name, path, function = (from_text(t) for t in (event.name, event.path, event.function))
        record = logging.LogRecord(
            name, event.level, path, event.lineno, text, None, None, function
        )
        record.created = event.created
        logging.getLogger().handle(record)

    def _take_wants(self, lane: Lane, worker: Worker, event: events.Wants) -> None:
        tests = {place: lane.test(place) for place in event.items}
        values = {place: self._collection.wanted(test.item) for place, test in tests.items()}
        worker.send(orders.Values(cloudpickle.dumps(values)))

    def _take_need(self, worker: Worker, controller: Controller, event: events.Need) -> None:
        taken = self._shipping.snapshot
        if taken is None:
            raise ProtocolError("contents are asked for where no tree was sent")
        if not {entry.digest for entry in taken.entries}.issuperset(event.digests):
            raise ProtocolError("contents are asked for that are no part of the tree")
        sent = controller.supply(worker, taken.blobs(dict.fromkeys(event.digests)))
        self._summary.sent = f"sent {len(event.digests)} files, {sent / 2**10:.1f} KiB"

    def _take_collect_failure(self, event: events.CollectFailed) -> None:
        nodeid = from_text(event.nodeid)
        if nodeid in self._failed_files:
            return
        self._failed_files.add(nodeid)
        self.report_collect_error(nodeid, f"on the far side:\n{from_text(event.text)}")

    def report_collect_error(self, nodeid: str, text: str) -> None:
        """Report an error of far collection as one of collection here would be."""
        self.collect_errors += 1
        report = pytest.CollectReport(nodeid, "failed", text, [])
        self._config.hook.pytest_collectreport(report=report)
