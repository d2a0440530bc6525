"""The plugin behind ``--remote-json``: listens to the session, and writes what it has come to.

Registered in the process that the user has started, and there only. Judges nothing: the same
reports and the same summary go to the terminal.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Iterable
from typing import Any, Final

import pytest

from pytest_remotegpu import record
from pytest_remotegpu.blotting import blotted_spec, values_of
from pytest_remotegpu.config import Settings
from pytest_remotegpu.outfit import names_passed_on
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.record import Entry
from pytest_remotegpu.reports import BILLED, RERUN
from pytest_remotegpu.selection import runs_nothing
from pytest_remotegpu.summary import RunSummary

__all__ = ["Recorder"]

CONTROLLER: Final = "remotegpu-controller"
"""The plugin that has the summary, where there is a far side."""
OFTEN: Final = 5.0
"""Seconds between two versions of the file while tests run."""
RANKS: Final = ("not run", "passed", "xfailed", "xpassed", "skipped", "failed", "error")
"""Outcomes; of a test's reports the one that stands last here counts."""
MOST_TEXT: Final = 1000
"""Characters of a failure's message."""


class Recorder:
    """Keeps what is said of each test, and writes the document: first, now and then, and last.

    :raises UsageError: where the file can't be written.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        base, given = config.invocation_params.dir, str(settings.json)
        self._path = record.place(base, given, makes=not self._idle)
        self._each = config.getoption("dist", "no") == "each"
        self._tests: dict[str, Entry] = {}
        self._began = time.time()
        self._written = 0.0
        self._status: int | None = None
        self._backend = settings.spec
        if settings.spec is not None:
            values = values_of(os.environ, names_passed_on(settings))
            self._backend = blotted_spec(settings.spec, values)
        self.trouble = ""

    @property
    def _idle(self) -> bool:
        """Whether this session runs nothing, so that an earlier one's file is left alone."""
        return self._settings.plan or runs_nothing(self._config)

    # what is said

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take in the ids, and let the file of an earlier session be no more."""
        self._expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Take in the ids of a process of pytest-xdist."""
        if not self._each:
            self._expect(ids)

    def _expect(self, ids: Iterable[str]) -> None:
        for nodeid in ids:
            self._tests.setdefault(nodeid, Entry(nodeid))
        self._write(complete=False)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one report."""
        key = report.nodeid
        if self._each:  # every process runs every test
            key = f"{key} {getattr(report, 'worker_id', '')}"
        test = self._tests.setdefault(key, Entry(report.nodeid))
        test.properties |= {str(name): value for name, value in report.user_properties}
        test.charged = getattr(report, BILLED, test.charged)
        if report.outcome == RERUN:
            test.reruns += 1
            test.phases.clear()
            test.outcome, test.message = RANKS[0], ""
            return
        if hasattr(report, "gpu_benchmark"):
            test.benchmarks = report.gpu_benchmark
        whole = type(report) is pytest.TestReport  # else it is that of a part, as of a sub-test
        if whole:
            seconds = report.duration if math.isfinite(report.duration) else 0.0
            test.phases[str(report.when)] = (report.outcome, seconds)
        if whole or report.failed:
            test.outcome = max(test.outcome, _outcome(report), key=RANKS.index)
        if report.failed and not test.message:
            test.message = _message(report)
        if time.monotonic() - self._written > OFTEN:
            self._write(complete=False)

    # what is written

    def _write(self, *, complete: bool) -> None:
        if self._idle:
            return
        try:
            record.write(self._path, self._document(complete=complete))
            self.trouble = ""
        except (OSError, ValueError, TypeError) as error:
            why = getattr(error, "strerror", None) or error
            self.trouble = f"--remote-json: {str(self._path)!r} was not written: {why}"
        self._written = time.monotonic()

    def _document(self, *, complete: bool) -> dict[str, Any]:
        plugin: Any = self._config.pluginmanager.get_plugin(CONTROLLER)
        summary = getattr(plugin, "summary", None) or RunSummary()
        hello = Hello.here()
        return record.document(
            summary,
            self._tests.values(),
            session={
                "began": self._began,
                "seconds": time.time() - self._began,
                "complete": complete,
                "exit_status": self._status,
                "root": str(self._config.rootpath),
                "package": hello.package,
                "pytest": pytest.__version__,
                "python": platform.python_version(),
            },
            backend=self._backend,
            limits={
                "test_seconds": self._settings.timeout or None,
                "run_seconds": self._settings.run_timeout or None,
                "max_cost_usd": self._settings.max_cost or None,
            },
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the final version; no session passes that was to write it and could not."""
        self._status = int(session.exitstatus)
        self._write(complete=True)
        if self.trouble and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where it was not written."""
        if self.trouble:
            terminalreporter.write_line(f"ERROR: {self.trouble}")

    def pytest_unconfigure(self) -> None:
        """Write at least what there is, where the session did not come to its end."""
        if self._status is None and self._tests:
            self._write(complete=False)


def _outcome(report: pytest.TestReport) -> str:
    """Name what one report says of its test, as pytest counts it."""
    if report.failed:
        return "error" if report.when in ("setup", "teardown") else "failed"
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return str(report.outcome) if report.outcome in RANKS else "passed"


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(getattr(crash, "message", "") or report.longreprtext)
    return text.strip()[:MOST_TEXT]
