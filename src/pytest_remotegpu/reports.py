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

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, packing, plain
from pytest_remotegpu.protocol.plain import from_text

__all__ = ["BILLED", "RERUN", "Result", "Shipped", "synthesised_warning"]

BILLED: Final = "remotegpu_billed"
"""An attribute of reports: what was charged for their test, for whoever writes the run as data."""
RERUN: Final[str] = "rerun"
OUTCOMES: Final[frozenset[str]] = frozenset({"passed", "failed", "skipped", RERUN})
"""Pytest's own, and the one that pytest-rerunfailures adds; a report of any other decides nothing.
"""
PHASES: Final = frozenset({"setup", "call", "teardown"})
OWN_FIELDS: Final = frozenset(
    {"nodeid", "location", "keywords", "outcome", "longrepr", "when", "sections", "duration"}
    | {"start", "stop", "user_properties", "$report_type", "_report_type", "_subtest.context"}
)
MOST_PENDING: Final = 256 * 2**20
"""Bytes that one test may keep waiting here; workers cut their output well below."""
MOST_MEMORY: Final = 2**50
"""Bytes that the cards of one host may have together."""
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
        *("attributes", "bytes", "compared", "keywords", "measured", "pieces", "reports"),
        *("sections", "settled", "warnings"),
    )

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []
        self.warnings: list[events.Warned] = []
        self.attributes: list[tuple[str, str]] = []
        self.settled: dict[int, tuple[str, str]] = {}
        self.compared: dict[int, tuple[str, str, str]] = {}
        self.sections: list[tuple[str, str]] = []
        self.pieces: list[bytes] = []
        self.keywords: dict[str, Any] = {}
        self.bytes = 0
        self.measured = False

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
        """Note that the test has begun on a worker."""
        self.started = True
        self.worker, self.gpu, self.properties = worker, gpu, properties
        self.said = Attempt()

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
        data = packing.unpack_report(event, said.sections, said.keywords)
        data["nodeid"], data["location"] = self.item.nodeid, self.item.location
        if not plain.is_shallow(event.open):
            raise ProtocolError("a report whose data is nested too deeply")
        text_only = data.pop(packing.TEXT_ONLY, False)
        settled = data.pop(packing.SETTLED, None)
        compared = data.pop(packing.COMPARED, None)
        _show_parts(data)
        _drop_methods(data)
        report = _from_data(self.item.config, data)
        if text_only and isinstance(report.longrepr, str):
            report.longrepr = _Representation(report.longrepr)  # type: ignore[assignment]
        if settled is not None:
            said.settled[id(report)] = _check_settled(settled)
        if compared is not None:
            said.compared[id(report)] = _check_compared(compared)
        report.user_properties = [*report.user_properties, *self.properties]
        said.reports.append(report)

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
        self.reports[:] = [report for report in self.reports if report.when != "teardown"]
        phases = {report.when for report in self.reports}
        if "call" in phases or ("setup" in phases and not self._setup_passed()):
            self.add("teardown", "failed", text, sections)
            return
        if "setup" not in phases and not self.started:
            self.add("setup", "failed", text, sections)
        else:
            if "setup" not in phases:
                self.add("setup", "passed", None)
            self.add("call", "failed", text, sections)
        self.add("teardown", "passed", None)

    def spoil_teardown(self, text: str) -> None:
        """Let its tear-down have failed, since something failed here that belongs to it."""
        last = self.reports[-1]
        if last.when == "teardown" and last.failed:
            last.sections.append(("Torn down here", text))
            return
        if last.when == "teardown":
            self.reports.pop()
        self.add("teardown", "failed", text)

    def _setup_passed(self) -> bool:
        return any(report.when == "setup" and report.passed for report in self.reports)

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


def _drop_methods(data: dict[str, Any]) -> None:
    """Leave out attributes that would hide what a report can do, or name another plugin's node."""
    for name in [name for name in data if name not in OWN_FIELDS and _hides(name)]:
        del data[name]


def _hides(name: str) -> bool:
    return name == "node" or name.startswith("__") or hasattr(pytest.TestReport, name)


class _Shown(str):
    """Text that stands for an object: it is its own ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _show_parts(data: dict[str, Any]) -> None:
    """Show a sub-test's parameters as they were there; pytest sends the text of their ``repr``."""
    context = data.get("_subtest.context")
    kwargs = context.get("kwargs") if isinstance(context, dict) else None
    if isinstance(context, dict) and isinstance(kwargs, dict) and hasattr(pytest, "SubtestReport"):
        shown = {k: _Shown(v) if isinstance(v, str) else v for k, v in kwargs.items()}
        data["_subtest.context"] = {**context, "kwargs": shown}


class _Representation:
    """An error that is shown as text and has no place to name: a fixture that is missing, say."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def toterminal(self, writer: Any) -> None:
        """Write the text as pytest writes such errors."""
        for line in self._text.splitlines():
            writer.line(line)


def _from_data(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    longrepr = data["longrepr"]
    is_final = not isinstance(longrepr, dict)
    if is_final:  # pytest would look into it for the names of a traceback's parts
        data["longrepr"] = None
    try:
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        if is_final and isinstance(report, pytest.TestReport):
            report.longrepr = longrepr
        _check(report)
    except ProtocolError:
        raise
    except Exception as error:  # noqa: BLE001 -- hostile data may upset any plugin that reads it
        raise ProtocolError(
            f"a report that can't be rebuilt: {type(error).__name__}: {error}"
        ) from None
    assert isinstance(report, pytest.TestReport)
    return report


def _check(report: Any) -> None:
    """See that a rebuilt report can be shown and written by everybody who will."""
    if not isinstance(report, pytest.TestReport):
        raise ProtocolError(f"a report of the unknown kind {type(report).__name__!r}")
    properties = report.user_properties
    if not isinstance(properties, list) or not all(map(_is_property, properties)):
        raise ProtocolError("a report whose user_properties are no pairs")
    if not isinstance(getattr(report, "wasxfail", ""), str):
        raise ProtocolError("a report whose wasxfail is no text")
    if report.failed and report.longrepr is None:
        report.longrepr = "the far side sent no traceback"
    longrepr = report.longrepr
    if report.skipped and not hasattr(report, "wasxfail"):
        _check_skip(report)
    elif longrepr is not None and not isinstance(longrepr, str | tuple):
        str(longrepr)
        crash = getattr(longrepr, "reprcrash", None)
        if crash is not None and not isinstance(crash.message, str):
            raise ProtocolError("a traceback whose message is no text")


def _is_property(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2  # noqa: PLR2004 -- a pair


def _check_settled(settled: Any) -> tuple[str, str]:
    match settled:
        case (str() as outcome, str() as text):
            return outcome, text
    raise ProtocolError(f"a settled outcome that reads {settled!r}")


def _check_compared(compared: Any) -> tuple[str, str, str]:
    match compared:
        case (
            str() as operator,
            (bool() as left_is_text, str() as left),
            (bool() as right_is_text, str() as right),
        ):
            return (
                operator,
                left if left_is_text else _Shown(left),
                right if right_is_text else _Shown(right),
            )
    raise ProtocolError(f"a comparison that reads {compared!r}")


def _check_skip(report: pytest.TestReport) -> None:
    """See that a skip has its place and its reason, which those who write it take for granted."""
    longrepr: Any = report.longrepr
    if longrepr is None or isinstance(longrepr, str):
        path, lineno, _name = report.location
        report.longrepr = (path, lineno or 0, longrepr or "")
    elif not (isinstance(longrepr, tuple) and [type(part) for part in longrepr] == [str, int, str]):
        raise ProtocolError(f"a skip whose reason is {longrepr!r}")


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
