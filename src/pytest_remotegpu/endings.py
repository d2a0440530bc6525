"""The end of a session that the far side has asked for, or that it can't serve.

Makes of an event what is raised here: an interrupt, or what ``pytest.exit`` raises. Knows no worker
and no node of pytest's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import pytest
from msgspec.structs import replace

from pytest_remotegpu.advice import Refusal
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text

__all__ = ["FarEndError", "end", "error_of", "refusals"]

LAST_LINE = 2**31 - 1
"""The largest number of a line that a frame can have."""


class Ends(Protocol):
    """What may have ended: a lane.

    :ivar ending: how a test there has ended the session, if one has.
    :ivar refusal: why the far side can't serve it, once that is known.
    """

    ending: events.Exited | None
    refusal: Refusal | None


class FarEndError(Exception):
    """The far side has ended the session while it collected.

    :ivar error: what is to be raised where pytest looks for it.
    """

    def __init__(self, event: events.Exited) -> None:
        super().__init__()
        self.error = error_of(event)


def refusals(lanes: Iterable[Ends], name: str, explain: Callable[..., list[str]]) -> list[Refusal]:
    """Take why lanes can't be served, and say it in full.

    :param name: of the backend. :param explain: gives more lines for a text.
    """
    found = []
    for lane in lanes:
        refusal, lane.refusal = lane.refusal, None
        if refusal is not None:
            head = f"the far side ({name}) can't serve this session"
            text = "\n".join([f"{head}:", refusal.text, *explain(refusal.text, ends=True)])
            found.append(Refusal(text, refusal.loading))
    return found


def end(lanes: Iterable[Ends], *, failed: bool) -> None:
    """End the session as a shipped test has asked for.

    :param failed: whether the far side has, which the status of a test must not hide.
    :raises KeyboardInterrupt: or what ``pytest.exit`` raises.
    """
    for lane in lanes:
        ending, lane.ending = lane.ending, None
        if ending is not None:
            status = (ending.status or 1) if failed else ending.status
            raise error_of(replace(ending, status=status))


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
