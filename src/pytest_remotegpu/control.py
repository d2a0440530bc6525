"""The controller plugin: takes a session over from the end of its collection to its last report.

Answers pytest's hooks and hands on; knows nothing of the wire or of a worker's inside.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import (
    attempts,
    conftests,
    desk,
    plan,
    pool,
    selection,
    spending,
    terminal,
    timeline,
)
from pytest_remotegpu.backends.base import (
    Announces,
    Backend,
    Checks,
    Describes,
    Heading,
    Picks,
    Prepares,
    Prices,
)
from pytest_remotegpu.collection import Collection
from pytest_remotegpu.config import Settings
from pytest_remotegpu.conftestless import Conftestless
from pytest_remotegpu.cost import Forecast
from pytest_remotegpu.durations import Durations
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.far import FarSide
from pytest_remotegpu.gathering import Gathering
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.grown import LackingError
from pytest_remotegpu.inplace import artifacts_root, has_run, holds_context, require_gpu
from pytest_remotegpu.outputs import clear
from pytest_remotegpu.recalling import Recall
from pytest_remotegpu.reports import Result
from pytest_remotegpu.session import RemoteSession
from pytest_remotegpu.shipping import Sender, Shipping, Start
from pytest_remotegpu.signals import Interrupts
from pytest_remotegpu.summary import RunSummary

__all__ = ["Control", "Requirement", "header", "show_summary"]


def _place(backend: Backend) -> str:
    """Name a backend, with a word about it where it has one."""
    return backend.name if backend.where == backend.name else f"{backend.name}, {backend.where}"


def header(backend: Backend, settings: Settings) -> list[str]:
    """Name the far side, for the header of a session; and the interpreter that it does not take."""
    lines = [f"remote: {_place(backend)}{' (no GPU is used)' if backend.pretends else ''}"]
    if settings.python and isinstance(backend, Describes):
        lines.append(
            f"remote: remotegpu_python = {settings.python} counts for nothing at {backend.name}, "
            "whose machines have an interpreter of their own; remotegpu_image says which"
        )
    return lines


def show_summary(
    reporter: pytest.TerminalReporter, settings: Settings, summary: RunSummary
) -> None:
    """Let others add to the summary, and write the closing sections."""
    config = reporter.config
    config.hook.pytest_remotegpu_summary(config=config, summary=summary)
    terminal.write_summary(reporter, summary)
    if settings.timeline:
        terminal.write_timeline(reporter, timeline.lines(summary.phases))


CONTEXT: Final = (
    "this process has a CUDA context of its own since collection: it takes memory of a card that "
    "tests are given; let no module use CUDA while it is imported"
)


class Control:
    """Registered only where a far side, or a plan, is asked for.

    :ivar shapes: for each selected test its shape, once collection has ended.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        backend: Backend | None,
        start: Start,
        sender: Sender | None = None,
    ) -> None:
        self._config = config
        self._settings = settings
        self._backend = backend
        self._collection = Collection()
        ships = backend is not None and backend.ships_tree
        self._shipping = Shipping(
            config,
            settings,
            start,
            self._collection,
            ships_tree=ships,
            names_cards=not (isinstance(backend, Picks) and backend.picks_cards),
            sender=sender or Sender(),
        )
        self._shipping.nobody = desk.why_nobody(
            backend, there=start.terminal, distributed=sender is not None
        )
        self._far: FarSide | None = None
        self._interrupts = Interrupts()
        self._early_warnings: list[Any] = []
        self._began = time.monotonic()
        self._collected = (self._began, self._began)
        self._running = self._ended = False
        self._speaks = True
        far = settings.collect_far and backend is not None
        self._fitting = selection.Fitting(backend, config) if isinstance(backend, Checks) else None
        self._gathering: Gathering | None = None
        if far and backend is not None:
            kind = Conftestless if settings.conftest_far else Gathering
            self._gathering = kind(
                config,
                settings,
                self._far_side,
                self._fitting,
                self._forecast_of,
                Recall(config, settings, backend, self._shipping),
                self._shipping,
            )
        self.shapes: list[Shape | None] = []

    @property
    def summary(self) -> RunSummary | None:
        """What there is to say of the far side, once there is one."""
        shown = self._running or self._ended
        return self._far.summary if self._far is not None and shown else None

    def pytest_report_header(self) -> list[str] | None:
        """Name the far side."""
        if self._backend is None:
            return None
        return [*header(self._backend, self._settings), *conftests.lines(self._config)]

    def pytest_configure(self, config: pytest.Config) -> None:
        """Let files be collected on the far side where that is asked for."""
        if self._gathering is not None:
            config.pluginmanager.register(self._gathering, "remotegpu-gathering")

    @pytest.hookimpl(tryfirst=True)
    def pytest_exception_interact(
        self,
        node: object,
        call: pytest.CallInfo[Any],
        report: pytest.CollectReport | pytest.TestReport,
    ) -> None:
        """Help where a folder's conftest can't be imported here."""
        if self._backend is not None:
            conftests.hint_in_folder(node, call, report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Iterator[None]:
        """See how long collection takes here."""
        start = time.monotonic()
        if isinstance(self._backend, Prepares) and not self._runs_nothing:
            self._backend.prepare()
        if self._gathering is not None:
            self._gathering.begin(session)
        try:
            return (yield)
        except LackingError as lack:
            refusal = pytest.UsageError(f"{lack.where(self._config.rootpath)}\n{lack}".strip())
            if self._gathering is not None:
                self._gathering.refusal = refusal
            raise refusal from None
        finally:
            self._collected = (start, time.monotonic())

    @property
    def _runs_nothing(self) -> bool:
        """Whether no worker is needed; what others have collected has no fixtures to show here."""
        if self._settings.plan or self._config.option.collectonly:
            return True
        collects_here = self._gathering is None or isinstance(self._backend, Prices)
        return collects_here and selection.runs_nothing(self._config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """See the tests in the order of their collection, before they are selected."""
        self._collection.record(items)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find out what goes where; ill-formed marks end the session before anything starts."""
        try:
            self._find_shapes(session)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
        if isinstance(self._backend, Prepares) and all(shape is None for shape in self.shapes):
            self._backend.close()  # nobody will need what was begun

    def _find_shapes(self, session: pytest.Session) -> None:
        """Find out what goes where; have collected here, too, what runs here.

        :raises UsageError: for an ill-formed mark, or one that the far side can't meet.
        """
        spare = selection.NO_CARD
        if self._gathering is not None:
            self._gathering.bring_here(session)
            spare = self._gathering.spare(session.items)
        self.shapes = selection.shapes_of(session.items, self._settings, self._fitting, spare)
        if self._gathering is not None:
            self._gathering.assign(session.items, self.shapes)

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Say what goes where, and what looks as if it should have gone too.

        With ``-q`` that is only what machines may cost that are rented.
        """
        if self._config.get_verbosity() < 0:
            rents = isinstance(self._backend, Prices) and not self._runs_nothing
            costs = self._cost_lines() if rents else []
            return [*(f"remote: {text}" for text in costs), *self._unseen_lines()]
        lines = [f"remote: {plan.counts(self.shapes)}"] if self._backend is not None else []
        if not self._settings.plan:
            lines += [f"remote: {text}" for text in self._cost_lines()]
        if self._fitting is not None:
            lines += [f"remote: {text}" for text in self._fitting.notes]
        lines += self._unseen_lines()
        return lines + [
            f"remote: {text}" for text in selection.near_misses(items, self.shapes, self._settings)
        ]

    def _unseen_lines(self) -> list[str]:
        """Name the files whose tests nobody knows, since no machine is rented for a look."""
        if self._gathering is None:
            return []
        way = "no machine is rented for that alone"
        lines = [
            f"remote: not collected: {file} (not to be had here: {why}; {way})"
            for file, why in self._gathering.unseen.items()
        ]
        for file, at in self._gathering.recalled.items():
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
            lines.append(f"remote: as collected there at {when}, still the same here: {file}")
        return lines

    def _forecast(self) -> Forecast:
        """Say the most that this session can cost.

        :raises UsageError: where that is more than it may.
        """
        if self._backend is None:
            return Forecast(None, "")
        workers = {shape: self._width(shape) for shape in dict.fromkeys(self.shapes) if shape}
        if self._gathering is not None:
            for shape in self._gathering.beside:
                workers[shape] = workers.get(shape, 0) + 1
        return self._forecast_of(workers)

    def _forecast_of(self, workers: Mapping[Shape, int]) -> Forecast:
        """Say the most that workers can cost, in each process that has such.

        :raises UsageError: where that is more than they may.
        """
        assert self._backend is not None
        senders = self._shipping.sender.workers or 1
        each = {shape: senders * number for shape, number in workers.items()}
        return spending.forecast(self._backend, self._settings, each)

    def _width(self, shape: Shape) -> int:
        """Say how many workers of a shape there may be at once."""
        capacity = None if self._backend is None else self._backend.capacity
        number = self.shapes.count(shape)
        return pool.width_of(self._settings.workers, number, shape.count, capacity)

    def _cost_lines(self) -> list[str]:
        """Say what the session may cost, or why it may not."""
        try:
            text = self._forecast().text
        except UsageError as error:
            text = f"refused: {error}"
        return [f"cost: {text}"] if text else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the session, unless it has nothing to ship."""
        option = session.config.option
        failed = session.testsfailed and not option.continue_on_collection_errors
        try:
            if failed or (self._runs_nothing and not self._settings.plan):
                if not (session.shouldstop or session.shouldfail):
                    self._settle_collection(runs=False)
                return None
            if self._settings.plan:
                self._print_plan(session)
                return True
            if self._backend is None or all(shape is None for shape in self.shapes):
                self._settle_collection()
                return None
            expected = self._forecast()
            pairs = zip(session.items, self.shapes, strict=True)
            left = clear(
                self._artifacts_root(), (item.nodeid for item, shape in pairs if shape is not None)
            )
            far = self._begin_far(session)
            self._settle_collection()
            far.summary.note(left)
            far.summary.worst = expected.worst
            far.spending.expect(expected)
            RemoteSession(session, far).run(session.items, self.shapes)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
        return True

    def _settle_collection(self, *, runs: bool = True) -> None:
        """Hand on the workers that have collected, or let go of them, or hear the rest only."""
        if self._gathering is not None:
            self._gathering.settle(runs=runs)

    def _far_side(self, session: pytest.Session) -> FarSide:
        """Give the far side of this session."""
        if self._far is None:
            assert self._backend is not None
            self._far = FarSide(
                session,
                self._settings,
                self._backend,
                collection=self._collection,
                shipping=self._shipping,
                artifacts_dir=self._artifacts_root(),
                interrupts=self._interrupts,
                began=self._began,
            )
            for message in self._early_warnings:
                self._far.replayer.seen_here(message)
        return self._far

    def _artifacts_root(self) -> Path:
        """Name the folder for what tests leave."""
        return artifacts_root(self._config, self._settings.artifacts)

    def _begin_far(self, session: pytest.Session) -> FarSide:
        """Give the far side of a session that is to run, and tell it what has happened so far."""
        far = self._far_side(session)
        self._running = True
        backend = far.backend
        far.timeline.span(far.here, "collection here", *self._collected)
        if backend.one_host and not backend.ships_tree and not backend.pretends and holds_context():
            far.summary.note(CONTEXT)
        if self._speaks and isinstance(backend, Announces):
            with contextlib.suppress(UsageError):  # who opens a worker is told
                for text in backend.announced():
                    if isinstance(text, Heading):
                        terminal.head(self._config, text)
                        far.summary.show(text.page)
                    else:
                        terminal.say(self._config, text, of_all=True)
        return far

    def _print_plan(self, session: pytest.Session) -> None:
        self._shipping.take_snapshot()
        taken = self._shipping.snapshot
        upload = (
            "nothing"
            if taken is None
            else f"{len(taken.entries)} files, {sum(e.size for e in taken.entries)} bytes"
        )
        if taken is not None:
            upload += "".join(f"\n  left out: {path} {why}" for path, why in taken.left_out)
            upload += "".join(f"\n{text}" for text in self._shipping.further.describe())
        if isinstance(self._backend, Describes):
            upload += "".join(f"\nenvironment: {text}" for text in self._backend.describe())
        where = None if self._backend is None else _place(self._backend)
        ids = [item.nodeid for item in session.items]
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        costs = self._cost_lines()
        origins, hides = self._settings.origins, self._shipping.blotted
        lines = plan.describe(ids, self.shapes, origins, where, upload, costs, hides)
        for line in [*lines, *self._describe_groups(ids)]:
            if reporter is not None:
                reporter.write_line(line)

    def _describe_groups(self, ids: list[str]) -> list[str]:
        """Write which tests workers would take together, where several share those of a shape."""
        lines: list[str] = []
        durations = Durations.of_session(self._config)
        far = sorted({shape for shape in self.shapes if shape is not None})
        for shape in far if self._backend is not None else ():
            own = [id for id, other in zip(ids, self.shapes, strict=True) if other == shape]
            width = self._width(shape)
            if width > 1:
                groups = pool.groups(own, durations.of, width)
                lines += plan.describe_groups(shape, width, groups)
        return lines

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Be no green session where a far one failed at its end, or nobody knows how it ended."""
        if self._far is None:
            return
        self._far.summary.unmet = self._far.failures.unmet()
        if not self._running:
            self._end_collectors(session)
            return
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = self._far.summary.status
        self._far.replayer.write_commit()
        self._far.replayer.write_costs()

    def _end_collectors(self, session: pytest.Session) -> None:
        """End workers that have collected for a session that runs no test on them.

        What there is to say of them is shown where something has failed, or where they are rented.
        """
        far = self._far
        if far is None or far.controller is None:
            return
        far.close()
        failed = bool(session.testsfailed) and not self._runs_nothing
        noted = bool(far.summary.all_notes() or far.summary.causes)
        paid = isinstance(self._backend, Prices) and bool(far.controller.workers)
        self._ended = (failed and noted) or paid

    def pytest_warning_recorded(self, warning_message: Any, when: str) -> None:
        """Remember this side's own warnings, which the far side would repeat."""
        if not self._running and when != "runtest":
            self._early_warnings.append(warning_message)
            if self._far is not None:
                self._far.replayer.seen_here(warning_message)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Answer for a test that is being replayed."""
        return self._far.replayer.answer(item) if self._far is not None else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Any:
        """Give a test that had sub-tests the outcome that pytest gives it there; show reruns."""
        if self._far is not None and report.when == "call":
            self._far.replayer.settle(report)
        return attempts.status(self._config, report)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the closing sections."""
        if self._far is not None and self.summary is not None:
            show_summary(terminalreporter, self._settings, self._far.summary)
        elif self._far is not None and self._far.summary.unmet is not None:
            terminalreporter.line(f"remote: {self._far.summary.unmet.words()}")

    def pytest_unconfigure(self) -> None:
        """Leave no worker behind, whatever has happened."""
        if self._far is not None:
            self._far.close()
            if self._far.controller is not None:
                self._far.controller.wait()
        if isinstance(self._backend, Prepares):
            self._backend.close()
        self._shipping.close()


class Requirement:
    """Registered for ``--gpu-required``: no session passes that had to use a GPU and has not."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ran = 0

    def pytest_remotegpu_result(self, item: pytest.Item, result: Result) -> None:
        """Count the marked tests that ran where GPUs are."""
        marked = selection.shape_of(item, self._settings.aliases) is not None
        self._ran += marked and any(map(has_run, result.reports))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look at the count."""
        require_gpu(session, self._ran)
