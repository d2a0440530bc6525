"""A terminal reporter for a side without a terminal: there for those who ask, and shows nothing.

Knows pytest's reporter only; must not know the wire, since nothing of what it is told travels.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Iterator
from typing import Any, TextIO

import pytest

__all__ = ["QuietReporter"]


class _Sink(io.StringIO):
    """A text file that keeps nothing.

    What another thread writes is for an emergency: pytest-timeout does so before it ends the
    process, and only what stands on its streams is left of that.
    """

    def write(self, text: str) -> int:
        if threading.current_thread() is not threading.main_thread():
            with contextlib.suppress(OSError):
                os.write(2, text.encode("utf-8", "backslashreplace"))
        return len(text)


class QuietReporter:
    """Stands in for pytest's reporter, with its methods but none of its hooks.

    Plugins and tests that ask for a terminal writer get a real one, whose width and colours are
    those of the user's terminal and whose text goes nowhere.

    :param width: columns of the user's terminal.
    """

    def __init__(self, config: pytest.Config, width: int) -> None:
        self._reporter = pytest.TerminalReporter(config, _Sink())
        self._width = width

    def adjust(self, config: pytest.Config) -> None:
        """Take over the width, once this is the session's reporter."""
        config.get_terminal_writer().fullwidth = self._width

    @contextlib.contextmanager
    def speaking(self, config: pytest.Config, file: TextIO) -> Iterator[None]:
        """Show in the block what is asked of it, as a debugger's user is to see it."""
        quiet, self._reporter = self._reporter, pytest.TerminalReporter(config, file)
        try:
            yield
        finally:
            self._reporter = quiet

    def __getattr__(self, name: str) -> Any:
        if name.startswith("pytest_") or name == "_reporter":
            raise AttributeError(name)
        return getattr(self._reporter, name)
