"""Far collection: files whose tests run far away are collected there, and only their data is here.

Has the files collected that are the far side's, and puts their trees in the place of what pytest
would collect. Knows pytest's collection; what becomes of a test is none of its business.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import brought, lacking, terminal
from pytest_remotegpu.backends.base import Prices
from pytest_remotegpu.candidates import Candidates, folders_of
from pytest_remotegpu.collectors import Collectors, Gatherer, outcome_of
from pytest_remotegpu.config import Settings
from pytest_remotegpu.cost import Forecast
from pytest_remotegpu.endings import FarEndError
from pytest_remotegpu.errors import FarSideError, ProtocolError, RemoteGpuError, UsageError
from pytest_remotegpu.far import FarSide
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.grown import FarClass, FarFile, FarItem, grow, items_of, made_of, report_of
from pytest_remotegpu.protocol import nodes
from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.recalling import Recall
from pytest_remotegpu.selection import (
    NO_CARD,
    Fitting,
    by_demand,
    is_marked,
    least,
    runs_nothing,
    takes_all,
)
from pytest_remotegpu.shipping import Shipping

__all__ = ["Gathering"]

ONE_CARD: Final = Shape(1)


class Gathering:
    """The plugin of a session some of whose files are collected far away.

    :param far_side: gives the far side of the session, once it is needed.
    :param fitting: of a backend that can tell beforehand what it will have.
    :param forecast: called with how many workers of each shape there will be, before there are any;
        raises a usage error where that may cost too much.
    :param recall: knows what was collected earlier.
    :param shipping: is told which files are not imported here.
    :ivar refusal: why pytest can't go on.
    :ivar recalled: files whose tests are shown as they were collected last, and when that was.
    :ivar unseen: files that only a machine could collect that is not rented for this, and why.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        far_side: Callable[[pytest.Session], FarSide],
        fitting: Fitting | None,
        forecast: Callable[[Mapping[Shape, int]], Forecast],
        recall: Recall,
        shipping: Shipping,
    ) -> None:
        self._config = config
        self._settings = settings
        self._far_side = far_side
        self._fitting = fitting
        self._forecast = forecast
        self._recall = recall
        self._shipping = shipping
        self._collectors: Collectors | None = None
        self._files: dict[Path, Gatherer] = {}
        self._nowhere: dict[Path, str] = {}
        self._known: dict[Path, list[nodes.Tree]] = {}
        self._aside = self._settled = False
        self._closed: set[str] = set()
        self.refusal: BaseException | None = None
        self.recalled: dict[str, float] = {}
        self.unseen: dict[str, str] = {}
        self._candidates: Candidates
        self._session: pytest.Session

    # the start

    def begin(self, session: pytest.Session) -> None:
        """Have all files collected that are known to be the far side's.

        What stands against it is raised once pytest collects.
        """
        self._session = session
        try:
            self._begin()
        except RemoteGpuError as error:
            self.refusal = pytest.UsageError(str(error))
        except FarEndError as error:
            self.refusal = error.error

    def _begin(self) -> None:
        found = self._find()
        if self._spares:
            found = {path: each for path, each in found.items() if self._candidates.is_named(path)}
        if not found:
            return
        if not self._may_rent:
            for path, shapes in found.items():
                self._look_up(path, self._collector_of(path, shapes))
            return
        self._far_side(self._session).opened()  # which lists the files that are sent
        self._nowhere = {path: why for path in found if (why := self._why_not_sent(path))}
        groups: dict[Shape, list[Path]] = defaultdict(list)
        for path, shapes in found.items():
            if path in self._nowhere:
                continue
            groups[self._collector_of(path, shapes)].append(path)
        expected = self._forecast(dict.fromkeys(groups, 1))
        self._far_side(self._session).summary.worst = expected.worst
        for shape, paths in groups.items():
            try:
                self._open(shape, paths)
            except FarSideError as error:
                self._far_side(self._session).summary.fail(str(error))
                self._nowhere.update(dict.fromkeys(paths, str(error)))

    @property
    def _spares(self) -> bool:
        """Whether what can be imported here is: each process would rent a machine to collect.

        So it is with pytest-xdist, unless the user has asked for it; most get few of the tests.
        """
        settings = self._settings
        asked = any(
            each.name == "collect" and each.origin != "default" for each in settings.origins
        )
        rents = isinstance(self._far_side(self._session).backend, Prices)
        return rents and bool(self._shipping.sender.worker) and not asked

    def _why_not_sent(self, path: Path) -> str:
        """Say why a file did not travel; empty where it did, or where nothing has to."""
        why, root = self._shipping.failures.why_left_out, self._config.rootpath
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        return (why and why(name)) or ""

    def _find(self) -> dict[Path, frozenset[Shape]]:
        """Find the files of the far side, and tell what may be imported there alone."""
        self._candidates = Candidates(self._config, self._settings)
        seen = self._candidates.find()
        found = {file: shapes for file, shapes in seen.items() if shapes is not None}
        if len(found) < len(seen):
            lent = self._lent(found)
            found = {file: lent if shapes is None else shapes for file, shapes in seen.items()}
        self._shipping.unimported += [*found, *self._candidates.unsure]
        return found

    def _lent(self, found: Mapping[Path, frozenset[Shape]]) -> frozenset[Shape]:
        """Give what is known of the shape of tests without a mark, where all are shipped.

        :param found: the files with marks. :raises UsageError: as :meth:`_fit` does.
        """
        shapes = self._fitted(found)
        return frozenset() if found and not shapes else frozenset([least(shapes)])

    def _fitted(self, found: Mapping[Path, Iterable[Shape]]) -> set[Shape]:
        """Give the shapes that tests of these files will have, as far as their sources show them.

        :raises UsageError: as :meth:`_fit` does.
        """
        fitted = {self._fit(path, shape) for path, shapes in found.items() for shape in shapes}
        return {shape for shape in fitted if shape is not None}

    @property
    def _may_rent(self) -> bool:
        """Whether there may be workers: none is rented for a session that only shows something."""
        idle = runs_nothing(self._config) or self._settings.plan
        return not (idle and isinstance(self._far_side(self._session).backend, Prices))

    def _far_collectors(self) -> Collectors:
        if self._collectors is None:
            self._collectors = Collectors(
                self._far_side(self._session),
                required=self._settings.required,
                say=lambda text: terminal.say(self._config, text),
            )
        return self._collectors

    def _open(self, shape: Shape, paths: Sequence[Path]) -> Gatherer:
        gatherer = self._far_collectors().open(shape, paths)
        self._files.update(dict.fromkeys(paths, gatherer))
        return gatherer

    def _collector_of(self, path: Path, shapes: Iterable[Shape]) -> Shape:
        """Choose who collects a file: the runner of its tests, where they all have the same.

        Else it is one that sees all cards of its host. Where each worker has a host of its own, it
        is the runner of some of them, or who has one card.

        :raises UsageError: where a machine would be rented for tests that it can't run.
        """
        backend = self._far_side(self._session).backend
        wanted = sorted(shapes, key=by_demand)
        nobody = NO_CARD if backend.one_host else ONE_CARD
        if not wanted or (backend.one_host and len(wanted) > 1):
            return nobody
        shape = self._fit(path, wanted[0])
        too_many = backend.capacity is not None and wanted[0].count > backend.capacity
        return nobody if shape is None or too_many else shape

    def _fit(self, path: Path, shape: Shape) -> Shape | None:
        """Give the shape of tests of a file; ``None`` where no machine can have what they need.

        :raises UsageError: for such tests, where a machine would be rented and they be selected.
        """
        if self._fitting is None:
            return shape
        try:
            return self._fitting.fit(path, shape)
        except UsageError:
            rents = isinstance(self._far_side(self._session).backend, Prices) and self._may_rent
            if rents and takes_all(self._config):
                raise
            return None  # they say what they lack, if they are selected

    def _look_up(self, path: Path, shape: Shape) -> bool:
        """Look whether it is known what a file would give; say so."""
        if not path.is_relative_to(self._config.rootpath):
            return False
        name = path.relative_to(self._config.rootpath).as_posix()
        trees, at = self._recall.find(name, shape)
        if trees:
            self._known[path] = trees
            self.recalled[name] = at
        return bool(trees)

    # pytest's collection

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Any:
        """Put a file of the far side in the place of each collector that it has."""
        found = yield
        known = len(self._known.get(file_path, ())) == len(found)
        if self._aside or not (file_path in self._files or file_path in self._nowhere or known):
            return found
        return [self._file(collector, number) for number, collector in enumerate(found)]

    def _file(self, collector: pytest.Collector, number: int) -> FarFile:
        file: FarFile = FarFile.from_parent(collector.parent, path=collector.path)
        return self._equipped(file, number, type(collector).__name__)

    def _equipped(self, file: FarFile, number: int, kind: str) -> FarFile:
        file.number = number
        file.children = []
        file.fetch = self._fetch
        file.kind = kind
        return file

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Wait for the tree of a file; have one collected there that can't be here."""
        report = yield
        if self.refusal is not None:
            raise self.refusal
        if isinstance(collector, FarFile | FarClass):
            return self._at_folder(collector) or report_of(collector) or report
        if self._is_lost(collector, report):
            if self._may_rent:
                return self._rescue(collector, report)
            if self._look_up(collector.path, self._collector_of(collector.path, ())):
                file = self._file(collector, 0)
                self._grow(file)
                return pytest.CollectReport(report.nodeid, "passed", None, list(file.children))
            if report.skipped:
                reason = str(report.longrepr[-1])
                self._leave(collector, report, reason.removeprefix("Skipped: "))
        return report

    def _at_folder(self, collector: FarFile | FarClass) -> pytest.CollectReport | None:
        """Say of a folder, once, that it can't be collected there; its files hold nothing then."""
        folder = getattr(collector, "folder", None)
        if folder is None or collector.outcome is None:
            return None
        if folder not in self._closed:
            self._closed.add(folder)
            self._config.hook.pytest_collectreport(report=made_of(folder, collector.outcome))
        return pytest.CollectReport(collector.nodeid, "passed", None, [])

    @pytest.hookimpl(tryfirst=True)
    def pytest_exception_interact(
        self, node: Any, call: pytest.CallInfo[Any], report: pytest.CollectReport
    ) -> None:
        """Say of a file that it is not collected yet, where only another machine can import it."""
        looked_at = isinstance(report, pytest.CollectReport) and self._is_lost(node, report)
        if not looked_at or self._may_rent or call.excinfo is None:
            return
        places = [node.path.parent, *folders_of(self._config)]
        why = lacking.why_not_here(call.excinfo.value, [str(place) for place in places])
        if why:
            self._leave(node, report, why)

    def _leave(self, collector: pytest.Collector, report: pytest.CollectReport, why: str) -> None:
        self.unseen[collector.nodeid] = why
        report.outcome, report.longrepr, report.result = "passed", None, []

    def _is_lost(self, collector: pytest.Collector, report: pytest.CollectReport) -> bool:
        """Say whether a file could not be collected here, and may be elsewhere."""
        return (
            isinstance(collector, pytest.Module)
            and not self._aside
            and not report.passed
            and not self._candidates.is_plain(collector.path)
        )

    def _rescue(
        self, collector: pytest.Collector, report: pytest.CollectReport
    ) -> pytest.CollectReport:
        """Have the far side collect a file; keep what was said here, where it has no mark there."""
        try:
            seen = self._candidates.shapes_of(collector.path) or ()
            gatherer = self._open(self._collector_of(collector.path, seen), [collector.path])
        except RemoteGpuError as error:
            raise pytest.UsageError(str(error)) from None
        file = self._file(collector, 0)
        try:
            self._grow(file)
        except FarEndError as error:
            raise error.error from None
        self._far_collectors().let_go(gatherer)
        marked = any(is_marked(item, self._settings.aliases) for item in items_of(file))
        if file.outcome is None and (marked or self._settings.ship_all):
            return pytest.CollectReport(report.nodeid, "passed", None, list(file.children))
        self._files.pop(collector.path, None)
        self._recall.forget(file.nodeid)
        return report

    def _fetch(self, file: FarFile) -> None:
        """Bring a file its tree; why the session can't go on is kept for where it can be said.

        Once tests run, whoever collects a file anew gets what it gave.
        """
        if self._settled and file.grown:
            return
        try:
            self._grow(file)
        except UsageError as error:
            self.refusal = pytest.UsageError(str(error))
        except FarEndError as error:
            self.refusal = error.error

    def _grow(self, file: FarFile) -> None:
        """Wait for the tree of a file, and give it that.

        :raises UsageError: where the far side can't serve this session.
        """
        if file.path in self._nowhere:
            file.outcome = nodes.Outcome("failed", to_text(self._nowhere[file.path]))
            file.grown = True
            return
        if (known := self._known.get(file.path)) is not None:
            try:
                grow(file, known[file.number])
            except ProtocolError as error:
                file.outcome = nodes.Outcome("failed", to_text(str(error)))
            file.grown = True
            return
        gatherer = self._files[file.path]
        path = file.nodeid.partition("::")[0]
        key = (path, file.number)
        tree = self._far_collectors().tree(gatherer, *key)
        if tree is None:
            self._close(file, path, gatherer)
        else:
            try:
                self._keep(key, grow(file, self._merged(key, tree)))
                self._recall.note(*key, gatherer.worker.shape, *gatherer.heard(key))
            except ProtocolError as error:
                file.outcome = nodes.Outcome("failed", to_text(str(error)))
        file.grown = True
        if file.outcome is not None and file.outcome.outcome == "failed":
            self._explain(file)

    def _close(self, file: FarFile, path: str, gatherer: Gatherer) -> None:
        """Say why a file has no tree: its folder's outcome is its own."""
        if (folder := gatherer.closed_above(path)) is not None:
            file.folder = from_text(folder.nodeid)
            file.outcome = outcome_of(folder)
            return
        why = gatherer.why_not(path, self._far_side(self._session).backend.name)
        reasons = filter(None, (why, self._why_not_sent(file.path)))
        file.outcome = nodes.Outcome("failed", to_text("\n".join(reasons)))

    def _merged(self, _key: tuple[str, int], tree: nodes.Tree) -> nodes.Tree:
        """Give what becomes of a tree before nodes are made of it."""
        return tree

    def _keep(self, key: tuple[str, int], made: list[Any]) -> None:
        """Take note of the nodes of a tree, by their places."""

    def _explain(self, file: FarFile) -> None:
        """Say of files that an error misses, and that are here, why they did not travel."""
        assert file.outcome is not None
        text = from_text(file.outcome.text)
        why = [line for line in self._far_side(self._session).explain(text) if line not in text]
        if why:
            outcome = file.outcome
            text = "\n".join([text, *why])
            file.outcome = nodes.Outcome(outcome.outcome, to_text(text), outcome.crash)

    # once pytest has selected

    def bring_here(self, session: pytest.Session) -> None:
        """Collect here, too, what holds selected tests that run here: those without the mark."""
        if self._settings.ship_all or self._settings.plan or self._config.option.collectonly:
            return  # all run there, or none does
        aliases = self._settings.aliases
        wanted = [
            item
            for item in session.items
            if isinstance(item, FarItem) and not is_marked(item, aliases)
        ]
        found: dict[tuple[Path, int], Any] = {}
        before: Counter[str] = Counter()
        replaced: dict[pytest.Item, pytest.Item] = {}
        for item in wanted:
            key = item.path, before[item.nodeid]  # chosen again it is another one
            before[item.nodeid] += 1
            if key not in found:
                found[key] = self._collect_here(item)
            replaced[item] = brought.real(item, found[key])
        brought.name_groups(self._config, [*replaced.values()])
        for other in session.items:
            here = found.get((other.path, 0))
            if isinstance(other, FarItem) and isinstance(here, dict):
                other.near = here.get(other.told_id)
        session.items[:] = [replaced.get(item, item) for item in session.items]

    def _collect_here(self, item: FarItem) -> Any:
        """Import a file after all; give its tests by their ids, or the report of the failure.

        Warnings that the far side has told of are not repeated.
        """
        with warnings.catch_warnings(record=True) as heard:
            self._aside = True
            try:
                found = brought.collect(item)
            finally:
                self._aside = False
        told = self._far_side(self._session).replayer.is_told
        for each in heard:
            if not told(each):
                warnings.warn_explicit(
                    each.message, each.category, each.filename, each.lineno, source=each.source
                )
        return found

    @property
    def beside(self) -> list[Shape]:
        """The shapes of workers that have collected and run no test."""
        return [] if self._collectors is None else self._collectors.beside

    def spare(self, items: Sequence[pytest.Item]) -> Shape:
        """Give the shape of a machine that is rented already and has collected all these tests."""
        if self._collectors is None:
            return NO_CARD
        if not isinstance(self._far_side(self._session).backend, Prices):
            return NO_CARD
        return self._collectors.shape_with({item.path for item in items})

    def assign(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        """Find out which workers run the tests of their shape, too."""
        files: dict[Shape, set[Path]] = defaultdict(set)
        for item, shape in zip(items, shapes, strict=True):
            if shape is not None:
                files[shape].add(item.path)
        if self._collectors is not None:
            self._collectors.assign(files)

    def settle(self, *, runs: bool = True) -> None:
        """Hand on each worker that runs tests; let go of the others, or only hear what is left.

        :raises UsageError: where the far side can't serve this session.
        """
        self._settled = self._settled or runs
        if self._collectors is not None:
            if runs:
                self._recall.keep()
            try:
                (self._collectors.settle if runs else self._collectors.hear_out)()
            except FarEndError as error:
                raise error.error from None
