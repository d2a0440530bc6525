"""From events back to pytest's reports.

Rebuilds data only: nothing that came from far away runs here, or says what to import.
"""

from __future__ import annotations

import builtins
import math
import re
import warnings
from itertools import pairwise
from typing import Any, Final

import pytest
from msgspec import Struct, field

from pytest_remotegpu import benchmarked, rebuilt
from pytest_remotegpu.attempts import RERUN
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, packing, plain
from pytest_remotegpu.protocol.plain import from_text, to_text

__all__ = ["BILLED", "RERUN", "Result", "Shipped", "synthesised_warning"]

BILLED: Final = "remotegpu_billed"
"""An attribute of reports: what was charged for their test, for whoever writes the run as data."""
ATTEMPT: Final = "rerun"
"""An attribute that it gives to reports: the number of the attempt, from 0."""
OUTCOMES: Final[frozenset[str]] = frozenset({"passed", "failed", "skipped", RERUN})
"""Pytest's own, and the one that pytest-rerunfailures adds; a report of any other decides nothing.
"""
PHASES: Final = frozenset({"setup", "call", "teardown"})
MOST_PENDING: Final = 256 * 2**20
"""Bytes that one test may keep waiting here; workers cut their output well below."""
MOST_MEMORY: Final = 2**50
"""Bytes that the cards of one host may have together."""
BARE: Final = {"$report_type": "TestReport"}
"""What there is on a report beyond its phase, where that is nothing."""
PASSED: Final = to_text("passed")
READERS: Final = pytest.StashKey[tuple[list[Any], bool]]()
"""Who makes reports of data, and whether that is pytest alone."""
BUILTIN: Final = {
    f"builtins.{name}": value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Warning)
} | {
    f"pytest.{name}": value
    for name, value in vars(pytest).items()
    if isinstance(value, type) and issubclass(value, Warning)
}
"""Warning classes that exist on every side; any other is made up from its name."""


class Result(Struct):
    """What came back for one test.

    :ivar worker: the worker's id.
    :ivar shape: the GPUs that it offered.
    :ivar gpu: those GPUs in words.
    :ivar reports: pytest's reports, in order.
    """

    worker: str
    shape: Shape
    gpu: str
    reports: list[pytest.TestReport] = field(default_factory=list)


class Attempt:
    """What one run of a test has said so far; made when it starts, let go once it is shown."""

    __slots__ = (
        *("anew", "attempts", "attributes", "begins", "benchmarks", "bytes", "compared"),
        *("is_over", "keywords", "measured", "pieces", "reports", "sections", "settled"),
        "warnings",
    )

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []
        self.warnings: list[events.Warned] = []
        self.attributes: list[tuple[str, str]] = []
        self.anew: set[int] = set()
        self.benchmarks: list[dict[str, Any]] = []
        self.settled: list[tuple[pytest.TestReport, tuple[str, str]]] = []
        self.compared: dict[int, tuple[str, str, str]] = {}
        self.sections: list[tuple[str, str]] = []
        self.pieces: list[bytes] = []
        self.keywords: dict[str, Any] = {}
        self.bytes = 0
        self.measured = False
        self.is_over = self.begins = False
        self.attempts = 0

    def next(self) -> Attempt:
        """Make the one that follows, which has all that was said before it."""
        made = Attempt()
        made.reports, made.warnings, made.anew = self.reports, self.warnings, self.anew
        made.attributes, made.settled, made.bytes = self.attributes, self.settled, self.bytes
        made.benchmarks, made.compared = self.benchmarks, self.compared
        made.begins = True
        made.attempts = sum(_counts(report) and report.when == "setup" for report in self.reports)
        return made

    def append(self, report: pytest.TestReport) -> None:
        """Keep a report; the first one after an attempt that ended its process begins anew."""
        if self.begins:
            self.begins = False
            self.anew.add(id(report))
        self.reports.append(report)

    def weigh(self, size: int) -> None:
        """Count bytes that wait here.

        :raises ProtocolError: for too many of them.
        """
        self.bytes += size
        if self.bytes > MOST_PENDING:
            raise ProtocolError(f"more than {MOST_PENDING} bytes came for one test")


NOTHING: Final = Attempt()
"""Stands in for the attempt of a test that has none; never written to."""


class Shipped(Struct, eq=False):
    """One test that was sent away, and what has come of it so far.

    :ivar started: whether it has begun there.
    :ivar done: whether it has its verdict.
    :ivar losses: how many workers were lost while it ran; ``preempted``, how many taken away;
        ``due``, how many were lost as it was to begin next, so that it may have.
    :ivar properties: what is added to its reports' user properties: backend, GPUs and worker.
    :ivar verdict: what it came to where it could say nothing itself; see :meth:`fail`.
    :ivar timeout: seconds that it may take, where its own mark says so; 0 for no limit.
    :ivar alone: whether it is to have a process for itself.
    """

    item: pytest.Item
    shape: Shape
    backend: str = ""
    started: bool = False
    done: bool = False
    losses: int = 0
    preempted: int = 0
    due: int = 0
    worker: str = ""
    gpu: str = ""
    properties: tuple[tuple[str, object], ...] = ()
    timeout: float | None = None
    alone: bool = False
    verdict: str = ""
    said: Attempt = NOTHING

    def start(self, worker: str, gpu: str, properties: tuple[tuple[str, object], ...]) -> None:
        """Note that the test has begun on a worker; where it is run again, keep what it said."""
        self.started = True
        self.worker, self.gpu, self.properties = worker, gpu, properties
        self.said = self.said.next() if self.said.is_over else Attempt()

    def reset(self) -> None:
        """Forget what a lost attempt has said."""
        self.started = False
        self.said = Attempt()

    def forget(self) -> None:
        """Let go of what has been shown."""
        self.said = NOTHING

    @property
    def reports(self) -> list[pytest.TestReport]:
        """The reports so far, in order."""
        return self.said.reports

    def section(self, event: events.Section) -> None:
        """Take in a piece of output.

        :raises ProtocolError: for pieces out of order, or too many of them.
        """
        said = self.said
        said.weigh(len(event.text) + len(event.name) + 100)
        if event.index != len(said.sections):
            raise ProtocolError(
                f"section {event.index} came where section {len(said.sections)} was due"
            )
        said.pieces.append(event.text)
        if event.last:
            said.sections.append((from_text(event.name), from_text(b"".join(said.pieces))))
            said.pieces.clear()

    def keep_warning(self, event: events.Warned) -> None:
        """Keep a warning for the replay.

        :raises ProtocolError: for too many of them.
        """
        self.said.weigh(len(event.text) + len(event.path) + 100)
        synthesised_warning(event)
        for text in (event.location or ())[::2]:
            from_text(text)
        self.said.warnings.append(event)

    def keep_attribute(self, name: str, value: str) -> None:
        """Keep an attribute of the test's element in the junit file for the replay.

        :raises ProtocolError: for too many of them.
        """
        self.said.weigh(len(name) + len(value) + 100)
        self.said.attributes.append((name, value))

    def report(self, event: events.Report) -> None:
        """Take in a report.

        :raises ProtocolError: where it is none that pytest could have made.
        """
        said = self.said
        said.weigh(1000)
        if event.keywords is not None:
            said.keywords = {from_text(name): 1 for name in event.keywords}
        if event.open == BARE and event.outcome == PASSED and _is_read_by_pytest(self.item.config):
            said.append(self._bare(event))
            return
        data = packing.unpack_report(event, said.sections, said.keywords)
        data["nodeid"], data["location"] = self.item.nodeid, self.item.location
        if not plain.is_shallow(event.open):
            raise ProtocolError("a report whose data is nested too deeply")
        text_only = data.pop(packing.TEXT_ONLY, False)
        settled = data.pop(packing.SETTLED, None)
        anew = data.pop(packing.ANEW, False) is True
        measured = data.pop(packing.MEASURED, None)
        compared = data.pop(packing.COMPARED, None)
        rebuilt.clean(data)
        report = rebuilt.report(self.item.config, data)
        if text_only and isinstance(report.longrepr, str):
            report.longrepr = rebuilt.Representation(report.longrepr)  # type: ignore[assignment]
        if settled is not None:
            said.settled.append((report, rebuilt.settled(settled)))
        if measured is not None:
            said.benchmarks += benchmarked.check(measured)
        if anew:
            said.anew.add(id(report))
        if compared is not None:
            said.compared[id(report)] = rebuilt.compared(compared)
        if said.attempts and type(number := vars(report).get(ATTEMPT)) is int:
            setattr(report, ATTEMPT, number + said.attempts)
        report.user_properties = [*report.user_properties, *self.properties]
        said.append(report)

    def _bare(self, event: events.Report) -> pytest.TestReport:
        """Make a report that says no more than that a phase has passed, as pytest would."""
        times = {} if event.start is None else {"start": event.start, "stop": event.stop}
        return pytest.TestReport(
            nodeid=self.item.nodeid,
            location=self.item.location,
            keywords=self.said.keywords,
            outcome="passed",
            longrepr=None,
            when=None if event.when is None else from_text(event.when),  # type: ignore[arg-type]
            sections=packing.sections_of(event, self.said.sections),
            duration=event.duration,
            user_properties=self.properties,
            **times,  # type: ignore[arg-type]
        )

    def measure(self, event: events.Memory) -> None:
        """Add what the test did with GPU memory to the user properties of its reports.

        :raises ProtocolError: for a second word on it, or more than cards can have.
        """
        if self.said.measured:
            raise ProtocolError(f"the memory of {self.item.nodeid!r} came twice")
        if max(event.allocated, event.reserved, abs(event.leaked), event.total) > MOST_MEMORY:
            raise ProtocolError(f"more memory than cards can have: {event!r}")
        self.said.measured = True
        found = [("remotegpu_peak_allocated", event.allocated)]
        found.append(("remotegpu_peak_reserved", event.reserved))
        if event.leaked > 0:
            found.append(("remotegpu_leaked", event.leaked))
        for name, value in found:
            self.tell(name, value)

    def tell(self, name: str, value: object) -> None:
        """Add to the user properties of its reports."""
        for report in self.reports:
            report.user_properties.append((name, value))

    def complete(self) -> bool:
        """Say whether the last attempt at the test has each phase, once and in order, to its end.

        Attempts before it must have ended in a rerun, as pytest-rerunfailures reports them.
        """
        own = [report for report in self.reports if _counts(report)]
        starts = [place for place, report in enumerate(own) if report.when == "setup"]
        if not starts or starts[0] != 0:
            return False
        earlier = [own[a:b] for a, b in pairwise(starts)]
        last = own[starts[-1] :]
        reruns = all(any(report.outcome == RERUN for report in part) for part in earlier)
        return reruns and all(report.outcome != RERUN for report in last) and self._is_whole(last)

    def _is_whole(self, reports: list[pytest.TestReport]) -> bool:
        phases = [report.when for report in reports]
        called = reports[0].passed and not self.item.config.getoption("setuponly", False)
        return phases == (["setup", "call", "teardown"] if called else ["setup", "teardown"])

    def add(
        self, when: str, outcome: str, longrepr: Any, sections: list[tuple[str, str]] | None = None
    ) -> None:
        """Append a report that was made here, for a test that could not make its own."""
        if self.said is NOTHING:
            self.said = Attempt()
        self.reports.append(
            pytest.TestReport(
                nodeid=self.item.nodeid,
                location=self.item.location,
                keywords=dict.fromkeys(self.item.keywords, 1),
                outcome=outcome,  # type: ignore[arg-type]
                longrepr=longrepr,
                when=when,  # type: ignore[arg-type]
                sections=sections or (),
                user_properties=list(self.properties),
            )
        )

    def fail(
        self, text: str, sections: list[tuple[str, str]] | None = None, verdict: str = "infra"
    ) -> None:
        """Make it failed, in the phase that was running.

        :param verdict: what it came to, since that is no outcome of its own: ``crash``,
            ``timeout``, ``infra`` for want of a far side, or ``budget`` for a limit of the run.
        """
        self.verdict = verdict
        self.properties = (*self.properties, ("remotegpu_verdict", verdict))
        first = self._last_attempt()
        last = [report for report in self.reports[first:] if report.when != "teardown"]
        self.reports[first:] = last
        phases = {report.when for report in last}
        failed = any(report.when == "setup" and not report.passed for report in last)
        if "call" in phases or failed:
            self.add("teardown", "failed", text, sections)
        elif "setup" not in phases and not self.started:
            self.add("setup", "failed", text, sections)
            self.add("teardown", "passed", None)
        else:
            if "setup" not in phases:
                self.add("setup", "passed", None)
            self.add("call", "failed", text, sections)
            self.add("teardown", "passed", None)
        if self.said.begins:
            self.said.anew.add(id(self.reports[first]))
        if any(hasattr(report, ATTEMPT) for report in self.reports):
            self._number_attempts()

    def fail_once(self, text: str, sections: list[tuple[str, str]], verdict: str) -> None:
        """Make its attempt one that has failed, and after which it is run again; see :meth:`fail`.

        :param verdict: what would be its own, were it the last.
        """
        properties, first = self.properties, self._last_attempt()
        self.fail(text, sections, verdict)
        for report in self.reports[first:]:
            if report.failed:
                report.outcome = RERUN  # type: ignore[assignment]
        self.properties, self.verdict, self.started = properties, "", False
        self.said.is_over = True
        self._number_attempts()

    def _number_attempts(self) -> None:
        """Give reports that were made here the numbers that the plugin gives to its own."""
        number = -1
        for report in filter(_counts, self.reports):
            number += report.when == "setup"
            vars(report).setdefault(ATTEMPT, number)

    def _last_attempt(self) -> int:
        """Give the place of the first report of the attempt that has not come to its end."""
        own = [place for place, report in enumerate(self.reports) if _counts(report)]
        starts = [place for place in own if self.reports[place].when == "setup"]
        first = starts[-1] if starts else 0
        rerun = any(report.outcome == RERUN for report in self.reports[first:])
        ended = any(self.reports[place].when == "teardown" for place in own if place >= first)
        return len(self.reports) if rerun and ended else first

    def follow(self, first: Shipped) -> None:
        """Be the second attempt at a test of which this is the first, whose failure is a rerun."""
        said, was = self.said, first.said
        for report in was.reports:
            if report.failed and _counts(report):
                report.outcome = RERUN  # type: ignore[assignment]
        said.anew |= was.anew | {id(report) for report in said.reports[:1]}
        for name in ("reports", "warnings", "attributes", "benchmarks"):
            getattr(said, name)[:0] = getattr(was, name)
        said.compared.update(was.compared)
        for report in said.reports:
            vars(report).pop(ATTEMPT, None)
        self._number_attempts()

    def spoil_teardown(self, text: str) -> None:
        """Let its tear-down have failed, since something failed here that belongs to it."""
        last = self.reports[-1]
        if last.when == "teardown" and last.failed:
            last.sections.append(("Torn down here", text))
            return
        if last.when == "teardown":
            self.reports.pop()
        self.add("teardown", "failed", text)

    @property
    def seconds(self) -> float:
        """How long its phases took together, as far as they are numbers that can be added."""
        return sum(report.duration for report in self.reports if math.isfinite(report.duration))

    def result(self) -> Result:
        """Give what other plugins may see of it."""
        return Result(self.worker, self.shape, self.gpu, self.reports)


def _counts(report: pytest.TestReport) -> bool:
    """Say whether a report is one of a phase, and no part of a test or word of another plugin."""
    known = report.when in PHASES and report.outcome in OUTCOMES
    return known and type(report) is pytest.TestReport


def _is_read_by_pytest(config: pytest.Config) -> bool:
    """Say whether no plugin has a hand in how reports are made of data."""
    present = config.hook.pytest_report_from_serializable.get_hookimpls()
    known = config.stash.get(READERS, None)
    if known is None or known[0] != present:
        usual = all(impl.function.__module__.startswith("_pytest.") for impl in present)
        known = config.stash[READERS] = (present, usual)
    return known[1]


def synthesised_warning(event: events.Warned) -> warnings.WarningMessage:
    """Make a warning that looks like the one there; its class is made up here, never imported."""
    module, _, name = event.category.rpartition(".")
    known = BUILTIN.get(event.category) or BUILTIN.get(
        f"pytest.{name}" if module.startswith("_pytest") else ""
    )
    fit = re.sub(r"\W", "_", name)[:200] or "Warning"
    category = known or type(fit, (Warning,), {"__module__": re.sub(r"[^\w.]", "_", module)})
    text = from_text(event.text)
    return warnings.WarningMessage(
        message=Warning(text),
        category=category,
        filename=from_text(event.path),
        lineno=event.lineno,
        # never None, for which somebody here would read the file that was named there
        line="" if event.line is None else from_text(event.line),
    )
