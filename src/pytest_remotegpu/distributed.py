"""Sessions that pytest-xdist spreads over processes: each ships its tests, one process shows them.

The processes do the shipping, through :class:`Node`; the one that the user started has a
:class:`Hub`. What the former have to say goes through pytest-xdist's own reports, and as plain data
at their end. Knows pytest-xdist by the hooks and names that it documents, and does not import it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from pytest_remotegpu import conftests, cost, lifeline, remains, selection, terminal
from pytest_remotegpu.backends.base import Backend, Leaves
from pytest_remotegpu.config import Settings
from pytest_remotegpu.control import Control, header, show_summary
from pytest_remotegpu.cost import Forecast
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.far import FarSide
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.grown import FarError
from pytest_remotegpu.inplace import artifacts_root, count_files, has_run, require_gpu
from pytest_remotegpu.news import KIND, REFUSAL, UNLOADABLE, failed_collection
from pytest_remotegpu.onebyone import Answer, OneByOne, Outermost
from pytest_remotegpu.outputs import clear
from pytest_remotegpu.protocol import events, plain
from pytest_remotegpu.protocol.plain import Text, from_text, to_text
from pytest_remotegpu.replay import Replayer
from pytest_remotegpu.reports import Result
from pytest_remotegpu.shipping import Sender, Start
from pytest_remotegpu.signals import Interrupts
from pytest_remotegpu.summary import RunSummary

__all__ = ["GIVEN", "Hub", "Node"]

GIVEN: Final = "remotegpu"
"""The key of our data in ``workerinput`` and ``workeroutput``."""
SPENT: Final = "remotegpu_spent"
"""An attribute of reports: what their process has spent by then, should it not live to say more."""
MARKED: Final = "remotegpu_marked"
"""An attribute of the reports of tests that ask for a GPU, where ``--gpu-required`` counts them."""
CRASH: Final = "remotegpu_crash"
"""An attribute of the reports of errors that came up while the far side collected: their place."""
SETTLING: Final = 1.0
"""Seconds in which a process is told of one Ctrl-C, by the terminal and by the hub."""
ORPHANED: Final = 3.0
"""Seconds that a process has for its tear-downs once the user's one was killed."""
TEAR_DOWN: Final = 15.0
"""Seconds that processes have for theirs after Ctrl-C: what pytest-xdist gives them in all."""
LOOK: Final = 0.02
"""Seconds between two looks at who is there."""
HEADS: Final = "remotegpu_heads"
"""An attribute of reports: lines of the header that their process has come to know."""
CARRIED: Final = {type(None), bool, int, float, complex, bytes}
COLLECTIONS: Final = {list, tuple, set, frozenset}
"""What pytest-xdist carries between its processes, beside text and dicts."""
_WARNINGS: Final = msgspec.msgpack.Decoder(list[tuple[events.Warned, Text]])


# ---------------------------------------------------------------- in each process of pytest-xdist


class Node(Control):
    """Takes over a session in a process that pytest-xdist has started.

    :param workerinput: what pytest-xdist and the hub have to say to this process.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        backend: Backend,
        start: Start,
        workerinput: Mapping[str, Any],
    ) -> None:
        sender = Sender(
            worker=str(workerinput["workerid"]),
            workers=int(workerinput["workercount"]),
            run=str(workerinput["testrunuid"]),
            argv=list(workerinput["mainargv"]),
            gone=float(workerinput[GIVEN]["gone"]),
            ends=int(workerinput[GIVEN]["ends"]),
        )
        super().__init__(config, settings, backend, start, sender)
        self._interrupts = Interrupts(SETTLING)
        self._looping = False
        self._looped = threading.Event()
        with contextlib.suppress(OSError):  # then the session is over, and this process soon is
            lifeline.hold(workerinput[GIVEN]["lifeline"], sender.worker, self._hear)
        self._ships_to = backend
        self._kept = Path(workerinput[GIVEN]["artifacts"])
        self._usage = ""
        self._expected = Forecast(None, "")
        self._speaks = bool(workerinput[GIVEN]["speaks"])

    def _hear(self, word: bytes) -> None:
        """In a thread: end as the hub does, which may have been killed."""
        if word == lifeline.AT_ONCE:
            _die()
        if not self._looping or self._looped.is_set():
            return
        if self._interrupts.began is None:
            _interrupt_main()
        if word == lifeline.GONE and not self._looped.wait(ORPHANED):
            _die()

    def pytest_report_header(self) -> list[str]:
        """Leave that to the hub."""
        return []

    def _artifacts_root(self) -> Path:
        return self._kept

    def _far_side(self, session: pytest.Session) -> FarSide:
        far = super()._far_side(session)
        far.replayer.unknown = [] if far.replayer.unknown is None else far.replayer.unknown
        return far

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Have the hub end the session where the far side can't collect for it."""
        try:
            return (yield from super().pytest_collection(session))
        except pytest.UsageError as error:
            if self._gathering is None or self._gathering.refusal is not error:
                raise
            self._report_refusal(str(error))
            return True

    def _report_refusal(self, text: str) -> None:
        report = failed_collection("", text, REFUSAL)
        self._config.hook.pytest_collectreport(report=report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find out what goes where; the hub ends the session for an ill-formed mark."""
        try:
            self._find_shapes(session)
            self._expected = self._forecast()
        except UsageError as error:
            self._usage = str(error)
            self.shapes = [Shape() for _ in session.items]
            self._report_refusal(self._usage)

    def pytest_report_collectionfinish(self) -> list[str]:  # type: ignore[override]
        """Leave that out: nobody sees it, and one process says it for all."""
        return []

    def _speak(self, session: pytest.Session) -> None:
        """Say what a session without pytest-xdist says after its collection."""
        if self._speaks and not self._usage:
            for line in super().pytest_report_collectionfinish(session.items):
                terminal.say(self._config, line.removeprefix("remote: "), of_all=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:  # type: ignore[override]
        """Stand ready while pytest-xdist hands over one test after the other."""
        with self._interrupts:
            self._looping = True
            try:
                return (yield from self._loop(session))
            finally:
                self._looped.set()

    def _loop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        if self._runs_nothing or all(shape is None for shape in self.shapes):
            self._settle_collection()
            self._speak(session)
            return (yield)
        far = self._begin_far(session)
        try:
            self._settle_collection()
        except UsageError as error:
            self._usage = str(error)
        self._speak(session)
        far.summary.worst = self._expected.worst
        far.spending.expect(self._expected)
        sender = self._shipping.sender
        far.spending.succeed({each for each in self.shapes if each}, sender.gone, sender.ends)
        one = OneByOne(session, far)
        one.prepare(session.items, self.shapes)
        if self._usage:
            one.refuse(self._usage)
        # the last to be registered stands outside, and before, all others
        self._config.pluginmanager.register(Outermost(one), "remotegpu-outermost")
        self._config.pluginmanager.register(Answer(far.replayer), "remotegpu-answer")
        if self._settings.required:
            self._config.pluginmanager.register(Marking(self._settings), "remotegpu-marking")
        try:
            result = yield
            one.finish()
        except KeyboardInterrupt:
            one.interrupt()
            raise
        finally:
            far.close()
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_to_serializable(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, Any, Any]:
        """Make a report fit for pytest-xdist, which ends the session over what it can't carry."""
        data = yield
        if type(data) is dict and isinstance(report, pytest.TestReport):
            last = report.when != "setup" or not report.passed
            spent = self._spent() if last else None
            data = data if spent is None else {**data, SPENT: spent}
            if found := terminal.heads(self._config):
                data = {**data, HEADS: json.dumps(found)}
        if isinstance(report.longrepr, FarError):
            data[CRASH] = report.longrepr.crash
        return carriable(data)

    def _spent(self) -> str | None:
        """Say what has been spent by now; ``None`` where nobody knows of any price."""
        far = self._far if self._running else None
        workers, living = ([], []) if far is None else far.spending.so_far()
        left = None if far is None else far.spending.left()
        if far is None or (cost.total(workers) is None and left is None):
            return None
        summary = RunSummary(
            where=far.summary.where,
            real=far.summary.real,
            shapes=far.summary.shapes,
            workers=workers,
            dearest=far.spending.dearest,
            rents=far.spending.rents,
            worst=far.summary.worst,
            began=far.summary.began,
            left=left,
        )
        process, at = self._shipping.sender.worker, time.monotonic()
        words = {"process": process, "at": at, "living": living, "summary": summary.to_plain()}
        return json.dumps(words)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the hub what it can't know otherwise."""
        if self._far is None:
            return
        self._far.summary.unmet = self._far.failures.unmet()
        if not self._far.lanes:
            self._end_collectors(session)
        if not (self._far.lanes or self._ended) and self._far.summary.unmet is None:
            return
        count_files(self._config, self._far.summary)
        unknown = self._far.replayer.unknown or []
        output: dict[str, Any] = self._config.workeroutput  # type: ignore[attr-defined]
        output[GIVEN] = {
            # pytest-xdist can't carry every text
            "summary": json.dumps(self._far.summary.to_plain()),
            "warnings": msgspec.msgpack.encode([(said, to_text(id)) for said, id in unknown]),
        }

    def pytest_terminal_summary(self) -> None:  # type: ignore[override]
        """Leave that to the hub."""


def _die() -> None:
    """End this process at once; the far side notices."""
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _interrupt_main() -> None:
    """Have Ctrl-C's signal come to the main thread, out of a wait too where that can be had."""
    if sys.platform == "win32":
        signal.raise_signal(signal.SIGINT)
    else:
        os.kill(os.getpid(), signal.SIGINT)


def carriable(data: Any) -> Any:
    """Make data fit for pytest-xdist: objects become text, lone surrogates in text escapes."""
    kind = type(data)
    if kind is str:
        return data if data.isascii() else data.encode("utf-8", "backslashreplace").decode()
    if kind is dict:
        return {carriable(name): carriable(value) for name, value in data.items()}
    if kind in COLLECTIONS:
        return kind(map(carriable, data))
    return data if kind in CARRIED else carriable(plain.reduce(data, []))


class Marking:
    """Says on a report that its test asks for a GPU; the hub has the reports only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def pytest_remotegpu_result(self, item: pytest.Item, result: Result) -> None:
        """Mark what came back for a test that has the mark."""
        if selection.shape_of(item, self._settings.aliases) is not None:
            for report in result.reports:
                setattr(report, MARKED, True)


# ---------------------------------------------------------------- in the process of the user


class Hub:
    """Speaks for the whole session in the process that the user started."""

    def __init__(self, config: pytest.Config, settings: Settings, backend: Backend) -> None:
        self._config = config
        self._settings = settings
        self._backend = backend
        self._summary = RunSummary()
        self._replayer = Replayer(config, self._summary, lambda _text, _root: [])
        self._lifeline = lifeline.Lifeline()
        self._nodes: dict[str, Any] = {}
        self._heard: set[str] = set()
        self._lost: set[str] = set()
        self._ready: set[str] = set()
        self._spent: dict[str, str] = {}
        self._died: dict[str, float] = {}
        self._places: dict[str, tuple[float, int]] = {}
        self._vacant: list[tuple[float, int]] = []
        self._cleared: set[Path] = set()
        self._reports = 0
        self._errors = 0
        self._on_gpu = 0
        self._shown: set[str] = set()

    @functools.cached_property
    def _kept(self) -> Path:
        """The folder for artifacts; pytest's cache is not there yet when this object is made."""
        return artifacts_root(self._config, self._settings.artifacts)

    @property
    def summary(self) -> RunSummary:
        """What the processes have said of their far sides."""
        return self._summary

    def pytest_report_header(self) -> list[str]:
        """Name the far side, once."""
        return [*header(self._backend, self._settings), *conftests.lines(self._config)]

    def _folder(self, node: Any) -> Path:
        """Name the folder for a process's artifacts: under ``each`` every one runs every test."""
        each = self._config.getoption("dist") == "each"
        return self._kept / str(node.gateway.id) if each else self._kept

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a process of pytest-xdist that it is to ship its tests."""
        speaks = not self._nodes
        self._nodes[node.gateway.id] = node
        now = time.monotonic()
        began, ends = self._vacant.pop(0) if self._vacant else (now, 0)
        self._places[node.gateway.id] = (began, ends)
        node.workerinput[GIVEN] = {
            "artifacts": str(self._folder(node)),
            "lifeline": self._lifeline.address,
            "gone": now - began,  # a share in the limits is that of a place, whoever has it
            "ends": ends,
            "speaks": speaks,
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Take away what an earlier session left, before the first test runs."""
        self._ready.add(node.gateway.id)
        folder = self._folder(node)
        if folder not in self._cleared:
            self._summary.note(clear(folder, ids))
        self._cleared.add(folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take note of errors that came up far away, or that make the session a wrong one.

        :raises UsageError: for the latter, before any test has been reported.
        """
        crash = getattr(report, CRASH, None)
        if crash is not None:
            report.longrepr = FarError(str(report.longrepr), crash)  # type: ignore[assignment]
        kind = getattr(report, KIND, "")
        if kind in {REFUSAL, UNLOADABLE} and not self._reports:
            raise pytest.UsageError(str(report.longrepr))
        self._errors += kind not in {"", REFUSAL}  # of which each test has an error already

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the reports, and those of tests that had to run on a GPU and did."""
        self._reports += 1
        for text in json.loads(vars(report).pop(HEADS, "[]")):
            if text not in self._shown:
                self._shown.add(text)
                terminal.head(self._config, text)
        spent = vars(report).pop(SPENT, None)
        if spent is not None:
            self._spent[json.loads(spent)["process"]] = spent
        self._on_gpu += getattr(report, MARKED, False) and has_run(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Take in what a process has to say at its end; another one may come in its place."""
        place = self._places.pop(node.gateway.id, None) if error is not None else None
        if place is not None:
            self._vacant.append((place[0], place[1] + 1))
        self._take_last_words(node)

    def _take_last_words(self, node: Any) -> None:
        output = getattr(node, "workeroutput", None)
        if output is None and node.gateway.id in self._ready:
            self._lost.add(node.gateway.id)
            self._died.setdefault(node.gateway.id, time.monotonic())
        said = (output or {}).get(GIVEN)
        if said is None or node.gateway.id in self._heard:
            return
        self._heard.add(node.gateway.id)
        self._summary.add(RunSummary.from_plain(json.loads(said["summary"])))
        for event, nodeid in _WARNINGS.decode(said["warnings"]):
            self._replayer.warn(event, from_text(nodeid))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """End as Ctrl-C does when told to; and as a session whose collection failed, if it has."""
        with Interrupts():
            try:
                result = yield
            except KeyboardInterrupt:
                self._end_nodes()
                raise
        if self._errors:
            plural = "s" if self._errors != 1 else ""
            raise session.Interrupted(f"{self._errors} error{plural} during far collection")
        return result

    def _end_nodes(self) -> None:
        """Let the processes end in good order and say their last words; told again, end them."""
        self._lifeline.tell(lifeline.IN_GOOD_ORDER, self._working())
        deadline = time.monotonic() + TEAR_DOWN
        with contextlib.suppress(KeyboardInterrupt):
            while self._working() and time.monotonic() < deadline:
                time.sleep(LOOK)
        self._lifeline.tell(lifeline.AT_ONCE, self._working())
        for node in self._nodes.values():
            self._take_last_words(node)

    def _working(self) -> set[str]:
        """Name the processes that are in the midst of their tests."""
        living = self._lifeline.living() & self._ready
        return {name for name in living if not hasattr(self._nodes[name], "workeroutput")}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Take over the exit status of far sessions that failed at their end."""
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = self._summary.status
        self._count_the_dead()
        self._replayer.write_costs()
        self._replayer.write_commit()
        if self._settings.required:
            require_gpu(session, self._on_gpu)

    def _count_the_dead(self) -> None:
        """Add what processes had spent that did not live to say so, as far as that is known."""
        silent = sorted(self._lost - self._heard)
        told = [name for name in silent if name in self._spent]
        for name in told:
            words = json.loads(self._spent[name])
            found = RunSummary.from_plain(words["summary"])
            found.last(max(self._died[name] - words["at"], 0.0), words["living"])
            self._summary.add(found)
        if len(told) < len(silent) and isinstance(self._backend, Leaves):
            self._summary.left = [*(self._summary.left or ()), *remains.UNKNOWN]
        if cost.total(self._summary.workers) is None:
            return
        unknown = ", ".join(name for name in silent if name not in told)
        if told:
            who = f"costs of {', '.join(told)}, which died"
            self._summary.note(f"{who}, count until then, as far as it had told them")
        if unknown:
            self._summary.note(f"costs are incomplete: {unknown} did not live to tell theirs")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the closing sections, once."""
        if self._heard or self._summary.workers:
            show_summary(terminalreporter, self._settings, self._summary)

    def pytest_unconfigure(self) -> None:
        """Let go of the processes; none should be left."""
        self._lifeline.close()
