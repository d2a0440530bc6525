"""Far collection: files whose tests run far away are collected there, and only their data is here.

Opens the workers that collect, takes in the trees, and hands each worker on to whoever runs tests
on it. Knows the far side and pytest's collection; what becomes of a test is none of its business.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import terminal
from pytest_remotegpu.candidates import NO_SHAPE, Candidates
from pytest_remotegpu.config import Settings
from pytest_remotegpu.controller import Lost, Notice, Said, Worker
from pytest_remotegpu.errors import ProtocolError, RemoteGpuError, UsageError
from pytest_remotegpu.far import SILENCE, TICK, FarSide
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.grown import Absent, FarClass, FarFile, FarItem, grow, items_of, report_of
from pytest_remotegpu.protocol import events, nodes, orders
from pytest_remotegpu.protocol.hello import Hello, differences
from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.selection import shape_of

__all__ = ["Gathering"]

MOST_ASKED: Final = 3
"""How often a far side may ask for one content."""
MOST_COLLECTORS: Final = 8
"""Collectors of one file: its module, its doctests, what plugins add."""
Key = tuple[str, int]


@dataclass
class _Gatherer:
    """One worker that collects.

    :ivar kept: what it has said that concerns whoever runs tests on it.
    :ivar done: whether it has been through its files. :ivar why: why it never will.
    """

    worker: Worker
    files: frozenset[Path]
    kept: list[Said] = field(default_factory=list)
    done: bool = False
    why: str = ""
    parts: dict[Key, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    trees: dict[Key, nodes.Tree] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    needed: Counter[str] = field(default_factory=Counter)

    @property
    def over(self) -> bool:
        return self.done or bool(self.why)


class Gathering:
    """The plugin of a session some of whose files are collected far away.

    :param far_side: gives the far side of the session, once it is needed.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        far_side: Callable[[pytest.Session], FarSide],
    ) -> None:
        self._config = config
        self._settings = settings
        self._far_side = far_side
        self._gatherers: list[_Gatherer] = []
        self._files: dict[Path, _Gatherer] = {}
        self._aside = False
        self._refusal: pytest.UsageError | None = None
        self._candidates: Candidates
        self._session: pytest.Session

    # the start

    def begin(self, session: pytest.Session) -> None:
        """Have all files collected that are known to be the far side's.

        :raises UsageError: where the project can't be sent.
        """
        self._session = session
        self._candidates = Candidates(self._config, self._settings)
        groups: dict[Shape, list[Path]] = defaultdict(list)
        for path, shape in self._candidates.find().items():
            groups[shape].append(path)
        capacity = self._far_side(session).backend.capacity if groups else None
        for shape, paths in list(groups.items()):
            if capacity is not None and shape.count > capacity:
                groups[NO_SHAPE] += groups.pop(shape, paths)  # its tests say what they lack
        for shape, paths in groups.items():
            self._open(shape, paths)

    def _open(self, shape: Shape, paths: Sequence[Path]) -> _Gatherer:
        far = self._far_side(self._session)
        worker = far.gather(shape, [str(path) for path in paths])
        gatherer = _Gatherer(worker, frozenset(paths))
        self._gatherers.append(gatherer)
        self._files.update(dict.fromkeys(paths, gatherer))
        return gatherer

    # pytest's collection

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Any:
        """Put a file of the far side in the place of each collector that it has."""
        found = yield
        if self._aside or file_path not in self._files:
            return found
        return [self._file(collector, number) for number, collector in enumerate(found)]

    def _file(self, collector: pytest.Collector, number: int) -> FarFile:
        file: FarFile = FarFile.from_parent(collector.parent, path=collector.path)
        file.number = number
        file.children = []
        file.fetch = self._fetch
        file.kind = type(collector).__name__
        return file

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Wait for the tree of a file; have one collected there that can't be here."""
        report = yield
        if self._refusal is not None:
            raise self._refusal
        if isinstance(collector, FarFile | FarClass):
            return report_of(collector) or report
        if self._is_lost(collector, report):
            return self._rescue(collector, report)
        return report

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
            gatherer = self._open(NO_SHAPE, [collector.path])
        except RemoteGpuError as error:
            raise pytest.UsageError(str(error)) from None
        file = self._file(collector, 0)
        self._grow(file)
        gatherer.worker.send(orders.Finish())
        marked = any(shape_of(item, self._settings.aliases) for item in items_of(file))
        if file.outcome is None and (marked or self._settings.ship_all):
            return pytest.CollectReport(report.nodeid, "passed", None, list(file.children))
        self._files.pop(collector.path, None)
        return report

    def _fetch(self, file: FarFile) -> None:
        """Bring a file its tree; why the session can't go on is kept for where it can be said."""
        try:
            self._grow(file)
        except pytest.UsageError as error:
            self._refusal = error

    def _grow(self, file: FarFile) -> None:
        """Wait for the tree of a file, and give it that.

        :raises pytest.UsageError: where the far side can't serve this session.
        """
        gatherer = self._files[file.path]
        path = file.nodeid.partition("::")[0]
        key = (path, file.number)
        while key not in gatherer.trees and not gatherer.over:
            self._pump()
        tree = gatherer.trees.pop(key, None)
        if tree is None:
            file.outcome = nodes.Outcome("failed", to_text(self._why_not(gatherer, path)))
            file.grown = True
            return
        try:
            grow(file, tree)
        except ProtocolError as error:
            file.outcome = nodes.Outcome("failed", to_text(str(error)))
            file.grown = True
        if file.outcome is not None and file.outcome.outcome == "failed":
            self._explain(file)

    def _explain(self, file: FarFile) -> None:
        """Say of files that an error misses, and that are here, why they did not travel."""
        assert file.outcome is not None
        text = from_text(file.outcome.text)
        why = self._far_side(self._session).explain(text)
        if why:
            outcome = file.outcome
            text = "\n".join([text, *why])
            file.outcome = nodes.Outcome(outcome.outcome, to_text(text), outcome.crash)

    def _why_not(self, gatherer: _Gatherer, path: str) -> str:
        """Say why a file has no tree."""
        for nodeid, text in gatherer.failures.items():
            if not nodeid or nodeid == path or path.startswith(f"{nodeid}/"):
                return text
        why = gatherer.why or "it found no such file, or its hooks leave it out"
        return f"the far side ({gatherer.worker.name}) did not collect {path}: {why}"

    # news

    def _pump(self) -> None:
        """Take in what comes next.

        :raises UsageError: where the far side can't serve this session.
        """
        far = self._far_side(self._session)
        said = far.opened().next(TICK)
        if said is None:
            self._expire_silent(far)
            return
        gatherer = next((g for g in self._gatherers if g.worker is said.worker), None)
        if gatherer is None:
            return
        try:
            self._take(far, gatherer, said)
        except (ProtocolError, RemoteGpuError) as error:
            if isinstance(error, UsageError):
                raise pytest.UsageError(str(error)) from None
            self._drop(gatherer, f"it broke the protocol: {error}")

    def _drop(self, gatherer: _Gatherer, why: str) -> None:
        gatherer.why = why
        gatherer.worker.send(orders.Stop(0.0))

    def _expire_silent(self, far: FarSide) -> None:
        now = time.monotonic()
        for gatherer in self._gatherers:
            worker = gatherer.worker
            silent = worker.hello is None and far.backend.prompt
            if silent and not gatherer.over and now - worker.started > SILENCE:
                self._drop(gatherer, f"it said no hello within {SILENCE:.0f} s")

    def _take(self, far: FarSide, gatherer: _Gatherer, said: Said) -> None:
        if isinstance(said.what, Lost):
            self._take_end(far, gatherer, said.what)
        elif isinstance(said.what, Hello):
            self._take_hello(far, said.what)
            gatherer.kept.append(said)
        elif isinstance(said.what, Notice):
            gatherer.kept.append(said)
        else:
            kept = [event for event in said.what if not self._take_event(far, gatherer, event)]
            if kept:
                gatherer.kept.append(replace(said, what=kept, size=0))

    def _take_hello(self, far: FarSide, hello: Hello) -> None:
        wrong = differences(far.opened().hello, hello)
        if self._settings.required and hello.pretend is not None:
            wrong.append(f"--gpu-required: its {hello.pretend} GPUs are pretend ones")
        if wrong:
            raise UsageError(_refusal(far, "\n".join(wrong)))
        far.meet(hello)

    def _take_end(self, far: FarSide, gatherer: _Gatherer, lost: Lost) -> None:
        if lost.kind == "usage" or (gatherer.worker.hello is None and not lost.hostile):
            raise UsageError(_refusal(far, lost.reason or "it ended before it said hello"))
        gatherer.why = gatherer.why or lost.reason or "it ended before it had collected"

    def _take_event(self, far: FarSide, gatherer: _Gatherer, event: Any) -> bool:
        """Take in what concerns collection; say whether the event did."""
        match event:
            case events.FileTree():
                self._take_tree(gatherer, event)
            case events.CollectFailed():
                gatherer.failures[from_text(event.nodeid)] = from_text(event.text)
            case events.StretchEnded():
                gatherer.done = True
            case events.StartFailed():
                self._take_start_failure(far, gatherer, event)
            case events.Need():
                self._take_need(far, gatherer, event)
            case events.Waiting():
                if text := from_text(event.text):
                    terminal.say(self._config, f"waiting to collect: {text}")
            case events.Warned():
                far.replayer.warn(event, "")
            case _:
                return False
        return True

    def _take_tree(self, gatherer: _Gatherer, event: events.FileTree) -> None:
        key = (from_text(event.path), event.number)
        parts = gatherer.parts[key]
        if len(gatherer.parts) + len(gatherer.trees) > MOST_COLLECTORS * len(gatherer.files):
            raise ProtocolError("it tells of more files than it was asked for")
        parts += event.data
        if len(parts) > nodes.LARGEST:
            raise ProtocolError(f"the tree of {key[0]} has more than {nodes.LARGEST} bytes")
        if event.last:
            # a process that took over from one that had ended tells again: the first counts
            gatherer.trees.setdefault(key, nodes.decode(bytes(gatherer.parts.pop(key))))

    def _take_start_failure(
        self, far: FarSide, gatherer: _Gatherer, event: events.StartFailed
    ) -> None:
        text = from_text(event.text).strip() or "it could not start and did not say why"
        if event.usage:
            raise UsageError(_refusal(far, "\n".join([text, *far.explain(text)])))
        gatherer.why = text

    def _take_need(self, far: FarSide, gatherer: _Gatherer, event: events.Need) -> None:
        gatherer.needed.update(event.digests)
        if max(gatherer.needed.values(), default=0) > MOST_ASKED:
            raise ProtocolError("the same contents are asked for again and again")
        far.supply(event.digests, gatherer.worker)

    # once pytest has selected

    def bring_here(self, session: pytest.Session) -> None:
        """Collect here, too, what holds selected tests that run here: those without the mark."""
        if self._settings.ship_all or self._settings.plan or self._config.option.collectonly:
            return  # all run there, or none does
        aliases = self._settings.aliases
        wanted = [
            item
            for item in session.items
            if isinstance(item, FarItem) and shape_of(item, aliases) is None
        ]
        found: dict[Path, Any] = {}
        for item in wanted:
            if item.path not in found:
                found[item.path] = self._collect_here(item)
        replaced = {item: _real(item, found[item.path]) for item in wanted}
        session.items[:] = [replaced.get(item, item) for item in session.items]  # type: ignore[call-overload]

    def _collect_here(self, item: FarItem) -> Any:
        """Import a file after all; give its tests by their ids, or the report of the failure."""
        file = item.getparent(FarFile)
        assert file is not None
        above: Any = file.parent
        self._aside = True
        try:
            tests: dict[str, pytest.Item] = {}
            for collector in above.ihook.pytest_collect_file(file_path=file.path, parent=above):
                report = collector.ihook.pytest_make_collect_report(collector=collector)
                if not report.passed:
                    return report
                tests.update((test.nodeid, test) for test in self._tests(report))
        finally:
            self._aside = False
        return tests

    def _tests(self, report: pytest.CollectReport) -> Iterator[pytest.Item]:
        for node in report.result:
            if isinstance(node, pytest.Item):
                yield node
            else:
                yield from self._tests(node.ihook.pytest_make_collect_report(collector=node))

    def settle(self, items: Sequence[pytest.Item], shapes: Sequence[Shape | None]) -> None:
        """Hand on each worker that can run tests; let go of the others."""
        files: dict[Shape, set[Path]] = defaultdict(set)
        for item, shape in zip(items, shapes, strict=True):
            if shape is not None:
                files[shape].add(item.path)
        for gatherer in self._gatherers:
            while not gatherer.over:
                self._pump()
            shape = gatherer.worker.shape
            serves = gatherer.done and shape in files and files[shape] <= gatherer.files
            if serves and not gatherer.why:
                self._far_side(self._session).hand_on(gatherer.worker, gatherer.kept)
            elif not gatherer.why:
                gatherer.worker.send(orders.Finish())
        self._gatherers.clear()


def _real(item: FarItem, found: Any) -> pytest.Item:
    """Give the test of the same id that was collected here, or one that says why there is none."""
    real: pytest.Item | None = found.get(item.nodeid) if isinstance(found, dict) else None
    if real is None:
        text = "it is not among the tests that its file has here"
        absent: Absent = Absent.from_parent(_folder(item), name=item.name, nodeid=item.nodeid)
        absent.why = text if isinstance(found, dict) else found
        absent.place = item.place
        return absent
    for mark in item.own_markers[item.told :]:
        real.add_marker(getattr(pytest.mark, mark.name).with_args(*mark.args, **mark.kwargs))
    real.user_properties += item.user_properties
    return real


def _folder(item: FarItem) -> pytest.Collector:
    file: Any = item.getparent(FarFile)
    return file.parent  # type: ignore[no-any-return]


def _refusal(far: FarSide, text: str) -> str:
    return f"the far side ({far.backend.name}) can't serve this session:\n{text}"
