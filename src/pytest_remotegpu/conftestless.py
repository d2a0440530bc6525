"""Collection for a session whose conftests are loaded on the far side only.

There all is collected, hooks of conftests have their say, and what they leave is what this side
has. Knows pytest's collection and the far side's trees; knows no worker's state.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_remotegpu.collectors import Gatherer, outcome_of
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.gathering import Gathering
from pytest_remotegpu.gpu import marker_name
from pytest_remotegpu.grown import FarFile, FarItem, made_of
from pytest_remotegpu.protocol import nodes
from pytest_remotegpu.protocol.plain import from_text, to_text

__all__ = ["Conftestless"]

Key = tuple[str, int]


class Conftestless(Gathering):
    """The plugin of a session all of whose files are collected far away, by other hooks."""

    _all: Gatherer | None = None

    # the start

    def _begin(self) -> None:
        self._reached: set[str] = set()
        files = self._find()
        if not self._may_rent:
            return
        shape = self._collector_of(self._config.rootpath, self._fitted(files))
        expected = self._forecast({shape: 1})
        self._far_side(self._session).summary.worst = expected.worst
        collectors = self._far_collectors()
        gatherer = self._all = collectors.open_for_all(shape, self._arguments())
        collectors.wait(gatherer)
        if gatherer.why or gatherer.hooked is None:
            why = gatherer.why or "it did not say what its hooks have left"
            where = self._far_side(self._session).backend.name
            raise UsageError(f"the far side ({where}) did not collect: {why}")
        self._learn(gatherer, gatherer.hooked)

    def _arguments(self) -> list[str]:
        """Give what is to be collected: the paths of the command line, without names of tests."""
        given = [str(argument).partition("::")[0] for argument in self._config.args]
        here = self._config.invocation_params.dir
        paths = [str(here / text) if (here / text).exists() else text for text in given]
        once = list(dict.fromkeys(paths))
        if not self._config.option.keepduplicates:
            return once
        return [path for path in once if not _is_below(path, once)]

    def _learn(self, gatherer: Gatherer, hooked: nodes.Hooked) -> None:
        """Take in what hooks have left, and the markers that they have registered."""
        self._hooked = hooked
        self._left: dict[Key, dict[int, nodes.Left]] = defaultdict(dict)
        for test in hooked.tests:
            self._left[from_text(test.path), test.number][test.node] = test
        self._made: dict[Key, list[list[Any]]] = defaultdict(list)
        keys = {key: place for place, key in enumerate(gatherer.trees)}
        places = [
            (keys.get((from_text(test.path), test.number), -1), test.node) for test in hooked.tests
        ]
        self._reordered = places != sorted(places)
        known = set(map(marker_name, self._config.getini("markers")))
        for name in map(from_text, hooked.markers):
            if name not in known:
                self._config.addinivalue_line("markers", f"{name}: of the far side's conftests")

    # pytest's collection

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> Any:  # type: ignore[override]
        """Give the files of the far side, whatever this side would make of them."""
        found = yield
        if self._aside or self._all is None:
            return found
        files: list[FarFile] = []
        while True:
            file: FarFile = FarFile.from_parent(parent, path=file_path)
            if (file.nodeid, len(files)) not in self._all.trees:
                return files or self._left_out(file_path, found, file)
            self._files[file_path] = self._all
            files.append(self._equipped(file, len(files), "Module"))

    def _left_out(self, path: Path, found: list[Any], file: FarFile) -> list[FarFile]:
        """Let a file fail that pytest would collect here, and that was not sent."""
        why = self._why_not_sent(path) if found else ""
        if not why:
            return []
        self._nowhere[path] = f"{why}\nor leave it out: --ignore={file.nodeid}"
        return [self._equipped(file, 0, "Module")]

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Let a folder fail that has failed there."""
        self._reached.add(collector.nodeid)
        report = yield from super().pytest_make_collect_report(collector)
        failure = None
        if self._all is not None and isinstance(collector, pytest.Directory | pytest.Session):
            failure = self._all.failures.get(collector.nodeid)
        return report if failure is None else made_of(collector.nodeid, outcome_of(failure))

    def _merged(self, key: Key, tree: nodes.Tree) -> nodes.Tree:
        return nodes.merged(tree, self._left.get(key, {}), self._hooked.marks)

    def _keep(self, key: Key, made: list[Any]) -> None:
        self._made[key].append(made)
        for place, test in self._left.get(key, {}).items():
            made[place].name = from_text(test.name)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Iterator[None]:
        """Bring the tests into the order of the far side, without those that its hooks drop."""
        if self._all is not None:
            self._report_unreached(session)
            self._rearrange(items)
        result = yield
        for item in items:
            if isinstance(item, FarItem):
                _forget_repeated(item)
        return result

    def _report_unreached(self, session: pytest.Session) -> None:
        """Let nothing go missing that the far side has where this side did not come to.

        That is tests, and failures: of files, of classes in them, of folders.
        """
        assert self._all is not None
        texts = {
            path: f"the far side has tests in {path}, and this side did not come to that file"
            for path, number in self._all.trees
            if self._left.get((path, number))
        }
        found = {path: nodes.Outcome("failed", to_text(text)) for path, text in texts.items()}
        found |= {nodeid: outcome_of(said) for nodeid, said in self._all.failures.items()}
        for nodeid, outcome in found.items():
            if nodeid.partition("::")[0] not in self._reached:
                session.config.hook.pytest_collectreport(report=made_of(nodeid, outcome))

    def _rearrange(self, items: list[pytest.Item]) -> None:
        places: dict[pytest.Item, int] = {}
        for place, test in enumerate(self._hooked.tests):
            for made in self._made.get((from_text(test.path), test.number), ()):
                item = made[test.node]
                places[item] = place
                item.user_properties += test.properties
        dropped = [item for item in items if isinstance(item, FarItem) and item not in places]
        if dropped:
            self._config.hook.pytest_deselected(items=dropped)
        gone = set(dropped)
        items[:] = [item for item in items if item not in gone]
        if self._reordered:
            items.sort(key=lambda item: places.get(item, len(places)))


def _is_below(path: str, others: Iterable[str]) -> bool:
    """Say whether a path is in one of the others, so that it is collected with that one."""
    above = Path(os.path.normpath(path)).parents
    return any(Path(os.path.normpath(other)) in above for other in others)


def _forget_repeated(item: FarItem) -> None:
    """Take marks away that a plugin has added on both sides."""
    told = item.own_markers[: item.told]
    item.own_markers[item.told :] = [m for m in item.own_markers[item.told :] if m not in told]
