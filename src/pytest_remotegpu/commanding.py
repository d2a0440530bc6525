"""``remotegpu run``: one command on a far side, in the surroundings that tests would have there.

It is a session of pytest with a single test, which runs the command: so all that sessions are
given, limited to and charged for holds for it, too. Knows pytest and that test; the far side it
knows by what comes back.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from pytest_remotegpu import command
from pytest_remotegpu.terminal import STREAMS

__all__ = ["FAILED", "INTERRUPTED", "UNREAD", "USAGE", "Streams", "arguments", "put", "run"]

USAGE, FAILED, INTERRUPTED, UNREAD = 2, 125, 130, 141
"""Exit statuses that are not the command's: as of ``env`` and ``docker run`` where it did not run,
or nobody knows how it ended; as a shell has them after Ctrl-C, and where nobody reads."""

NEUTRAL: Final[Mapping[str, Any]] = {
    # which tests
    "keyword": "", "markexpr": "", "deselect": None, "lf": False, "failedfirst": False,
    "newfirst": False, "stepwise": False, "stepwise_skip": False, "collectonly": False,
    # in which way
    "maxfail": 0, "numprocesses": None, "maxprocesses": None, "dist": "no", "tx": [],
    "looponfail": False, "reruns": 0, "usepdb": False, "trace": False, "setuponly": False,
    "setupshow": False, "setupplan": False,
    # what is shown and written
    "verbose": -2, "no_header": True, "disable_warnings": True, "durations": None,
    "capture": "no", "no_summary": False, "xmlpath": None, "htmlpath": None, "report_log": None,
    "json_report": False, "pastebin": None, "cacheshow": None, "teamcity": 0, "no_teamcity": 1,
}  # fmt: skip
"""What a project's ``addopts`` may ask for that is about its tests."""


def run(words: list[str], *, gpus: int, options: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command, and show what it writes on the stream that it writes to.

    All else goes to stderr.

    :param words: the program and its arguments. :param gpus: how many it sees.
    :param options: pytest's, such as ``--remote=SPEC``.
    :return: its exit status, or one of :data:`USAGE` and its neighbours.
    """
    streams = Streams()
    try:
        with streams.aside():
            told = arguments(command.option(words, gpus), options, environ)
            status = int(pytest.main(told, plugins=[streams]))
    finally:
        streams.close()
    return streams.status(status)


def put(stream: int, data: bytes) -> None:
    """Write all of it, also to a stream that takes no more than there is room for (``O_NONBLOCK``).

    Whoever made it so shares it with us, so it is left as it is.

    :raises OSError: where nobody reads it any more, or nothing can be kept there.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(stream, left) :]
        except BlockingIOError:
            select.select([], [stream], [])


def arguments(asked: str, options: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Give pytest's command line.

    :param asked: the option that says what to run. :param options: the user's.
    """
    own = ["-p", command.__name__, "-s", "--remote-timeout=0", "--remote-workers=1"]
    own += ["-o", "remotegpu_collect=here", "-o", "faulthandler_timeout=0"]
    loads = "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in environ
    if loads and importlib.util.find_spec("pytest_cov") is not None:
        own.append("--no-cov")
    return [*own, asked, *options]


@contextlib.contextmanager
def _in_lines(stream: Any) -> Iterator[None]:
    """Let nothing lie in a stream that stays behind: what it holds goes where it was written to."""
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    stream.flush()
    before = stream.line_buffering
    stream.reconfigure(line_buffering=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            stream.reconfigure(line_buffering=before)


class Streams:
    """The plugin that shows what the command writes, and keeps how it ended."""

    def __init__(self) -> None:
        self.__name__ = STREAMS
        self._copies = {1: os.dup(1), 2: os.dup(2)}
        self._status: int | None = None
        self._why = ""
        self._unread = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Let what this process itself prints go to stderr, each line as it comes."""
        with self._waiting(), _in_lines(sys.stdout):
            os.dup2(2, 1)
            try:
                yield
            finally:
                with contextlib.suppress(OSError, ValueError):
                    sys.stdout.flush()
                os.dup2(self._copies[1], 1)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Let stderr wait for who reads it, as all who print expect, where it would not."""
        if os.name == "nt" or os.get_blocking(2):
            yield
            return
        (reader, writer), (over, end) = os.pipe(), os.pipe()
        pump = threading.Thread(target=self._pump, args=(reader, over), daemon=True)
        os.dup2(writer, 2)
        os.close(writer)
        pump.start()
        try:
            yield
        finally:
            os.dup2(self._copies[2], 2)
            os.close(end)
            pump.join()

    def _pump(self, reader: int, over: int) -> None:
        """Hand on what comes, until nothing is left once it is over: others may hold its end."""
        with contextlib.suppress(OSError):
            while reader in select.select([reader, over], [], [])[0]:
                if not (data := os.read(reader, 2**16)):
                    break
                put(self._copies[2], data)
        os.close(over)
        os.close(reader)  # who goes on to write is told that nobody reads

    def close(self) -> None:
        """Let go of the streams."""
        for copy in self._copies.values():
            os.close(copy)

    def write(self, stream: int, data: bytes) -> None:
        """Show bytes of the command's stdout (1) or stderr (2), as they are.

        Where nobody reads them any more, the session ends as by a signal.
        """
        try:
            if not self._unread:
                put(self._copies[stream], data)
        except OSError:
            self._unread = True
            signal.raise_signal(signal.SIGTERM)

    def status(self, session: int) -> int:
        """Give the exit status of the whole.

        :param session: pytest's.
        """
        if self._unread:
            return UNREAD
        if session == pytest.ExitCode.USAGE_ERROR:
            return USAGE
        if self._status:
            return self._status
        if session == pytest.ExitCode.INTERRUPTED:
            return INTERRUPTED
        fine = self._status == 0 and session == pytest.ExitCode.OK
        if not fine:
            put(2, f"remotegpu: {self._why or 'the session failed, see above'}\n".encode())
        return 0 if fine else FAILED

    # pytest's hooks

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Any:
        """Leave out what the project wants for its tests."""
        config: pytest.Config = yield
        for name, value in NEUTRAL.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        return config

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self) -> tuple[str, str, str]:
        """Show no letter, and count nothing as a test."""
        return "", "", ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how it ended, or why nobody knows."""
        said = dict(report.user_properties)
        status = said.get(command.STATUS)
        if report.when == "call" and type(status) is int and 0 <= status < 256:  # noqa: PLR2004 -- as processes have it
            self._status = status
        elif report.failed and not self._why:
            self._why = report.longreprtext.strip()
