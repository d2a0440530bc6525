"""Collection that survives its files: which one is imported now, and which ones are no more.

Two small plugins of the far session. Know pytest and what is said to the supervisor; what becomes
of a file that ends the process, they do not decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.worker.emit import Emitter

__all__ = ["Exits", "Files"]


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
    """Makes a file that leaves by ``sys.exit`` one that can't be collected; the others go on."""

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Catch it within pytest's own wrappers, which would stay open."""
        try:
            return (yield)
        except SystemExit as error:
            shown = collector.repr_failure(pytest.ExceptionInfo.from_exception(error))
            return pytest.CollectReport(collector.nodeid, "failed", str(shown), [])
