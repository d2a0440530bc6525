"""A pytest plugin that writes down everything a session reported, as one JSON file.

It is copied beside a run and loaded with `-p parity_observer`. It uses the standard library and
pytest only, must not know the comparison nor the product, and keeps silent on a worker: a process
whose config has `workerinput` by the end of the session writes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

OUT = "PARITY_OUT"
STANDARD = frozenset(
    {"nodeid", "location", "keywords", "outcome", "longrepr", "when", "user_properties"}
    | {"sections", "duration", "start", "stop", "wasxfail", "context", "result"}
)


def describe(value: object) -> str:
    """Give a value as text that keeps the difference between plain types, and only that.

    A subclass of a plain type counts as that type, anything else as its `str()`.
    """
    match value:
        case None | bool():
            return repr(value)
        case str():
            return repr(str.__str__(value))
        case int():
            return int.__repr__(value)
        case float():
            return float.__repr__(value)
        case tuple():
            return f"({''.join(describe(part) + ', ' for part in value)})"
        case list():
            return f"[{', '.join(describe(part) for part in value)}]"
        case dict():
            return f"{{{', '.join(f'{describe(k)}: {describe(v)}' for k, v in value.items())}}}"
        case _:
            return repr(str(value))


def longrepr_kind(value: object) -> str:
    """Say which of the three shapes that pytest itself tells apart a longrepr has."""
    match value:
        case None:
            return "none"
        case tuple():
            return "tuple"
        case _:
            return "text"


def crash_line(longrepr: object) -> str | None:
    """Give the `path:line: message` that the short summary is made of, where there is one."""
    crash = getattr(longrepr, "reprcrash", None)
    return None if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"


def report_data(report: pytest.TestReport) -> dict[str, Any]:
    """Turn a test report (of any class) into plain data."""
    attributes = vars(report)
    return {
        "nodeid": report.nodeid,
        "kind": type(report).__name__,
        "when": report.when,
        "outcome": report.outcome,
        "location": describe(report.location),
        "wasxfail": describe(getattr(report, "wasxfail", None)),
        "longrepr": str(report.longrepr),
        "longrepr_kind": longrepr_kind(report.longrepr),
        "crash": crash_line(report.longrepr),
        "sections": [[name, content] for name, content in report.sections],
        "user_properties": [[str(name), describe(v)] for name, v in report.user_properties],
        "keywords": sorted(str(name) for name in report.keywords),
        "context": str(getattr(report, "context", None)),
        "timed": report.duration > 0,
        "attributes": {
            name: describe(attributes[name]) for name in sorted(attributes.keys() - STANDARD)
        },
    }


def item_data(item: pytest.Item) -> dict[str, Any]:
    """Turn a collected item into plain data."""
    return {
        "nodeid": item.nodeid,
        "location": describe(item.location),
        "keywords": sorted(item.keywords),
        "markers": [mark.name for mark in item.iter_markers()],
        "gpu": item.get_closest_marker("gpu") is not None,
    }


class Observer:
    """Keeps what the session says in memory and writes it when the session is over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.items: list[dict[str, Any]] = []
        self.deselected: list[str] = []
        self.collected: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []
        self.events: list[list[str]] = []
        self.exitstatus: int | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            text = str(report.longrepr)
            self.collected.append(
                {"nodeid": report.nodeid, "outcome": report.outcome, "longrepr": text}
            )

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.deselected += [item.nodeid for item in items]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = [item_data(item) for item in session.items]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.events.append(["enter", item.nodeid])
        answer = yield
        self.events.append(["leave", item.nodeid])
        return answer

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.events.append(["start", nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.events.append([str(report.when), report.nodeid])
        self.reports.append(report_data(report))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.events.append(["finish", nodeid])

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str) -> None:
        self.warnings.append(
            {
                "category": warning_message.category.__name__,
                "text": str(warning_message.message),
                "nodeid": nodeid,
                "when": when,
                "filename": warning_message.filename,
                "lineno": warning_message.lineno,
            }
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.exitstatus = int(exitstatus)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if hasattr(config, "workerinput"):
            return
        data = {name: value for name, value in vars(self).items() if name != "folder"}
        path = self.folder / f"session-{os.getpid()}.json"
        path.write_text(json.dumps(data), encoding="ascii")


def pytest_configure(config: pytest.Config) -> None:
    """Start to observe, where a folder to write to was named."""
    if folder := os.environ.get(OUT):
        config.pluginmanager.register(Observer(Path(folder)), "parity-observer")
