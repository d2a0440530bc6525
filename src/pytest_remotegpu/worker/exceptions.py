"""Exceptions as trees: those that led to one, and what the frames of them all keep alive.

Knows nothing of pytest and of GPUs.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Final

__all__ = ["related", "release"]

RESUMABLE: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def related(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its causes and contexts, and the members of groups, each once."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        todo += [one.__cause__, one.__context__, *members]


def release(errors: Iterable[BaseException]) -> None:
    """Let go of the local variables of every frame that these exceptions passed through.

    Whoever keeps the exceptions then keeps no more than where they came from. Frames that still run
    are left alone, and so are those of generators and coroutines that may be resumed.
    """
    frames = {
        id(frame): frame
        for error in errors
        for one in related(error)
        for frame, _line in traceback.walk_tb(one.__traceback__)
    }
    resumable = _resumable(list(frames.values()))
    for frame in frames.values():
        if id(frame) not in resumable:
            with contextlib.suppress(RuntimeError):  # it runs
                frame.clear()
                _ = frame.f_locals  # up to Python 3.12 a copy that somebody has asked for is kept


def _resumable(frames: list[FrameType]) -> set[int]:
    """Name the frames that a waiting generator will go on with, which clearing would end.

    From Python 3.13 on such a frame can't be cleared anyhow.
    """
    asked = [frame for frame in frames if frame.f_code.co_flags & RESUMABLE]
    if not asked or sys.version_info >= (3, 13):
        return set()
    found: set[int] = set()
    for owner in gc.get_referrers(*asked):
        match owner:
            case GeneratorType():
                found.add(id(owner.gi_frame))
            case CoroutineType():
                found.add(id(owner.cr_frame))
            case AsyncGeneratorType():
                found.add(id(owner.ag_frame))
    return found
