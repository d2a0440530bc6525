"""The controller plugin: takes a session over from the end of its collection to its last report.

Answers pytest's hooks and hands on; knows nothing of the wire or of a worker's inside.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_remotegpu import backends, plan, selection, terminal
from pytest_remotegpu.backends.base import Backend, Site
from pytest_remotegpu.collection import Collection
from pytest_remotegpu.config import Settings, split_spec
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.inplace import artifacts_root, has_run, require_gpu
from pytest_remotegpu.outputs import clear
from pytest_remotegpu.reports import Result
from pytest_remotegpu.session import RemoteSession
from pytest_remotegpu.shipping import Shipping, Start

__all__ = ["Control", "make"]


def make(config: pytest.Config, settings: Settings, start: tuple[Any, ...]) -> Control:
    """Check what can be checked before collection, and make the plugin.

    :raises UsageError: for an ill-formed spec, or options that don't go together.
    """
    backend = None
    if settings.spec is not None:
        name, rest = split_spec(settings.spec)
        backend = backends.find(name, rest, Site(settings.python, sys.executable, sys.platform))
        _check(config, settings, backend)
    if settings.required and not settings.plan:
        config.pluginmanager.register(Requirement(settings), "remotegpu-required")
    return Control(config, settings, backend, Start(*start))


def _check(config: pytest.Config, settings: Settings, backend: Backend) -> None:
    option = config.option
    if getattr(option, "numprocesses", None) or getattr(option, "tx", None):
        raise UsageError(
            "-n together with --remote is not built yet; leave out -n, "
            "the far side has its own processes"
        )
    if getattr(option, "usepdb", False) or getattr(option, "trace", False):
        raise UsageError(
            "--pdb and --trace need a terminal, and shipped tests have none; "
            "run the test without --remote"
        )
    if settings.required and backend.pretends:
        raise UsageError(
            f"--gpu-required refuses --remote={settings.spec}, which uses no GPU; "
            "name a far side that has one"
        )


def _place(backend: Backend) -> str:
    """Name a backend, with a word about it where it has one."""
    return backend.name if backend.where == backend.name else f"{backend.name}, {backend.where}"


class Control:
    """Registered only where a far side, or a plan, is asked for.

    :ivar shapes: for each selected test its shape, once collection has ended.
    """

    def __init__(
        self, config: pytest.Config, settings: Settings, backend: Backend | None, start: Start
    ) -> None:
        self._config = config
        self._settings = settings
        self._backend = backend
        self._collection = Collection()
        ships = backend is not None and backend.ships_tree
        self._shipping = Shipping(config, settings, start, self._collection, ships_tree=ships)
        self._session: RemoteSession | None = None
        self._early_warnings: list[tuple[Any, str]] = []
        self.shapes: list[Shape | None] = []

    def pytest_report_header(self) -> str | None:
        """Name the far side."""
        if self._backend is None:
            return None
        note = " (no GPU is used)" if self._backend.pretends else ""
        return f"remote: {_place(self._backend)}{note}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """See the tests in the order of their collection, before they are selected."""
        self._collection.record(items)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find out what goes where; ill-formed marks end the session before anything starts."""
        try:
            self.shapes = selection.shapes_of(session.items, self._settings)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Say what goes where, and what looks as if it should have gone too; ``-q`` is quiet."""
        if self._config.get_verbosity() < 0:
            return []
        lines = [f"remote: {plan.counts(self.shapes)}"] if self._backend is not None else []
        return lines + [
            f"remote: {text}" for text in selection.near_misses(items, self.shapes, self._settings)
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the session, unless it has nothing to ship."""
        option = session.config.option
        if session.testsfailed and not option.continue_on_collection_errors:
            return None
        if option.collectonly:
            return None
        try:
            if self._settings.plan:
                self._print_plan(session)
                return True
            if self._backend is None or all(shape is None for shape in self.shapes):
                return None
            kept = artifacts_root(session.config, self._settings.artifacts)
            pairs = zip(session.items, self.shapes, strict=True)
            clear(kept, (item.nodeid for item, shape in pairs if shape is not None))
            self._session = RemoteSession(
                session,
                self._settings,
                self._backend,
                collection=self._collection,
                shipping=self._shipping,
                artifacts_dir=kept,
            )
            for message, _when in self._early_warnings:
                self._session.replayer.seen_here(message)
            self._session.run(session.items, self.shapes)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
        return True

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
        where = None if self._backend is None else _place(self._backend)
        ids = [item.nodeid for item in session.items]
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        for line in plan.describe(ids, self.shapes, self._settings.origins, where, upload):
            if reporter is not None:
                reporter.write_line(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Take over the exit status of a far session that failed at its end."""
        if self._session is not None and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = self._session.far_status

    def pytest_warning_recorded(self, warning_message: Any, when: str) -> None:
        """Remember this side's own warnings, which the far side would repeat."""
        if self._session is None and when != "runtest":
            self._early_warnings.append((warning_message, when))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Answer for a test that is being replayed."""
        return self._session.replayer.answer(item) if self._session is not None else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> None:
        """Give a test that had sub-tests the outcome that pytest gives it there."""
        if self._session is not None and report.when == "call":
            self._session.replayer.settle(report)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the closing section."""
        if self._session is not None:
            self._config.hook.pytest_remotegpu_summary(
                config=self._config, summary=self._session.summary
            )
            terminal.write_summary(terminalreporter, self._session.summary)

    def pytest_unconfigure(self) -> None:
        """Leave no worker behind, whatever has happened."""
        if self._session is not None:
            self._session.close()


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
