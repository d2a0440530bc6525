"""A terminal reporter for a side without a terminal: it is there for those who ask for one, and shows nothing."""

from __future__ import annotations

import io
from typing import Any

import pytest

__all__ = ["QuietReporter"]


class _Sink(io.StringIO):
    """A text file that keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)


class QuietReporter(pytest.TerminalReporter):
    """Answers ``config.get_terminal_writer()`` and plugins that write; costs nothing per test.

    :param width: the width of the user's terminal, in columns.
    """

    def __init__(self, config: pytest.Config, width: int) -> None:
        super().__init__(config, _Sink())
        config.get_terminal_writer  # noqa: B018
        self._width = width

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        pass

    def pytest_runtest_logreport(self, report: Any) -> None:
        pass

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        pass

    def pytest_collection(self) -> None:
        pass

    def pytest_collectreport(self, report: Any) -> None:
        pass

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session
        session.config.get_terminal_writer().fullwidth = self._width

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: Any) -> Any:  # type: ignore[override]
        return None

    def pytest_unconfigure(self) -> None:
        pass

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        pass

    def pytest_warning_recorded(self, warning_message: Any, nodeid: str) -> None:
        pass

    def pytest_deselected(self, items: Any) -> None:
        pass

    def pytest_internalerror(self, excrepr: Any) -> bool:
        return True
