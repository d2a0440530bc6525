"""Records of the logging module on their way to a user who asked to see them live or in a file.

Knows nothing of how they are shown there.
"""

from __future__ import annotations

import logging
import os

import pytest

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker.emit import Emitter

__all__ = ["forward"]


class _Forwarder(logging.Handler):
    def __init__(self, emitter: Emitter, level: int) -> None:
        super().__init__(level)
        self._emitter = emitter
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._pid:
            return
        text = self.format(record)
        self._emitter.put(
            events.Log(
                to_text(str(record.name)),
                int(record.levelno or 0),  # a record made by hand may hold anything
                to_text(text),
                to_text(str(record.pathname)),
                int(record.lineno or 0),
                to_text(str(record.funcName or "")),
                float(record.created),
            )
        )
        self._emitter.flush()


def forward(config: pytest.Config, emitter: Emitter, level: int | None) -> None:
    """Forward records from ``level`` up for the rest of the session; ``None`` forwards nothing."""
    if level is None:
        return
    handler = _Forwarder(emitter, level)
    root = logging.getLogger()
    root.addHandler(handler)
    config.add_cleanup(lambda: root.removeHandler(handler))
