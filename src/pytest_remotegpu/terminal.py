"""What the user sees of the far side on the terminal: live output, closing summary, debug lines.

Shows what it is given; must not judge it or ask a worker for more.
"""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_remotegpu.summary import RunSummary

_Source = tuple[str, int]

MOST_KEPT = 2**16
"""Characters of a line that wait for its end."""
MOVING = "remotegpu-incoming"
"""The name of the plugin that writes a line over and over."""
HEADS = pytest.StashKey[list[str]]()
"""Lines of the header that a process of pytest-xdist has no terminal for."""
STREAMS = "remotegpu-streams"
"""The name of the plugin that shows live output by itself, byte by byte, where there is one."""

__all__ = [
    "MOVING",
    "STREAMS",
    "LiveOutput",
    "begin_line",
    "debug",
    "head",
    "heads",
    "make_way",
    "say",
    "write_summary",
    "write_timeline",
]


class LiveOutput:
    """Shows output as it comes, and never two workers in one line.

    While one stream of one worker has the line, its text is shown stroke by stroke; the others'
    waits until it makes whole lines, which begin on a line of their own.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._kept: dict[_Source, str] = defaultdict(str)
        self._decoders: dict[_Source, codecs.IncrementalDecoder] = {}
        self._open: _Source | None = None

    def write(self, worker: str, stream: int, data: bytes) -> None:
        """Take in bytes of a worker's stdout (1) or stderr (2)."""
        plugin: Any = self._config.pluginmanager.get_plugin(STREAMS)
        if plugin is not None:
            plugin.write(stream, data)
            return
        source = (worker, stream)
        if source not in self._decoders:
            self._decoders[source] = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._kept.pop(source, "") + self._decoders[source].decode(data)
        if self._open not in (None, source):
            end = text.rfind("\n") + 1 if len(text) < MOST_KEPT else len(text)
            text, rest = text[:end], text[end:]
            if rest:
                self._kept[source] = rest
        self._show(source, text)

    def end(self, worker: str) -> None:
        """Show what a worker still has to say, and let its line go."""
        for source in [source for source in self._kept if source[0] == worker]:
            self._show(source, self._kept.pop(source))
        if self._open is not None and self._open[0] == worker:
            self._close_line()

    def _close_line(self) -> None:
        if self._open is not None:
            self._put(self._open[1], "\n")
            self._open = None

    def _show(self, source: _Source, text: str) -> None:
        if not text:
            return
        make_way(self._config)
        if self._open != source:
            self._close_line()
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.ensure_newline()
                reporter.flush()
        self._put(source[1], text)
        self._open = None if text.endswith("\n") else source

    def _put(self, stream: int, text: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if stream == 1 and reporter is not None:
            reporter.write(text, flush=True)
            return
        target = sys.stdout if stream == 1 else sys.stderr
        target.write(text)
        target.flush()


def write_summary(reporter: pytest.TerminalReporter, summary: RunSummary) -> None:
    """Write the closing section."""
    lines = list(summary.lines(quiet=reporter.config.get_verbosity() < 0))
    if lines:
        reporter.section("remote summary")
        for line in lines:
            reporter.line(line)


def write_timeline(reporter: pytest.TerminalReporter, lines: Iterable[str]) -> None:
    """Write the section that ``--remote-timeline`` asks for."""
    reporter.section("remote timeline")
    reporter.line("worker, seconds since the session began, duration, phase")
    for line in lines:
        reporter.line(line)


def debug(config: pytest.Config, text: str) -> None:
    """Write a line of the log that ``--remote-debug`` asks for."""
    say(config, text, "remote debug")


def say(config: pytest.Config, text: str, head: str = "remote", *, of_all: bool = False) -> None:
    """Write a line in the midst of the tests.

    A process of pytest-xdist has no terminal; its stderr is that of the session.

    :param of_all: whether it speaks for all such processes; else a line of one bears its name.
    """
    workerinput = getattr(config, "workerinput", None)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    with _uncaptured(config):
        if workerinput is not None:
            name = "" if of_all else f"[{workerinput['workerid']}] "
            sys.stderr.write(f"{head}: {name}{text}\n")
            sys.stderr.flush()
        elif reporter is not None:
            make_way(config)
            begin_line(config)
            reporter.write_line(f"{head}: {text}")
            reporter.flush()  # what is waited for must be seen meanwhile, in a pipe too


def _uncaptured(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    """Let be what pytest captures now, as it does while a file is collected."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture is None:
        return contextlib.nullcontext()
    disabled: contextlib.AbstractContextManager[None] = capture.global_and_fixture_disabled()
    return disabled


def head(config: pytest.Config, text: str) -> None:
    """Write a line that belongs to the header, and could not be known when that was written.

    Where there is no header, as with ``-q``, nothing is. A process of pytest-xdist keeps it for the
    user's one; see :func:`heads`.
    """
    shown = config.get_verbosity() >= 0 and not config.getoption("no_header", False)
    if text and hasattr(config, "workerinput"):
        config.stash.setdefault(HEADS, []).append(text)
    elif text and shown:
        say(config, text)


def heads(config: pytest.Config) -> list[str]:
    """Take the lines that :func:`head` has kept."""
    kept = config.stash.get(HEADS, [])
    config.stash[HEADS] = []
    return kept


def begin_line(config: pytest.Config) -> None:
    """End the line that the reporter is in."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    reporter.ensure_newline()
    if config.get_terminal_writer().width_of_current_line:  # -q writes dots without a file's name
        reporter.line("")
    reporter.flush()


def make_way(config: pytest.Config) -> None:
    """Have the line taken off the screen that shows how far something has come."""
    plugin: Any = config.pluginmanager.get_plugin(MOVING)
    if plugin is not None:
        plugin.hide()
