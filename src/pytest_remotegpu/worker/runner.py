"""The process that runs tests: a pytest session, told which tests and when by its supervisor.

Knows pytest and the wire; knows no backend, no channel to the user's side and no other runner.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import pytest

from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker import (
    collecting,
    comparing,
    debugging,
    ending,
    having,
    installed,
    junit,
    late,
    logs,
    naming,
    options,
    reads,
    rebuild,
    rerunning,
    surroundings,
    telling,
    uncaptured,
)
from pytest_remotegpu.worker.alone import Alone
from pytest_remotegpu.worker.emit import Emitter, ReportSender
from pytest_remotegpu.worker.following import Following
from pytest_remotegpu.worker.gpu_state import GpuState
from pytest_remotegpu.worker.inbox import Inbox
from pytest_remotegpu.worker.quiet import QuietReporter
from pytest_remotegpu.worker.results import Results

__all__ = ["PLUGIN_NAME", "Runner", "serve"]

PLUGIN_NAME = "remotegpu-runner"
"""The name of the runner's plugin; the package's own plugin is inert beside it."""


class Runner:
    """The plugin that makes a pytest session serve one order."""

    def __init__(self, order: orders.Order, emitter: Emitter, inbox: Inbox) -> None:
        self.__name__ = PLUGIN_NAME
        self.order = order
        self.options = order.options
        self.site = order.site
        self.emitter = emitter
        self.inbox = inbox
        self.sender: ReportSender
        self.matcher: rebuild.Matcher
        self.trees: telling.Telling
        self.found: list[pytest.Item] = []
        self.gpus = GpuState()
        self.debugging = debugging.Debugging(emitter, order.options, order.site)
        self.results = Results(order, emitter, inbox.wait_until_shown)
        self.payload: dict[str, Any] = {}
        self.current = -1
        self.following: Following
        self.alone = Alone()
        self.has_parts = self.settled = self.taken = False
        self.run = order.run
        self.captures = False
        self.natural: int | None = None
        self.skipped_files: dict[str, tuple[str, int, str]] = {}
        self.failed_files: set[str] = set()
        roots = order.options.roots
        self.wanted_files = set() if roots else {str(Path(path)) for path in order.options.files}
        self.started = self.configured = time.monotonic()
        self.while_configured = contextlib.ExitStack()
        self.overlooked: list[str] = []
        self.early_warnings: list[tuple[str, Any, Any]] = []
        told = order.collects and self.site.root != order.root
        self.reads = reads.Reads(self.site.root) if told else None

    # configuration

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Any:
        """Undo what must not be repeated here as soon as the command line has been read."""
        config: pytest.Config = yield
        roots = self.options.roots
        self.results.parsed(config.option)
        debugs = not self.debugging.why_not
        options.neutralise(config.option, self.order.worker, keeps_paths=roots, debugs=debugs)
        config.option.color = self.options.color
        self.config = config
        config.pluginmanager.register(late.Late(self.order), "remotegpu-runner-late")
        if (self.wanted_files or roots) and not self.options.keep_args:
            line, files = self.options.args, self.options.files
            self.overlooked = options.overlooked(config.args, line, files) if roots else []
            config.args = list(self.options.files) if roots else self._files()
        return config

    def _files(self) -> list[str]:
        """Give the files to begin with; one that is not here is missed by whoever collects."""
        files = list(self.options.files)
        here = [path for path in files if Path(path).exists()] if self.order.collects else files
        return here or files

    def pytest_plugin_registered(self, plugin: object, manager: pytest.PytestPluginManager) -> None:
        """Put a reporter that shows nothing in the place of pytest's."""
        if manager.get_name(plugin) == "terminalreporter" and not isinstance(plugin, QuietReporter):
            manager.unregister(plugin)
            quiet = QuietReporter(self.config, self.options.width)
            manager.register(quiet, "terminalreporter")
            quiet.adjust(self.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Open the payload, now that the conftests are loaded, and take over changed options."""
        if self.overlooked:
            raise pytest.UsageError(f"file or directory not found: {', '.join(self.overlooked)}")
        self.payload = cloudpickle.loads(self.order.payload)
        values = dict(self.payload["options"])
        for name, blob in self.payload["blobs"].items():
            try:
                values[name] = cloudpickle.loads(blob)
            except Exception as error:  # noqa: BLE001 -- anything may go wrong in a user's class
                text = (
                    f"the value of option {name!r} can't be rebuilt there: "
                    f"{type(error).__name__}: {error}"
                )
                self.emitter.put(events.Note(to_text(text)))
        options.apply(config.option, values)
        comparing.install(config)
        recorder = junit.Recorder(self.emitter, self.options.junit, lambda: self.current)
        junit.install(config, recorder)
        parts = {
            "gpus": self.gpus,
            "debugging": self.debugging,
            "files": collecting.Files(self.emitter, self.site.barred),
            "exits": collecting.Exits(self.emitter, self._as_here),
            "folders": collecting.Folders(self.emitter, self._as_here),
        }
        if self.site.root != self.order.root:
            parts["naming"] = naming.Naming(self.site.root, self.order.root)
        if self.order.collects:
            parts["trees"] = self.trees = telling.Telling(self.emitter, self._as_here, self.reads)
        for name, part in parts.items():
            config.pluginmanager.register(part, f"remotegpu-runner-{name}")
        # the last to be registered speaks first: after a file's tree nobody may listen any more
        config.pluginmanager.register(having.Having(self.emitter), "remotegpu-runner-having")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Make ready to send, before other plugins have anything to say."""
        self.configured = time.monotonic()
        self.while_configured.close()
        there, here = self.site.root, self.order.root
        paths = (there, here) if there != here else None
        self.sender = ReportSender(self.emitter, session.config, paths, self.results.measured)
        for when, message, location in self.early_warnings if self.options.roots else ():
            self.sender.warning(-1, when, message, location)
        logs.forward(session.config, self.emitter, self.options.log_level)
        if not self.options.live and not self.options.shown_worker:
            captures = _captures_fds(session.config)
            uncaptured.show(session.config, self.emitter, captures=captures)
        self.debugging.begin(session.config)
        self.emitter.flush()

    # collection

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out the files that hold none of the tests."""
        known = (
            not self.wanted_files
            or collection_path.is_dir()
            or collection_path.name == "__init__.py"
        )
        return None if known or str(collection_path) in self.wanted_files else True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a file has no tests here: its error goes out at once, a skip with each test."""
        if report.failed:
            self.failed_files.add(report.nodeid)
            self.emitter.put(collecting.failure(report, self._as_here))
        elif report.skipped and isinstance(report.longrepr, tuple):
            path, lineno, reason = report.longrepr
            self.skipped_files[report.nodeid] = (self._as_here(str(path)), lineno, reason)

    def _as_here(self, text: str) -> str:
        """Name files by their place on the user's side."""
        return text.replace(f"{self.site.root}/", f"{self.order.root}/")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Any:
        """Let hooks add marks, and undo what they drop or reorder: the user's side has decided."""
        self.found = list(items)
        result = yield
        if self.reads is not None:
            self.reads.close()
        if self.options.roots and self.order.collects:
            self.trees.tell_what_is_left(items, self.config.getini("markers"))
        if not self.order.collects:
            items[:] = self._match()
        return result

    def _match(self) -> list[pytest.Item]:
        """Pair the tests that were asked for with those that are here."""
        self.matcher = rebuild.Matcher(self.found, self.payload["ids"])
        missing = self.matcher.missing()
        if missing:
            self._ask_for(missing)
        self.alone = Alone(self.payload["alone"])
        self.following = Following(self.matcher.items, self.matcher.following(), self.alone)
        return [item for item in self.matcher.items if item is not None]

    def _choice(self, session: pytest.Session) -> Any:
        """Wait until the user's side has chosen among the tests; give what is to be done then."""
        self.emitter.put(events.StretchEnded())
        self.emitter.flush()
        message = self.inbox.next_run()
        if not isinstance(message, orders.Chosen):
            return message
        chosen = cloudpickle.loads(message.payload)
        self.payload |= {name: chosen[name] for name in ("ids", "alone")}
        message = self.inbox.next_run()
        session.items[:] = self._match()
        return message

    def _ask_for(self, missing: list[int]) -> None:
        """Ask for the parameter values of tests that have no such id here, and settle each one."""
        unexplained = [place for place in missing if not self._explained(place)]
        if not unexplained:
            return
        self.emitter.put(events.Wants(unexplained))
        self.emitter.flush()
        message = self.inbox.answer()
        if not isinstance(message, orders.Values):
            raise pytest.UsageError(f"{type(message).__name__} came where values were due")
        for place, wanted in cloudpickle.loads(message.payload).items():
            if place not in unexplained:
                continue  # another rank has asked for it
            why = self.matcher.settle(place, rebuild.Wanted(**wanted))
            if why:
                self.emitter.put(events.NotFound(place, to_text(why)))

    def _explained(self, place: int) -> bool:
        """Say so where a test is missing because its file was skipped or failed to collect."""
        nodeid = self.payload["ids"][place]
        for file, (path, lineno, reason) in self.skipped_files.items():
            if collecting.is_of(nodeid, file):
                self.emitter.put(events.SkippedThere(place, to_text(path), lineno, to_text(reason)))
                return True
        for file in self.failed_files:
            if collecting.is_of(nodeid, file):
                text = f"the far side could not collect {file or '.'}; its traceback is above"
                self.emitter.put(events.NotFound(place, to_text(text)))
                return True
        return False

    # running

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the stretches that the supervisor asks for, in the place of pytest's own loop."""
        there = to_text(self.site.root)
        now = time.monotonic()
        parts = [("plugins and conftests", self.configured - self.started)]
        parts.append(("files and their imports", now - self.configured))
        self.emitter.put(events.Phases(parts))
        self.emitter.put(events.Collected(now - self.started, there))
        self.emitter.flush()
        message: Any = self._choice(session) if self.order.collects else self.order.run
        while isinstance(message, orders.Run):
            self._stretch(session, message)
            message = None if self.emitter.spoilt else self.inbox.next_run()
        return True

    def _stretch(self, session: pytest.Session, run: orders.Run) -> None:
        """Run the tests of one stretch, stopping before the next one where the budget is spent."""
        session.config.option.maxfail = session.testsfailed + run.failures if run.failures else 0
        session.shouldfail = False
        places = [
            place for place in range(run.first, run.last) if self.matcher.items[place] is not None
        ]
        reason = ""
        self.emitter.following = run.first
        self.settled, self.run = False, run
        for place in places:
            ending = self.inbox.withdrawn()
            # one that comes after a test has been torn down for the next is too late for that one
            if ending == "stopped" or (ending and (self.taken or not self.settled)):
                reason = ending if ending == "stopped" else ""
                break
            if self.alone.bars(place):
                self.emitter.spoilt, self.emitter.following = True, place
                break
            self._run_one(session, self.inbox.follows(run), place)
            reason = str(session.shouldfail or session.shouldstop or "")
            if reason or self.emitter.spoilt:
                break
        if self.emitter.spoilt and not reason:
            self.emitter.flush()
            return
        self.emitter.following = run.last
        self.emitter.put(events.StretchEnded(to_text(reason)))
        self.emitter.flush()

    def _run_one(self, session: pytest.Session, run: orders.Run, place: int) -> None:
        item = self.matcher.items[place]
        assert item is not None
        following = self.following.after(run, place)
        self.alone.begin(place)
        self.sender.begin()
        self.has_parts = self.settled = self.taken = False
        self.emitter.current = self.current = place
        self.emitter.following = place + 1
        self.emitter.put(events.Started(place))
        self.emitter.flush()
        try:
            left = self.following.make_way(item)
            if left:
                self.emitter.put(events.SessionEnded(1, to_text(left)))
            self.gpus.begin(item.nodeid)
            self.following.told(item, following)
            rerunning.leave(item.config, self.order.limits, self.site, place)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except pytest.exit.Exception as exit_:
            self.emitter.put(collecting.ending(exit_, self._as_here))
            session.shouldstop = f"pytest.exit: {exit_.msg}"
        except KeyboardInterrupt as error:
            self.emitter.put(collecting.ending(error, self._as_here))
            session.shouldstop = "interrupted"
        finally:
            self.current = -1
            self.debugging.after_test()
        with contextlib.suppress(AttributeError, ValueError, OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        self.results.after(place)
        self._look_at_gpus(place, item, following)
        self.emitter.put(events.Finished(place))
        self.emitter.current = -1
        self.emitter.failures = session.testsfailed
        if self.options.live and not self.emitter.spoilt:
            self.emitter.flush(waits=True)
            self.inbox.wait_until_shown()

    def _settle(self, item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
        """Let a test tear down what tests were to use that were taken back while it ran."""
        ending = self.inbox.withdrawn()
        self.taken = ending == "withdrawn"
        place = self.inbox.told_last()
        ends = self.following.ends(self.run, self.current)
        if ending != "stopped" and (self.taken or (ends and place is not None)):
            return self.following.settle(item, report, place)
        return report

    def _look_at_gpus(self, place: int, item: pytest.Item, following: pytest.Item | None) -> None:
        """Tell of their memory; say that another process must go on, or had better do so."""
        for event in self.gpus.end(place):
            self.emitter.put(event)
        why = ""
        if following is not None and following.path != item.path:
            why = self.gpus.outgrown()
        if why:
            self.emitter.put(events.Note(to_text(why)))
        self.emitter.spoilt = self.emitter.spoilt or bool(why or self.gpus.poisoned)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Hand the supervisor the files that pytest captures into, so that they survive a crash."""
        if self.captures or not _captures_fds(item.config):
            return
        self.captures = True
        self.emitter.flush([os.dup(1), os.dup(2)])

    def pytest_runtest_logstart(self) -> None:
        """Note each attempt at a test that is announced."""
        if self.current >= 0:
            self.sender.announced()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Iterator[None]:
        """Send each report once every other plugin has done with it."""
        before = report.outcome, report.longrepr
        result = yield
        if self.current >= 0:
            self._report(report, *before)
        return result

    def _report(self, report: pytest.TestReport, *before: Any) -> None:
        """Send a report; outcome and error are given as they were ``before`` others saw it."""
        if type(report) is not pytest.TestReport:
            self.has_parts = True
        elif report.when == "teardown" and not self.settled:
            self.settled = True
            item = self.matcher.items[self.current]
            late = report if item is None else self._settle(item, report)
            if item is not None and late is not report:
                item.ihook.pytest_runtest_logreport(report=late)
                return
        settle = self.has_parts and report.when == "call" and type(report) is pytest.TestReport
        self.sender.send(self.current, report, settle=before if settle else ())
        last = report.when == "teardown" and self.site.rank >= 0  # the launcher waits no longer
        if report.when == "call" or report.sections or not report.passed or last:
            self.emitter.flush()

    def pytest_warning_recorded(self, warning_message: Any, when: str, location: Any) -> None:
        """Send each warning to where the summary of warnings is written."""
        if hasattr(self, "sender"):
            self.sender.warning(self.current, when, warning_message, location)
        else:  # the user's side has given it as well, unless a conftest has that is not there
            self.early_warnings.append((when, warning_message, location))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note how the session ends before other hooks have their say."""
        self.natural = int(exitstatus)

    def pytest_internalerror(self, excrepr: Any) -> None:
        """Tell of an error of pytest or a plugin, which nobody would see otherwise."""
        text = f"INTERNALERROR on the far side\n{excrepr}"
        self.emitter.put(events.StartFailed(to_text(text)))


def _captures_fds(config: pytest.Config) -> bool:
    return bool(config.getoption("capture", "no") == "fd")


def _session(runner: Runner, emitter: Emitter, beside: Sequence[object]) -> bool:
    """Run the session; tell of an end that its tests do not account for.

    :return: whether it could not begin, as pytest itself has said on its streams.
    """
    try:
        with contextlib.ExitStack() as runner.while_configured:
            runner.while_configured.enter_context(installed.kept())
            args = options.understood(runner.options.args)
            status = int(pytest.main(args, plugins=[runner, *beside]))
    except BaseException as error:  # noqa: BLE001 -- the border: a hook may raise anything
        text = to_text(collecting.unloaded(error))
        if runner.natural is None:
            having.tell(emitter)
            emitter.put(events.StartFailed(text, usage=True))
        elif runner.gpus.explains(error):
            why = f"after {runner.gpus.poisoned} fixtures could not be torn down: {error}"
            emitter.put(events.Note(to_text(why)))
        else:
            emitter.put(events.SessionEnded(1, text))
        return False
    if runner.natural is not None and status != runner.natural:
        why = f"a hook at its end changed the exit status from {runner.natural} to {status}"
        emitter.put(events.SessionEnded(status, to_text(why)))
    return status == pytest.ExitCode.USAGE_ERROR or runner.natural is None


def serve(
    order: orders.Order, emitter: Emitter, inbox: Inbox, beside: Sequence[object] = ()
) -> NoReturn:
    """Serve an order that has been heard, then end the process.

    :param beside: further plugins of the session.
    """
    surroundings.settle_in(order)
    runner = Runner(order, emitter, inbox)
    failed = _session(runner, emitter, beside)
    if failed:
        having.tell(emitter)
    runner.results.close()
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    emitter.over(failed=failed)
    ending.run_exit_functions()  # os._exit would skip what libraries registered
    emitter.leave()
