"""A debugger in a shipped test: it gets the user's terminal while it speaks, or says why it can't.

Knows pytest's hooks around its debugger, and the runner's pseudo-terminal; who carries what is
typed there, it does not know.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.worker.emit import Emitter
from pytest_remotegpu.worker.quiet import QuietReporter

__all__ = ["Debugging"]

STREAMS: Final = (0, 1, 2)
NO_PTY: Final = "that host has no pseudo-terminal to give; run this test without --remote"
RANKS: Final = "it runs in several ranks, and a terminal serves one; run this test without --remote"


class Debugging:
    """Lends the user's terminal to debuggers of one session.

    :param site: of the runner, with the path of its pseudo-terminal.
    :ivar why_not: why there is no terminal, with the way out; empty where there is one.
    """

    def __init__(self, emitter: Emitter, options: orders.Options, site: orders.Site) -> None:
        self._emitter = emitter
        self._path, self._kind, self._live = site.terminal, options.terminal, options.live
        self._lent: contextlib.ExitStack | None = None
        self._config: pytest.Config
        self._handler: Any = None
        if not options.terminal:
            self.why_not = options.nobody
        elif site.rank >= 0:
            self.why_not = RANKS
        else:
            self.why_not = "" if site.terminal else NO_PTY

    def begin(self, config: pytest.Config) -> None:
        """Answer ``breakpoint()`` from now on."""
        self._config = config
        chosen = os.environ.get("PYTHONBREAKPOINT", "")
        if chosen == "0":
            return
        if self.why_not:
            sys.breakpointhook = _refusing(self._refusal("breakpoint()"))
        elif chosen not in ("", "pdb.set_trace", "pytest.set_trace"):
            sys.breakpointhook = _refusing(
                f"breakpoint() in a shipped test: PYTHONBREAKPOINT={chosen} is a debugger that has "
                "no terminal there; unset it, and name a class with --pdbcls=MODULE:CLASS"
            )

    def _refusal(self, what: str) -> str:
        return f"{what} in a shipped test: no terminal is attached there: {self.why_not}"

    # pytest's hooks

    def pytest_enter_pdb(self, pdb: Any) -> None:
        """Lend the terminal to a debugger, each time that it stops.

        :raises RuntimeError: where there is none.
        """
        if self.why_not:
            __tracebackhide__ = True
            self._resume()
            raise RuntimeError(self._refusal("pdb"))
        if self._handler is None:
            self._handler = signal.getsignal(signal.SIGINT)
        headed = self._lent is not None or self._live
        self._lend()
        if not headed:  # pytest has written its own where nobody sees it
            captures = getattr(self._config.option, "capture", "no") != "no"
            what = "PDB (IO-capturing turned off)" if captures else "PDB"
            pytest.TerminalReporter(self._config, sys.stdout).write_sep(">", what)
        stops = getattr(pdb, "interaction", None)
        if stops is not None:
            pdb.interaction = self._lending(stops)

    def pytest_leave_pdb(self) -> None:
        """Give it back: the test goes on."""
        self.give_back()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_exception_interact(self) -> Iterator[None]:
        """With ``--pdb``: show there what pytest shows before its prompt, too."""
        if self.why_not or not getattr(self._config.option, "usepdb", False):
            return (yield)
        self._lend()
        try:
            return (yield)
        finally:
            self.give_back()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Leave no debugger behind that has ended the session while it collected."""
        self.give_back()

    # the terminal

    def _lending(self, stops: Callable[..., Any]) -> Callable[..., Any]:
        """Make a debugger's own method for a stop one that has the terminal: it may be a later."""

        def interaction(*args: Any, **kwargs: Any) -> Any:
            self._lend()
            return stops(*args, **kwargs)

        return interaction

    def _capture(self) -> Any:
        return self._config.pluginmanager.get_plugin("capturemanager")

    def _resume(self) -> None:
        capture = self._capture()
        if capture is not None:
            capture.resume()

    def _lend(self) -> None:
        if self._lent is not None or os.getpid() != self._emitter.pid:
            return
        capture = self._capture()
        if capture is not None:
            capture.suspend(in_=True)
        _flush()
        with contextlib.ExitStack() as stack:
            terminal = os.open(self._path, os.O_RDWR | os.O_NOCTTY)
            stack.callback(os.close, terminal)
            self._emitter.debugs = True
            self._emitter.flush()
            with contextlib.suppress(OSError):  # it is this process's already
                fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            stack.callback(os.write, terminal, events.SHOWN)
            stack.enter_context(_streams_on(terminal))
            stack.enter_context(_line_by_line())
            self._announce_kind()
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            if isinstance(reporter, QuietReporter):
                stack.enter_context(reporter.speaking(self._config, sys.stdout))
            self._lent = stack.pop_all()

    def _announce_kind(self) -> None:
        """Tell libraries that edit lines what kind of terminal it is."""
        if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
            os.environ["TERM"] = self._kind
        if "readline" in sys.modules:  # which has looked before there was any
            with contextlib.suppress(OSError, AttributeError):
                library = ctypes.CDLL(sys.modules["readline"].__file__)
                library.rl_reset_terminal(os.fsencode(os.environ["TERM"]))

    def give_back(self) -> None:
        """Let the streams be what they were, and the user's terminal be the session's."""
        lent, self._lent = self._lent, None
        if lent is None or os.getpid() != self._emitter.pid:
            return
        _flush()
        lent.close()
        self._emitter.debugs = False
        self._emitter.flush()

    def after_test(self) -> None:
        """Leave nothing of a debugger to the next test: neither the terminal nor Ctrl-C."""
        self.give_back()
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None


def _refusing(text: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        __tracebackhide__ = True  # the failure is the test's line
        raise RuntimeError(text)

    return refuse


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()


@contextlib.contextmanager
def _streams_on(terminal: int) -> Iterator[None]:
    """Let the standard streams be this terminal; leave alone what is none of it at the end.

    By then a capture that has been resumed may have put its files there.
    """
    before = [(fd, os.dup(fd)) for fd in STREAMS]
    device = os.fstat(terminal).st_rdev
    for fd in STREAMS:
        os.dup2(terminal, fd)
    try:
        yield
    finally:
        for fd, own in before:
            with contextlib.suppress(OSError):
                if os.fstat(fd).st_rdev == device:
                    os.dup2(own, fd)
            os.close(own)


@contextlib.contextmanager
def _line_by_line() -> Iterator[None]:
    """Show each line once it is written, as Python does at a terminal."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")]
    before = [(stream, stream.line_buffering) for stream in streams]
    for stream in streams:
        stream.reconfigure(line_buffering=True)
    try:
        yield
    finally:
        for stream, lines in before:
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(line_buffering=lines)
