"""Collection that survives its files: which one is imported now, and which ones are no more.

Small plugins of the far session. Know pytest and what is said to the supervisor; what becomes
of a file that ends the process, they do not decide.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.worker.emit import Emitter

__all__ = ["Exits", "Files", "Folders", "ending", "failure", "is_of", "unloaded"]

FRAMEWORK: Final = (
    "/_pytest/",
    "/pytest/",
    "/pluggy/",
    "/pytest_remotegpu/",
    "<frozen ",
    "/importlib/",
)
"""Parts of the names of files that are no user's."""


class Files:
    """Tells which file is about to be imported, and leaves out those that have ended processes.

    :param barred: the reasons by the ids of files.
    """

    def __init__(self, emitter: Emitter, barred: Mapping[bytes, bytes]) -> None:
        self._emitter = emitter
        self._barred = barred

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> pytest.CollectReport | None:
        """Answer for a file that must not be imported."""
        if isinstance(collector, pytest.File):
            why = self._barred.get(to_text(collector.nodeid))
            if why is not None:
                return pytest.CollectReport(collector.nodeid, "failed", from_text(why), [])
            self._tell(collector.nodeid)
        elif not isinstance(collector, pytest.Class):
            self._tell("")  # a folder: its conftest belongs to no file
        return None

    def _tell(self, nodeid: str) -> None:
        told = to_text(nodeid)
        if self._emitter.collecting != told:
            self._emitter.collecting = told
            self._emitter.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self) -> None:
        """From here on no file is to blame."""
        self._tell("")


class Exits:
    """Makes a file that leaves by ``sys.exit`` one that can't be collected; the others go on.

    An interrupt ends the session, and so does a hook by ``pytest.exit``, as without a far side.

    :param here: names a path in a text by its place on the user's side.
    """

    def __init__(self, emitter: Emitter, here: Callable[[str], str]) -> None:
        self._emitter = emitter
        self._here = here
        self._has_collected = False

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Catch it within pytest's own wrappers, which would stay open."""
        try:
            return (yield)
        except SystemExit as error:
            shown = collector.repr_failure(pytest.ExceptionInfo.from_exception(error))
            return pytest.CollectReport(collector.nodeid, "failed", str(shown), [])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """From here on only a test can end the session."""
        self._has_collected = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Tell how the session ends, before it has collected."""
        if not self._has_collected:
            self._emitter.put(ending(excinfo.value, self._here))
            self._emitter.flush()


def ending(error: BaseException, here: Callable[[str], str]) -> events.Exited:
    """Make the event of what ends a session.

    :param error: an interrupt, or what ``pytest.exit`` raises.
    :param here: names a path in a text by its place on the user's side.
    """
    if isinstance(error, pytest.exit.Exception):
        status = error.returncode
        if status is not None and not isinstance(status, int):
            status = 1  # what a process makes of such a status
        return events.Exited(to_text(str(error.msg)), status)
    places = traceback.extract_tb(error.__traceback__)
    last = places[-1] if places else None
    where = last and (to_text(here(last.filename)), last.lineno or 1)
    return events.Exited(to_text(str(error)), None, interrupt=True, where=where)


class Folders:
    """Lets other files be collected where a folder can't be: its conftest fails, or skips it.

    The files that are asked for are arguments of the session, which pytest would end since it does
    not come to those in the folder.

    :param here: names a path in a text by its place on the user's side.
    """

    def __init__(self, emitter: Emitter, here: Callable[[str], str]) -> None:
        self._emitter = emitter
        self._here = here
        self._closed: dict[str, Path] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Remember folders that gave nothing."""
        report = yield
        if isinstance(collector, pytest.Directory) and not report.passed:
            self._closed[collector.nodeid] = collector.path
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell of a folder that is skipped; the failure of one is told as that of a file is."""
        if report.skipped and report.nodeid in self._closed:
            self._emitter.put(failure(report, self._here))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_collection(self, session: pytest.Session) -> Any:
        """Collect again without the files below such folders: no file was imported by then."""
        try:
            return (yield)
        except pytest.UsageError:
            arguments = list(session.config.args)
            left = [argument for argument in arguments if not self._is_below(session, argument)]
            if left == arguments:
                raise
        session.perform_collect(left)
        return None

    def _is_below(self, session: pytest.Session, argument: str) -> bool:
        path = session.config.invocation_params.dir / argument.partition("::")[0]
        return any(path.is_relative_to(folder) for folder in self._closed.values())


def failure(report: pytest.CollectReport, here: Callable[[str], str]) -> events.CollectFailed:
    """Make the event of a report on what was not collected.

    :param here: names a path in a text by its place on the user's side.
    """
    longrepr: Any = report.longrepr
    crash = getattr(longrepr, "reprcrash", None)
    place = None if crash is None else (crash.path, crash.lineno, crash.message)
    if report.skipped and isinstance(longrepr, tuple):
        place = longrepr
    return events.CollectFailed(
        to_text(report.nodeid),
        to_text(here(str(longrepr))),
        place and (to_text(here(str(place[0]))), int(place[1]), to_text(str(place[2]))),
        skipped=report.skipped,
    )


def unloaded(error: BaseException) -> str:
    """Say what a hook or conftest has raised that pytest does not catch.

    Where it has meant to end the process, only its own frames are of interest.
    """
    places = traceback.extract_tb(error.__traceback__)
    own = [place for place in places if not any(name in place.filename for name in FRAMEWORK)]
    if isinstance(error, SystemExit | KeyboardInterrupt) and own:
        name = f"{type(error).__name__}: {error}".removesuffix(": ")
        shown = "".join(traceback.format_list(own))
        return f"{name}, raised while the session was made there, by\n{shown}"
    shown = "".join(traceback.format_exception(error))
    return f"{type(error).__name__}: {error}\n{shown}"


def is_of(nodeid: str, collector: str) -> bool:
    """Say whether a node is one, or in one, that has this id: a class, a file or a folder."""
    return (
        not collector
        or nodeid == collector
        or nodeid.startswith((f"{collector}::", f"{collector}/"))
    )
