"""Stands in for VS Code's reporter: loaded by the same name, and it talks the same way.

Written from what the Python extension's reporter does, of which nothing is copied: it is loaded
with ``-p vscode_pytest``, finds a named pipe in ``TEST_RUN_PIPE``, and writes JSON there, each
message behind a header with its length. It learns where a test is from a wrapper around
``pytest_runtest_protocol``, where it also looks at marks that skip, and its outcome from
``pytest_report_teststatus``; the first outcome of an id counts. Discovery sends a tree at the end.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

Node = dict[str, Any]


class Pipe:
    """The way to the editor."""

    def __init__(self) -> None:
        self._file = Path(os.environ["TEST_RUN_PIPE"]).open("wb", buffering=0)  # noqa: SIM115 -- until the end

    def send(self, params: Node) -> None:
        """Send one message."""
        text = json.dumps({"jsonrpc": "2.0", "params": params})
        head = f"content-length: {len(text)}\r\ncontent-type: application/json\r\n\r\n"
        data = (head + text).encode()
        while data:
            data = data[self._file.write(data[:4096]) :]


class Reporter:
    """What the module's hooks share."""

    def __init__(self) -> None:
        self.pipe = Pipe()
        self.paths: dict[str, Path] = {}
        self.told: set[str] = set()
        self.errors: list[str] = []

    def tell(self, nodeid: str, path: Path, outcome: str, message: str | None = None) -> None:
        """Send the outcome of a test, unless it has one."""
        id = absolute(nodeid, path)
        if id in self.told:
            return
        self.told.add(id)
        result = {"test": id, "outcome": outcome, "message": message, "subtest": None}
        self.execution("success", {id: result})

    def execution(self, status: str, result: Node | None) -> None:
        """Send a message of a run."""
        message = {"cwd": str(Path.cwd()), "status": status, "result": result, "not_found": None}
        self.pipe.send(message | {"error": self.errors or None})


REPORTER = pytest.StashKey[Reporter]()
CURRENT: list[Reporter] = []
"""The reporter of this process, for hooks that are given no config."""


def absolute(nodeid: str, path: Path) -> str:
    """Name a test as the editor does: by its file's whole path."""
    return "::".join([str(path), *nodeid.split("::")[1:]])


def pytest_configure(config: pytest.Config) -> None:
    """Connect to the editor."""
    config.stash[REPORTER] = Reporter()
    CURRENT[:] = [config.stash[REPORTER]]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Learn where a test is, and report at once one whose marks skip it."""
    reporter = item.config.stash[REPORTER]
    reporter.paths[item.nodeid] = item.path
    nodes: list[Any] = [item, *(n for n in item.listchain() if isinstance(n, pytest.Class))]
    marks = [mark for node in nodes for mark in node.own_markers]
    if any(m.name == "skip" or (m.name == "skipif" and any(m.args)) for m in marks):
        reporter.tell(item.nodeid, item.path, "skipped")
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> Iterator[None]:
    """Report the outcome of a test's call, or a skip before it."""
    reporter = config.stash[REPORTER]
    if report.when == "call" or (report.when == "setup" and report.skipped):
        outcome = {"passed": "success", "failed": "failure"}.get(report.outcome, "skipped")
        message = report.longreprtext if report.failed else None
        reporter.tell(
            report.nodeid, reporter.paths.get(report.nodeid, Path.cwd()), outcome, message
        )
    return (yield)


def pytest_exception_interact(node: Any, call: Any, report: Any) -> None:
    """Report what was raised outside of a call, too."""
    reporter = node.config.stash[REPORTER]
    if node.config.option.collectonly:
        reporter.errors.append(call.excinfo.exconly())
        return
    outcome = "failure" if call.excinfo.typename == "AssertionError" else "error"
    reporter.tell(node.nodeid, node.path, outcome, report.longreprtext)


def pytest_internalerror(excinfo: Any) -> None:
    """Keep an internal error for the last message."""
    for reporter in CURRENT:
        reporter.errors.append(excinfo.exconly())


def pytest_keyboard_interrupt(excinfo: Any) -> None:
    """Keep an interrupt for the last message."""
    for reporter in CURRENT:
        reporter.errors.append(excinfo.exconly())


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Send the tree of a discovery, or that a run went wrong."""
    reporter = session.config.stash[REPORTER]
    if session.config.option.collectonly:
        status = "error" if reporter.errors else "success"
        message = {"cwd": str(Path.cwd()), "status": status, "error": reporter.errors}
        reporter.pipe.send(message | {"tests": tree(session)})
    elif exitstatus not in (0, 1):
        reporter.errors.append(f"exit status {int(exitstatus)}")
        reporter.execution("error", None)


def tree(session: pytest.Session) -> Node:
    """Build folders, files, classes, groups of parameters and tests."""
    root = make("folder", session.path.name, session.path, str(session.path))
    known: dict[str, Node] = {root["id_"]: root}

    def child(parent: Node, node: Node) -> Node:
        if node["id_"] not in known:
            known[node["id_"]] = node
            parent["children"].append(node)
        return known[node["id_"]]

    for item in session.items:
        place = root
        for folder in reversed(item.path.relative_to(session.path).parents[:-1]):
            path = session.path / folder
            place = child(place, make("folder", path.name, path, str(path)))
        place = child(place, make("file", item.path.name, item.path, str(item.path)))
        for node in item.listchain():
            if isinstance(node, pytest.Class):
                found = make("class", node.name, node.path, absolute(node.nodeid, node.path))
                place = child(place, found | {"lineno": line_of(node)})
        test = make("test", item.name, item.path, absolute(item.nodeid, item.path))
        line = item.location[1]
        test |= {"lineno": "" if line is None else str(line + 1), "runID": test["id_"]}
        if hasattr(item, "callspec"):
            name, _, values = item.name.partition("[")
            group = absolute(f"{item.nodeid.rpartition('::')[0]}::{name}", item.path)
            original = item.originalname  # type: ignore[attr-defined]
            place = child(place, make("function", original, item.path, group))
            test["name"] = f"[{values}"
        child(place, test)
    return root


def make(kind: str, name: str, path: Path, id: str) -> Node:
    """Make a node without children."""
    return {"type_": kind, "name": name, "path": str(path), "id_": id, "children": []}


def line_of(node: pytest.Class) -> str:
    """Give the line of a class, where it has any."""
    try:
        return str(inspect.getsourcelines(node.obj)[1]) if hasattr(node, "obj") else ""
    except (OSError, TypeError):
        return ""
