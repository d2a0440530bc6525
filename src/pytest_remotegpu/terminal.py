"""What the user sees of the far side on the terminal: live output, the closing summary, debug lines."""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest

from pytest_remotegpu.summary import RunSummary

__all__ = ["LiveOutput", "debug", "write_summary"]


class LiveOutput:
    """Passes live output on in whole lines, so that two workers never share one; ``\\r`` ends a line too."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._kept: dict[tuple[str, int], bytes] = defaultdict(bytes)

    def write(self, worker: str, stream: int, data: bytes) -> None:
        """Take in bytes of a worker's stdout (1) or stderr (2) and show the lines that are complete."""
        kept = self._kept[worker, stream] + data
        end = max(kept.rfind(b"\n"), kept.rfind(b"\r")) + 1
        self._kept[worker, stream] = kept[end:]
        self._show(stream, kept[:end])

    def end(self, worker: str) -> None:
        """Show what a worker has written since its last whole line."""
        for key in [key for key in self._kept if key[0] == worker]:
            self._show(key[1], self._kept.pop(key))

    def _show(self, stream: int, data: bytes) -> None:
        if not data:
            return
        text = data.decode("utf-8", "replace")
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if stream == 1 and reporter is not None:
            reporter.write(text, flush=True)
            return
        target = sys.stdout if stream == 1 else sys.stderr
        target.write(text)
        target.flush()


def write_summary(reporter: pytest.TerminalReporter, summary: RunSummary) -> None:
    """Write the closing section."""
    lines = list(summary.lines())
    if lines:
        reporter.section("remote summary")
        for line in lines:
            reporter.line(line)


def debug(config: pytest.Config, text: str) -> None:
    """Write a line of the log that ``--remote-debug`` asks for."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(f"remote debug: {text}")
