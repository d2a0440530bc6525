"""The workers that collect: opened for files, heard until these are through, replaced when lost.

Knows the far side and the trees that come from there, as data; knows no node of pytest's.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_remotegpu.backends.base import Prepares
from pytest_remotegpu.controller import Lost, Notice, Said, Worker
from pytest_remotegpu.endings import FarEndError
from pytest_remotegpu.errors import ProtocolError, RemoteGpuError, UsageError
from pytest_remotegpu.far import SILENCE, TICK, FarSide
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, inventory, nodes, orders
from pytest_remotegpu.protocol.hello import Hello, differences
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.selection import least

__all__ = ["Collectors", "Gatherer", "outcome_of"]

MOST_ASKED: Final = 3
"""How often a far side may ask for one content."""
MOST_COLLECTORS: Final = 8
"""Collectors of one file: its module, its doctests, what plugins add."""
MOST_FILES: Final = 100_000
"""Files that a far side may have collected which was not told which ones."""
MOST_LOST: Final = 1
"""How many workers may be lost over the same files, without anybody's notice."""
MOST_UNHEARD: Final = 3
"""How many may be lost before they have said anything: the files had no part in that."""
MOST_TAKEN: Final = 3
"""How many may be taken away by whoever rents them out."""
Key = tuple[str, int]


class Gatherer(Struct):
    """One worker that collects.

    :ivar files: those that it collects; ``None`` for all that there are. :ivar asked: what it was
        given for that. :ivar hooked: what hooks of the far side have left of all tests.
    :ivar kept: what it has said that concerns whoever runs tests on it.
    :ivar done: whether it has been through its files. :ivar why: why it never will.
    :ivar lost: how many workers were lost in whose place this one is, :ivar taken: how many were
        taken away. :ivar serves: whether it is to run the tests of its shape.
    :ivar sources: the Python files that it has read. :ivar told: the trees as they came, and how
        many of those files had been read by each.
    """

    worker: Worker
    files: frozenset[Path] | None
    asked: list[str] = field(default_factory=list)
    kept: list[Said] = field(default_factory=list)
    done: bool = False
    why: str = ""
    sources: list[str] = field(default_factory=list)
    told: dict[Key, tuple[bytes, int]] = field(default_factory=dict)
    parts: dict[Key, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    trees: dict[Key, nodes.Tree] = field(default_factory=dict)
    failures: dict[str, events.CollectFailed] = field(default_factory=dict)
    needed: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    taken: int = 0
    serves: bool = False
    hooked: nodes.Hooked | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more is to come of its files."""
        return self.done or bool(self.why)

    def heard(self, key: Key) -> tuple[bytes, list[str]]:
        """Give a tree as it came, once, and the Python files that had been read by then."""
        data, read = self.told.pop(key, (b"", 0))
        return data, self.sources[:read]

    def disagreeing(self) -> list[Said]:
        """Give the failures of files that have tests all the same: of some of several ranks."""
        fine = {path for (path, _), tree in self.trees.items() if tree.nodes[0].outcome is None}
        found: list[Any] = [failure for nodeid, failure in self.failures.items() if nodeid in fine]
        return [Said(self.worker, found, told=True)] if found else []

    def closed_above(self, path: str) -> events.CollectFailed | None:
        """Give what was said of a folder above a path that could not be collected there."""
        for nodeid, failure in self.failures.items():
            if not nodeid or path.startswith(f"{nodeid}/"):
                return failure
        return None

    def why_not(self, path: str, where: str) -> str:
        """Say why a path has no tree.

        :param where: names the far side; no worker, so that all processes of a session say alike.
        """
        if path in self.failures:
            return from_text(self.failures[path].text)
        why = self.why or "it found no such file, or its hooks leave it out"
        return f"the far side ({where}) did not collect {path}: {why}"


def outcome_of(failure: events.CollectFailed) -> nodes.Outcome:
    """Give how a collection there has ended, as a tree has it."""
    kind: Literal["failed", "skipped"] = "skipped" if failure.skipped else "failed"
    return nodes.Outcome(kind, failure.text, failure.crash)


class Collectors:
    """The workers of one session that collect.

    :param far: its far side. :param required: whether tests have to run on a GPU.
    :param say: says something to the user at once.
    :ivar beside: the shapes of workers that have collected and run no test.
    """

    def __init__(self, far: FarSide, *, required: bool, say: Callable[[str], None]) -> None:
        self._far = far
        self._required = required
        self._say = say
        self._gatherers: list[Gatherer] = []
        self._let_go: set[Shape] = set()
        self.beside: list[Shape] = []

    def open(self, shape: Shape, paths: Sequence[Path]) -> Gatherer:
        """Have a worker of a shape collect files.

        :raises FarSideError: where none is to be had.
        """
        return self._open(shape, frozenset(paths), [str(path) for path in paths])

    def open_for_all(self, shape: Shape, arguments: Sequence[str]) -> Gatherer:
        """Have a worker of a shape collect all that there is under a session's arguments.

        :raises FarSideError: where none is to be had.
        """
        return self._open(shape, None, list(arguments))

    def _open(self, shape: Shape, files: frozenset[Path] | None, asked: list[str]) -> Gatherer:
        gatherer = Gatherer(self._far.gather(shape, asked), files, asked)
        self._gatherers.append(gatherer)
        return gatherer

    def wait(self, gatherer: Gatherer) -> None:
        """Wait until nothing more is to come of its files.

        :raises UsageError: where the far side can't serve this session.
        """
        while not gatherer.over:
            self._pump()

    def tree(self, gatherer: Gatherer, path: str, number: int) -> nodes.Tree | None:
        """Wait for the tree of one collector of a file; ``None`` where none comes.

        :raises UsageError: where the far side can't serve this session.
        """
        key = (path, number)
        while key not in gatherer.trees and not gatherer.over and gatherer in self._gatherers:
            self._pump()
        return gatherer.trees.get(key)  # it stays: a file may be collected again

    # the end

    def shape_with(self, files: set[Path]) -> Shape:
        """Give the shape of a worker that has collected all these files, and could run any test."""
        shapes = [
            each.worker.shape
            for each in self._gatherers
            if not each.why and (each.files is None or files <= each.files)
        ]
        return least(shape for shape in shapes if not shape.launcher)

    def assign(self, files: dict[Shape, set[Path]]) -> None:
        """Find out which workers run tests, too: who has collected all those of its shape.

        :param files: those of the tests, by shape.
        """
        for gatherer in self._gatherers:
            shape = gatherer.worker.shape
            has_all = gatherer.files is None or files.get(shape, set()) <= gatherer.files
            gatherer.serves = shape in files and has_all
        others = [each.worker.shape for each in self._gatherers if not each.serves]
        self.beside = [*others, *self._let_go]

    def hear_out(self) -> None:
        """Wait for what is said after the last file, such as warnings.

        :raises UsageError: where the far side can't serve this session.
        """
        for gatherer in list(self._gatherers):
            self.wait(gatherer)

    def settle(self) -> None:
        """Hand on each worker that runs tests; let go of the others.

        :raises UsageError: where the far side can't serve this session.
        """
        self.hear_out()
        for gatherer in list(self._gatherers):
            if gatherer.serves and not gatherer.why:
                self._far.hand_on(gatherer.worker, [*gatherer.kept, *gatherer.disagreeing()])
            else:
                self.let_go(gatherer)
            gatherer.trees.clear()
        self._gatherers.clear()

    def let_go(self, gatherer: Gatherer) -> None:
        """End a worker that runs no test; the next one may have its machine."""
        self._gatherers.remove(gatherer)
        self._let_go.add(gatherer.worker.shape)
        for said in gatherer.kept:  # nobody else hears of it
            self._far.timeline.take(said)
        if not gatherer.why:
            gatherer.worker.send(orders.Finish() if gatherer.done else orders.Stop(0.0))

    # news

    def _pump(self) -> None:
        """Take in what comes next; while somebody debugs, nothing is collected here.

        :raises UsageError: where the far side can't serve this session.
        """
        self._hear()
        while self._far.desk.busy:
            self._hear()

    def _hear(self) -> None:
        """Take in what comes next.

        :raises UsageError: where the far side can't serve this session.
        """
        self._far.pass_on_words()
        said = self._far.desk.next(self._far.opened(), TICK)
        if said is None:
            self._expire_silent()
            return
        gatherer = next((each for each in self._gatherers if each.worker is said.worker), None)
        if gatherer is None:
            return
        try:
            self._take(gatherer, said)
        except UsageError:
            raise
        except (ProtocolError, RemoteGpuError) as error:
            self._drop(gatherer, f"it broke the protocol: {error}")

    def _drop(self, gatherer: Gatherer, why: str) -> None:
        gatherer.why = why
        gatherer.worker.send(orders.Stop(0.0))

    def _expire_silent(self) -> None:
        now = time.monotonic()
        for gatherer in self._gatherers:
            worker = gatherer.worker
            silent = worker.hello is None and self._far.backend.prompt
            if silent and not gatherer.over and now - worker.started > SILENCE:
                self._drop(gatherer, f"it said no hello within {SILENCE:.0f} s")

    def _take(self, gatherer: Gatherer, heard: Said) -> None:
        self._far.news.tell(heard)
        said = replace(heard, told=True)
        if isinstance(said.what, Lost):
            self._far.desk.gone(said.worker)
            self._take_end(gatherer, said.what)
        elif isinstance(said.what, Hello):
            self._take_hello(said.what)
            gatherer.kept.append(said)
        elif isinstance(said.what, Notice):
            gatherer.kept.append(said)
        else:
            if needs := [event for event in said.what if isinstance(event, events.Need)]:
                self._far.timeline.take(replace(said, what=needs))
            kept = [event for event in said.what if not self._take_event(gatherer, event)]
            if kept:
                gatherer.kept.append(replace(said, what=kept, size=0))

    def _take_hello(self, hello: Hello) -> None:
        wrong = differences(self._far.opened().hello, hello)
        if self._required and hello.pretend is not None:
            wrong.append(f"--gpu-required: its {hello.pretend} GPUs are pretend ones")
        if wrong:
            raise UsageError(self._refusal(wrong))
        self._far.failures.meet(hello, made=isinstance(self._far.backend, Prepares))

    def _refusal(self, texts: Iterable[str]) -> str:
        head = f"the far side ({self._far.backend.name}) can't serve this session:"
        return "\n".join([head, *texts])

    def _take_end(self, gatherer: Gatherer, lost: Lost) -> None:
        """A stream has ended: in good order, or before its files were through."""
        worker = gatherer.worker
        passing = getattr(worker.channel, "passing", False) or lost.preempted
        greeted = worker.hello is not None or passing
        if lost.kind == "usage" or not (greeted or lost.hostile or lost.kind):
            raise UsageError(self._refusal([lost.reason or "it ended before it said hello"]))
        final = lost.hostile or worker.limit or lost.kind == "infra"
        if gatherer.over or final or not self._replace(gatherer, lost):
            reason = lost.reason or "it ended before it had collected"
            gatherer.why = gatherer.why or worker.limit or reason
            if not gatherer.done:
                self._far.summary.fail(gatherer.why)

    def _replace(self, gatherer: Gatherer, lost: Lost) -> bool:
        """Have another worker collect in the place of one that was lost; say whether one does.

        :raises FarSideError: where none is to be had.
        """
        gatherer.taken += lost.preempted
        gatherer.lost += not lost.preempted
        most = MOST_LOST if gatherer.worker.hello is not None else MOST_UNHEARD
        if gatherer.lost > most or gatherer.taken > MOST_TAKEN:
            return False
        what = "taken away" if lost.preempted else "lost"
        first = lost.reason.splitlines()[0] if lost.reason else "it ended"
        self._far.summary.note(f"{gatherer.worker.name} was {what} while it collected: {first}")
        for heard in (gatherer.parts, gatherer.kept, gatherer.needed):
            heard.clear()
        gatherer.worker = self._far.gather(gatherer.worker.shape, gatherer.asked)
        return True

    def _take_event(self, gatherer: Gatherer, event: Any) -> bool:
        """Take in what concerns collection; say whether the event did."""
        match event:
            case events.FileTree():
                self._take_tree(gatherer, event)
            case events.CollectFailed():
                gatherer.failures[from_text(event.nodeid)] = event
            case events.StretchEnded():
                gatherer.done = True
            case events.StartFailed() | events.Exited():
                self._take_early_end(gatherer, event)
            case events.Need():
                self._take_need(gatherer, event)
            case events.Waiting():
                if text := from_text(event.text):
                    self._say(f"waiting to collect: {text}")
            case inventory.Has():
                self._far.failures.take(event)
            case events.Warned():
                self._far.replayer.warn(event, "")
            case _:
                return self._far.desk.takes(gatherer.worker, event)
        return True

    def _take_tree(self, gatherer: Gatherer, event: events.FileTree) -> None:
        key = (from_text(event.path), event.number)
        parts = gatherer.parts[key]
        most = MOST_FILES if gatherer.files is None else len(gatherer.files)
        if len(gatherer.parts) + len(gatherer.trees) > MOST_COLLECTORS * most:
            raise ProtocolError("it tells of more files than it was asked for")
        parts += event.data
        if len(parts) > nodes.LARGEST:
            raise ProtocolError(f"the tree of {key[0]} has more than {nodes.LARGEST} bytes")
        if event.last and gatherer.files is None and not key[0]:
            gatherer.hooked = nodes.decode_hooked(bytes(gatherer.parts.pop(key)))
        elif event.last:
            # a process that took over from one that had ended tells again: the first counts
            data = bytes(gatherer.parts.pop(key))
            tree = nodes.decode(data)
            gatherer.sources += map(from_text, tree.sources)
            if len(gatherer.sources) > MOST_FILES:
                raise ProtocolError(f"it has read more than {MOST_FILES} files of the project")
            gatherer.told.setdefault(key, (data, len(gatherer.sources)))
            gatherer.trees.setdefault(key, tree)

    def _take_early_end(
        self, gatherer: Gatherer, event: events.StartFailed | events.Exited
    ) -> None:
        if isinstance(event, events.Exited):
            gatherer.why = "the session has ended there"
            raise FarEndError(event)
        text = self._far.failures.of_start(from_text(event.text).strip())
        text = text or "it could not start and did not say why"
        if event.usage:
            raise UsageError(self._refusal([text, *self._far.explain(text, ends=True)]))
        gatherer.why = text

    def _take_need(self, gatherer: Gatherer, event: events.Need) -> None:
        gatherer.needed.update(event.digests)
        if max(gatherer.needed.values(), default=0) > MOST_ASKED:
            raise ProtocolError("the same contents are asked for again and again")
        self._far.news.supply(event.digests, gatherer.worker)
