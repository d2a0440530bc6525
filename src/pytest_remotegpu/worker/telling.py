"""Tells what was collected: one tree of plain data for each file, as soon as the file is through.

A plugin of the far session. Knows pytest's nodes by their public attributes; what becomes of them
on the user's side, it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from pytest_remotegpu.gpu import marker_name
from pytest_remotegpu.protocol import events, nodes, plain
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker.emit import Emitter
from pytest_remotegpu.worker.reads import Reads

__all__ = ["Telling"]

PIECE: Final = 2**20
"""Bytes of a tree in one event."""
LATE: Final = {"is_hypothesis_test": ("hypothesispytest", "hypothesis")}
"""Attributes of functions, with the plugin that will mark tests of such, and its mark."""


class Telling:
    """Sends the trees of the files.

    :param here: names a path in a text by its place on the user's side.
    :param reads: knows what was read, where that is to be told.
    """

    def __init__(self, emitter: Emitter, here: Callable[[str], str], reads: Reads | None) -> None:
        self._reads = reads
        self._emitter = emitter
        self._here = here
        self._reports: dict[pytest.Collector, pytest.CollectReport] = {}
        self._files: dict[int, tuple[pytest.CollectReport, pytest.File]] = {}
        self._numbers: dict[str, int] = {}
        self._early: dict[pytest.Item, dict[str, Any]] = {}
        self._told: dict[pytest.Item, tuple[str, int, int]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Remember what each collector gave."""
        report = yield
        self._reports[collector] = report
        if isinstance(collector, pytest.File):
            self._files[id(report)] = (report, collector)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_itemcollected(self, item: pytest.Item) -> Any:
        """Look at a test before hooks change it that will see it on the user's side, too."""
        own = [*item.own_markers, *_marks_to_come(item)]
        self._early[item] = {"own": own, "keywords": list(item.keywords)}
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Send a file's tree: all that is in the file has been collected by now."""
        _, file = self._files.pop(id(report), (None, None))
        if file is None:
            return
        trees = _Trees(self._reports, self._early, self._here)
        read = self._reads.news() if self._reads is not None else []
        data = nodes.encode(nodes.Tree(*trees.tree(file), read))
        self._reports.clear()
        self._early.clear()
        path = file.nodeid.partition("::")[0]
        number = self._numbers[path] = self._numbers.get(path, -1) + 1
        self._told |= {item: (path, number, place) for item, place in trees.items.items()}
        self._send(path, number, data)

    def tell_what_is_left(self, items: list[pytest.Item], markers: list[str]) -> None:
        """Tell what hooks have left of the tests.

        :param markers: the lines of those that are registered.
        """
        trees = _Trees({}, {}, self._here)
        left = [trees.left(item, *self._told[item]) for item in items if item in self._told]
        names = dict.fromkeys(map(marker_name, markers))
        hooked = nodes.Hooked(trees.marks, left, [to_text(name) for name in names if name])
        self._told.clear()
        self._send("", 0, nodes.encode(hooked))

    def _send(self, path: str, number: int, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            piece, last = data[start : start + PIECE], start + PIECE >= len(data)
            self._emitter.put(events.FileTree(to_text(path), number, piece, last))
        self._emitter.flush()


class _Trees:
    """Makes the tree of one file."""

    def __init__(
        self,
        reports: dict[pytest.Collector, pytest.CollectReport],
        early: dict[pytest.Item, dict[str, Any]],
        here: Callable[[str], str],
    ) -> None:
        self._reports = reports
        self._early = early
        self._here = here
        self.marks: list[nodes.Mark] = []
        self.items: dict[pytest.Item, int] = {}
        self._places: dict[int, tuple[int, object]] = {}
        self._nodes: list[nodes.Node] = []

    def tree(self, file: pytest.File) -> tuple[list[nodes.Mark], list[nodes.Node]]:
        self._collector(file, 0)
        return self.marks, self._nodes

    def left(self, item: pytest.Item, path: str, number: int, place: int) -> nodes.Left:
        told = self._common(item)
        pairs = [(str(name), value) for name, value in item.user_properties]
        return nodes.Left(
            to_text(path),
            number,
            place,
            **{name: told[name] for name in ("name", "nodeid", "marks", "keywords", "matches")},
            properties=_plain(pairs),
        )

    def _collector(self, collector: pytest.Collector, parent: int) -> None:
        report = self._reports.get(collector)
        outcome = None if report is None or report.passed else self._outcome(report)
        place = len(self._nodes)
        names = _names_of(collector) if outcome is None else {}
        self._nodes.append(nodes.Node(parent, outcome=outcome, **names, **self._common(collector)))
        for node in report.result if report is not None and report.passed else ():
            if isinstance(node, pytest.Item):
                self._item(node, place)
            elif isinstance(node, pytest.Collector):
                self._collector(node, place)

    def _outcome(self, report: pytest.CollectReport) -> nodes.Outcome:
        longrepr: Any = report.longrepr
        text = to_text(self._here(str(longrepr)))
        if report.skipped and isinstance(longrepr, tuple):
            path, lineno, reason = longrepr
            where = (to_text(self._here(str(path))), int(lineno), to_text(str(reason)))
            return nodes.Outcome("skipped", text, where)
        crash = getattr(longrepr, "reprcrash", None)
        if crash is None:
            return nodes.Outcome("failed", text)
        where = (to_text(self._here(str(crash.path))), int(crash.lineno), to_text(crash.message))
        return nodes.Outcome("failed", text, where)

    def _common(self, node: pytest.Item | pytest.Collector) -> dict[str, Any]:
        """Give what all nodes have."""
        early: Any = self._early.get(node, {}) if isinstance(node, pytest.Item) else {}
        own = early.get("own", node.own_markers)
        names = {mark.name for mark in own} | {node.name}
        above = node.parent.keywords if node.parent is not None else ()
        all_names = early.get("keywords", node.keywords)
        keywords = [name for name in all_names if name not in above and name not in names]
        matches = set(map(str, node.extra_keyword_matches))
        matches |= set(getattr(getattr(node, "function", None), "__dict__", ()))
        return {
            "kind": to_text(type(node).__name__),
            "name": to_text(node.name),
            "nodeid": to_text(node.nodeid),
            "marks": self._marks_of(own),
            "keywords": [to_text(str(name)) for name in keywords],
            "matches": [to_text(name) for name in sorted(matches)],
        }

    def _item(self, item: pytest.Item, parent: int) -> None:
        path, lineno, domain = item.location
        vars(item).pop("location", None)  # it is kept there, and hooks may yet change the name
        original = getattr(item, "originalname", None)
        names = getattr(item, "fixturenames", None)
        self.items[item] = len(self._nodes)
        self._nodes.append(
            nodes.Node(
                parent,
                location=(to_text(path), lineno, to_text(domain)),
                originalname=to_text(str(original)) if original is not None else None,
                fixturenames=[to_text(str(name)) for name in names] if names is not None else None,
                parameters=self._parameters(getattr(item, "callspec", None)),
                **self._common(item),
            )
        )

    def _parameters(self, callspec: Any) -> nodes.Parameters | None:
        if callspec is None:
            return None
        scopes = getattr(callspec, "_arg2scope", {})
        named = {
            name: str(getattr(scopes.get(name), "value", "function")) for name in callspec.params
        }
        return nodes.Parameters(
            to_text(callspec.id),
            _plain(dict(callspec.params)),
            {name: int(callspec.indices.get(name, 0)) for name in callspec.params},
            named,
            self._marks_of(callspec.marks),
        )

    def _marks_of(self, marks: Any) -> list[int]:
        """Give the places of marks in the tree's list, in which each stands once."""
        places = []
        for mark in marks:
            mark = getattr(mark, "mark", mark)  # noqa: PLW2901 -- the mark that a decorator is for
            if id(mark) not in self._places:
                self._places[id(mark)] = (len(self.marks), mark)
                given = _plain(tuple(mark.args)), _plain(dict(mark.kwargs))
                self.marks.append(nodes.Mark(to_text(mark.name), *given))
            places.append(self._places[id(mark)][0])
        return places


def _marks_to_come(item: pytest.Item) -> list[pytest.Mark]:
    """Give marks that a plugin adds once all is collected, to functions that the far side has."""
    function = getattr(item, "function", None)
    return [
        getattr(pytest.mark, name).mark
        for attribute, (plugin, name) in LATE.items()
        if getattr(function, attribute, False) is True
        and item.config.pluginmanager.hasplugin(plugin)
    ]


def _names_of(collector: pytest.Collector) -> dict[str, Any]:
    """Give the names of the module that a collector is of, and of the class that it is."""
    if isinstance(collector, pytest.Class):
        owner = collector.obj
        return {"module": to_text(owner.__module__), "qualname": to_text(owner.__qualname__)}
    if isinstance(collector, pytest.Module) and collector.obj is not None:  # a text of doctests
        return {"module": to_text(str(collector.obj.__name__))}
    return {}


def _plain(value: Any) -> Any:
    return plain.pack(plain.reduce(value, []))
