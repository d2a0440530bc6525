"""Reports that came from afar, passed through pytest's hooks as if their tests had run here.

Knows nothing of workers or lanes; what it is given is settled.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Final

import pytest

from pytest_remotegpu import cost
from pytest_remotegpu.benchmarked import Benchmarked
from pytest_remotegpu.editors import Listeners, is_reporter
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.reports import BUILTIN, RERUN, Shipped, synthesised_warning
from pytest_remotegpu.summary import RunSummary

__all__ = ["Replayer", "looks_inside"]

MOST_WARNINGS = 1_000
"""Different warnings of collections that are remembered, and so recorded at all."""
INSTALLED: Final = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+)/", re.DOTALL)
"""Where an interpreter has what is installed, and its standard library: the last such folder."""
PHASES: Final = ("setup", "call", "teardown")
OURS = "remotegpu-controller"
"""The name of the plugin that answers."""
MISSING = "Missing on the far side"
"""The heading of what is said of files that did not travel."""


class Replayer:
    """Keeps tests that have their verdict, and replays each whole, in order of arrival.

    :param summary: is told of each.
    :ivar unknown: where it is a list, warnings that pytest-xdist can't carry go there, unrecorded.
    :param explain_missing: explains, from a failure's text and the project's folder there, which
        files it lacks that did not travel, and why.
    :param noticing: what each report is shown in: a terminal that is gone costs no further ones.
    :ivar charge: is told of each test before its reports are seen by anybody.
    :ivar far_root: the project's folder there, once it is known.
    :ivar ready: tests to replay.
    :ivar replayed: how many have been.
    """

    def __init__(
        self,
        config: pytest.Config,
        summary: RunSummary,
        explain_missing: Callable[[str, str], list[str]],
        noticing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._config = config
        self.summary = summary
        self._explain_missing = explain_missing
        self._noticing = noticing
        self._current: Shipped | None = None
        self._present: list[Any] = []
        self._caller: Callable[..., Any] = config.hook.pytest_runtest_protocol
        self._editors = Listeners(config)
        self.benchmarked = Benchmarked(config)
        config.pluginmanager.register(self.benchmarked, "remotegpu-benchmarked")
        self._warnings: set[tuple[str, ...]] = set()
        self._settled: dict[int, tuple[pytest.TestReport, tuple[str, str]]] = {}
        self.unknown: list[tuple[events.Warned, str]] | None = None
        self.charge: Callable[[Shipped], None] = lambda _test: None
        self.far_root = ""
        self.ready: list[Shipped] = []
        self.replayed = 0

    def replay_ready(self, until: Callable[[], bool] = lambda: False) -> None:
        """Replay all tests that are complete, those included that become so meanwhile.

        :param until: says after each test whether no further one is to be shown.
        """
        while self.ready:
            self._replay(self.ready.pop(0))
            if until():
                return

    def _replay(self, test: Shipped) -> None:
        """Pass a test through the hook of local tests, with our answer in the place of theirs."""
        with self.showing(test):
            self._protocol()(item=test.item, nextitem=None)

    @contextlib.contextmanager
    def showing(self, test: Shipped) -> Iterator[None]:
        """Make ready to answer for one test in the block, and do after it what comes after."""
        for report in test.reports:
            if report.failed:
                self._explain(report)
        self.charge(test)
        watched = self._config.hook.pytest_remotegpu_result
        if watched.get_hookimpls():
            watched(item=test.item, result=test.result())
        self._current = test
        self.benchmarked.add(test.item, test.said.benchmarks)
        # some terminals ask for a test's status at the session's end only
        self._settled.update((id(settled[0]), settled) for settled in test.said.settled)
        self.replayed += 1
        for name, value in test.said.attributes:
            self.write_junit(test, name, value)
        try:
            self._editors.at_hand(test.item)
            with _without_skipif(test.item):
                yield
        finally:
            self._current = None
        for warning in test.said.warnings:
            self.warn(warning, test.item.nodeid)
        self.summary.came_to(test.verdict)
        if test.worker:
            self.summary.ran(test.shape, test.item.nodeid, test.seconds)
        test.forget()

    def _explain(self, report: pytest.TestReport) -> None:
        """Say of a file that was missing there why it did not travel."""
        why = self._explain_missing(report.longreprtext, self.far_root)
        if why:
            report.sections.append((MISSING, "\n".join(why)))

    def _protocol(self) -> Callable[..., Any]:
        manager = self._config.pluginmanager
        present = manager.hook.pytest_runtest_protocol.get_hookimpls()
        if present != self._present:
            ours = manager.get_plugin(OURS)
            foreign = [
                impl.plugin
                for impl in present
                if impl.plugin is not ours
                and (not (impl.wrapper or impl.hookwrapper) or looks_inside(impl.plugin))
            ]
            self._present = present
            self._caller = manager.subset_hook_caller("pytest_runtest_protocol", foreign)
        return self._caller

    def answer(self, item: pytest.Item) -> bool | None:
        """Replay the reports of the test at hand; ``None`` for a test that runs here."""
        test = self._current
        if test is None or test.item is not item:
            return None
        hook = item.ihook
        with self._noticing():
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in test.reports:
            if id(report) in test.said.anew:
                self._announce_anew(item)
            compared = test.said.compared.get(id(report))
            if compared is not None:
                self._editors.compared(*compared)
            with self._noticing():
                hook.pytest_runtest_logreport(report=report)
            self._editors.raised(item, report)
            if report.outcome == RERUN:
                self._take_back_parts(test.reports)
        with self._noticing():
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _take_back_parts(self, reports: list[pytest.TestReport]) -> None:
        """Count no sub-tests of an attempt that is run again, as the plugin does that runs it.

        :param reports: of the test; those that have not been shown yet are counted nowhere.
        """
        parts = {id(report) for report in reports if type(report) is not pytest.TestReport}
        manager = self._config.pluginmanager
        counted: Any = getattr(manager.get_plugin("terminalreporter"), "stats", {})
        session: Any = manager.get_plugin("session")
        for name, found in list(counted.items()) if parts else ():
            kept = [report for report in found if id(report) not in parts]
            if name == "failed" and session is not None:
                session.testsfailed = max(session.testsfailed - len(found) + len(kept), 0)
            counted[name] = kept
            if not kept:  # some look only whether the name is there
                del counted[name]

    def _announce_anew(self, item: pytest.Item) -> None:
        """Say that an attempt is over and the next one begins, as the plugin has that runs it."""
        with self._noticing():
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        with self._noticing():
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)

    def settle(self, report: pytest.TestReport) -> None:
        """Let a test fail for its failed sub-tests, at the moment at which pytest does."""
        settled = self._settled.get(id(report))
        if settled is not None:
            report.outcome, report.longrepr = settled[1]  # type: ignore[assignment]

    def write_junit(self, test: Shipped | None, name: str, value: str) -> None:
        """Do what the fixtures ``record_xml_attribute`` and ``record_testsuite_property`` do."""
        for plugin in self._config.pluginmanager.get_plugins():
            if type(plugin).__name__ != "LogXML":
                continue
            if test is None:
                plugin.add_global_property(name, value)
            else:
                plugin.node_reporter(test.item.nodeid).add_attribute(name, value)

    def write_costs(self) -> None:
        """Write into the junit file what the run has cost, and each of its workers."""
        price = cost.total(self.summary.workers)
        if price is None:
            return
        self.write_junit(None, "remotegpu_cost_usd", f"{price:.6f}")
        for worker in self.summary.workers:
            if worker.usd is not None:
                name = f"remotegpu_cost_usd.{worker.name}"
                self.write_junit(None, name, f"{worker.usd:.6f}")

    def write_commit(self) -> None:
        """Record in the junit file which commit was run."""
        if self.summary.commit:
            self.write_junit(None, "remotegpu_commit", self.summary.commit)

    # warnings

    def warn(self, event: events.Warned, nodeid: str) -> None:
        """Record a warning of the far side, unless this side's own collection gave it already."""
        message = synthesised_warning(event)
        if (event.when != "runtest" or not nodeid) and not self._is_new(message):
            return
        if self.unknown is not None and not _is_carried(message):
            if len(self.unknown) < MOST_WARNINGS:
                self.unknown.append((event, nodeid))
            return
        place = event.location
        location = place and (from_text(place[0]), place[1], from_text(place[2]))
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={
                "warning_message": message,
                "when": event.when,
                "nodeid": nodeid,
                "location": location,
            }
        )

    def seen_here(self, message: Any) -> None:
        """Remember a warning of this side's own collection, which the far side's would repeat."""
        self._is_new(message)

    def is_told(self, message: Any) -> bool:
        """Say whether a warning has been shown already that is not of a test."""
        return _warning_key(message) in self._warnings

    def _is_new(self, message: Any) -> bool:
        if self.is_told(message) or len(self._warnings) > MOST_WARNINGS:
            return False
        self._warnings.add(_warning_key(message))
        return True


def looks_inside(plugin: Any) -> bool:
    """Say whether a plugin waits within its wrapper for phases, none of which runs here.

    Reporters of editors do not, and a conftest that does is of this project.
    """
    name = plugin.__name__ if isinstance(plugin, ModuleType) else type(plugin).__module__
    if is_reporter(plugin) or name.rpartition(".")[2] == "conftest":
        return False
    return all(hasattr(plugin, f"pytest_runtest_{phase}") for phase in PHASES)


def _warning_key(message: Any) -> tuple[str, str, str, str]:
    """Say by what a warning is known again that the other side gives as well.

    Each side may have an interpreter of its own: an installed file lies elsewhere there, and what
    pytest says of its configuration may stand in another line.
    """
    name, text = message.category.__name__, str(message.message)
    line = "" if name == pytest.PytestConfigWarning.__name__ else str(message.lineno)
    return name, text, INSTALLED.sub("", str(message.filename)), line


@contextlib.contextmanager
def _without_skipif(item: pytest.Item) -> Iterator[None]:
    """Take a test's ``skipif`` marks away, whose conditions this side has judged for itself.

    Reporters of editors read them, and would call a test skipped that ran on the far side.
    """
    nodes: list[pytest.Item | pytest.Class] = [item]
    nodes += [node for node in item.listchain() if isinstance(node, pytest.Class)]
    hidden = [(node, list(node.own_markers)) for node in nodes if _has_skipif(node)]
    for node, marks in hidden:
        node.own_markers[:] = [mark for mark in marks if mark.name != "skipif"]
    try:
        yield
    finally:
        for node, marks in hidden:
            node.own_markers[:] = marks


def _has_skipif(node: pytest.Item | pytest.Class) -> bool:
    return any(mark.name == "skipif" for mark in node.own_markers)


def _is_carried(warning: Any) -> bool:
    """Say whether pytest-xdist gets a warning to the user's process.

    It imports the class there by its name, and takes no lone surrogates.
    """
    texts = f"{warning.message}{warning.filename}{warning.line}"
    try:
        texts.encode()
    except UnicodeEncodeError:
        return False
    return warning.category in BUILTIN.values()
