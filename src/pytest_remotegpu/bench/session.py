"""What a session does with the benchmarks of its tests: the gate, the table, the files.

Registered in the process that the user has started, and there only; reports come here from
whichever process ran a test.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pytest_remotegpu.bench import baselines, history, tables, told
from pytest_remotegpu.bench.baselines import Finding, Kind
from pytest_remotegpu.bench.told import Kept
from pytest_remotegpu.errors import RemoteGpuError, UsageError

__all__ = ["Benchmarks"]

APART: Final = "name a file that earlier sessions have added to, or none that exists"
DECIDED: Final = ("passed", "failed", "skipped")
ENDED: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


class Benchmarks:
    """Takes in what reports tell of benchmarks.

    :raises UsageError: for a file that can't be read, or be written later.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._kept: list[Kept] = []
        self._findings: list[Finding] = []
        self._lines: list[str] = []
        self._failed = False
        self._compare = self._place("compare")
        self._json = self._place("json")
        self._history = self._place("history")
        if self._compare is not None and self._compare == self._json:
            raise UsageError(
                "--gpu-benchmark-compare and --gpu-benchmark-json name the same file, which would "
                "let what is slower pass from the next time on",
                fix="compare first; where the new times are meant, give --gpu-benchmark-json alone",
            )
        if self._history is not None:
            self._check_history(self._history)
        self._baseline = None if self._compare is None else baselines.load(self._compare)

    def _place(self, name: str) -> Path | None:
        """Give the path of an option; its folder has to be there."""
        option = f"--gpu-benchmark-{name}"
        given = self._config.getoption(option, None)
        if given is None:
            return None
        if not given:
            raise UsageError(f"{option}= names no file", fix="is a variable unset in the command?")
        path = Path(self._config.invocation_params.dir, str(given)).resolve()
        if path.is_dir() or not path.parent.is_dir():
            what = "is a folder" if path.is_dir() else f"is in no folder: {path.parent} is missing"
            raise UsageError(f"{option}={given} {what}", fix="name a file in a folder that exists")
        if path.exists() and not path.is_file():
            raise UsageError(f"{option}={given} is there and is no file", fix="name another")
        return path

    def _check_history(self, path: Path) -> None:
        """Refuse to add lines to a file that is something else, such as a baseline."""
        option = f"--gpu-benchmark-history={self._shown(path)}"
        for name, other in (("compare", self._compare), ("json", self._json)):
            if path == other:
                raise UsageError(f"{option} names the file of --gpu-benchmark-{name}", fix=APART)
        try:
            begun = not path.exists() or history.begun(path)
        except OSError as error:
            raise UsageError(f"{option} can't be read: {error.strerror}", fix=APART) from None
        if not begun:
            raise UsageError(f"{option} is there and has no line of a history", fix=APART)

    # what is told

    def take(self, report: pytest.TestReport) -> None:
        """Take in what a report tells; a test that has passed fails where it is slower than before.

        The report is changed before anyone else sees it, so that all agree on what it says.
        """
        given = getattr(report, "gpu_benchmark", None)
        if given is None or type(report) is not pytest.TestReport or report.outcome not in DECIDED:
            return
        try:
            kept = told.read(report.nodeid, report.outcome, given)
        except RemoteGpuError as error:
            self._lines.append(f"ERROR: {error}")
            self._failed = True
            del report.gpu_benchmark  # nobody is to take it for one
            return
        slower = self._judge(kept) if self._baseline is not None else []
        if slower and report.outcome == "passed" and not hasattr(report, "wasxfail"):
            report.outcome = "failed"
            report.longrepr = self._in_words(slower)
            kept = told.read(report.nodeid, report.outcome, given)
        self._kept += kept

    def _judge(self, kept: list[Kept]) -> list[Finding]:
        """Compare with the baseline; give what is slower."""
        found = [each for one in kept for each in baselines.compare(one, self._baseline or [])]
        self._findings += found
        return [each for each in found if each.kind is Kind.SLOWER]

    def _in_words(self, slower: list[Finding]) -> str:
        name = self._shown(self._compare)
        said = "\n".join(f"  {each}" for each in slower)
        return (
            f"slower than in the baseline {name}, by more than x{baselines.NOISE:g} and for "
            f"certain:\n{said}\n"
            "if the new times are meant, run the whole session once with "
            f"--gpu-benchmark-json={name}, which takes them as the baseline"
        )

    def _shown(self, path: Path | None) -> str:
        base = self._config.invocation_params.dir
        if path is not None and path.is_relative_to(base):
            return path.relative_to(base).as_posix()
        return str(path)

    # the end

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files; no session passes that was to write one and could not."""
        for write, path in (
            (self._write_json, self._json),
            (self._write_baseline, self._compare),
            (self._write_history, self._history),
        ):
            try:
                self._lines += write(session)
            except OSError as error:
                why = error.strerror or error
                self._lines.append(f"ERROR: {self._shown(path)} was not written: {why}")
                self._failed = True
        if self._failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write_json(self, _session: pytest.Session) -> Iterator[str]:
        if self._json is None:
            return
        if not self._kept:
            stays = "is left as it was" if self._json.exists() else "is not made"
            yield f"no benchmark has run: {self._shown(self._json)} {stays}"
            return
        baselines.write(self._json, self._kept)
        yield f"benchmarks written: {len(self._kept)} to {self._shown(self._json)}"

    def _write_baseline(self, session: pytest.Session) -> Iterator[str]:
        if self._compare is None or self._baseline is not None:
            return
        name = self._shown(self._compare)
        good = [one for one in self._kept if one.outcome == "passed" and one.benchmark.valid]
        ended = session.exitstatus in ENDED and not (session.shouldstop or session.shouldfail)
        if not ended or not good:
            yield f"there is no baseline {name} yet, and none was written: " + (
                "the session did not come to its end" if good else "no benchmark has passed"
            )
            return
        baselines.write(self._compare, good)
        yield f"there was no baseline {name}, and now there is: {len(good)} of {len(self._kept)}"

    def _write_history(self, _session: pytest.Session) -> Iterator[str]:
        if self._history is None:
            return
        commit = history.commit_of(self._config.rootpath, os.environ)
        count = history.append(self._history, self._kept, when=time.time(), commit=commit)
        yield f"benchmarks added to {self._shown(self._history)}: {count}"

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and what the comparison has come to."""
        found = [*tables.lines(self._kept), *self._compared(), *self._lines]
        if found:
            terminalreporter.write_sep("=", "gpu benchmarks")
        for line in found:
            terminalreporter.write_line(line)

    def _compared(self) -> Iterator[str]:
        if self._baseline is None:
            return
        name = self._shown(self._compare)
        counts = Counter(each.kind for each in self._findings)
        said = ", ".join(f"{counts[kind]} {kind}" for kind in Kind if counts[kind])
        yield f"compared with {name}: {said or 'nothing, since no benchmark has run'}"
        told_apart = Counter((each.kind, each.text) for each in self._findings)
        for each in self._findings:
            number = told_apart.pop((each.kind, each.text), 0)
            if number and each.kind is not Kind.SAME:
                more = f" (and {number - 1} more)" if number > 1 else ""
                yield f"  {each.kind}: {told.clean(each.test)}, {each}{more}"
        there = {(one.test, one.index) for one in self._baseline}
        missing = there - {(one.test, one.index) for one in self._kept}
        if missing:
            yield f"  not run: {len(missing)} of {len(there)} in the baseline"
