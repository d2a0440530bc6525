"""The end of a session that the far side has asked for: an interrupt, or ``pytest.exit``.

Makes of the event what is raised here. Knows no worker and no node of pytest's.
"""

from __future__ import annotations

import pytest

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text

__all__ = ["FarEndError", "error_of"]

LAST_LINE = 2**31 - 1
"""The largest number of a line that a frame can have."""


class FarEndError(Exception):
    """The far side has ended the session while it collected.

    :ivar error: what is to be raised where pytest looks for it.
    """

    def __init__(self, event: events.Exited) -> None:
        super().__init__()
        self.error = error_of(event)


def error_of(event: events.Exited) -> BaseException:
    """Give what ends the session; an interrupt has its place there, which pytest shows."""
    text = from_text(event.text)
    if not event.interrupt:
        return pytest.exit.Exception(text, event.status)
    error = KeyboardInterrupt(text) if text else KeyboardInterrupt()
    return error if event.where is None else _placed(error, *event.where)


def _placed(error: KeyboardInterrupt, path: bytes, line: int) -> KeyboardInterrupt:
    """Give an interrupt the traceback of one that came up at a place there.

    What runs is the one statement that raises it, under the name of that file.
    """
    name = from_text(path).replace("\0", "")
    code = compile("raise error", name, "exec").replace(co_firstlineno=min(max(line, 1), LAST_LINE))
    try:
        exec(code, {"error": error})  # noqa: S102 -- nothing of it comes from there but names
    except KeyboardInterrupt as raised:
        return raised
    return error
