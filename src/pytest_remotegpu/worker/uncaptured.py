"""What a test writes past pytest's capture, sent on as it would be seen on a terminal.

Knows the fixtures that capture; not who shows the text.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import events
from pytest_remotegpu.worker.emit import Emitter

__all__ = ["show"]

MOST: Final = 2**20
"""Bytes that one stretch of a test without capture may show."""

Disabled = Callable[[], AbstractContextManager[None]]


def show(config: pytest.Config, emitter: Emitter, *, captures: bool) -> None:
    """From now on send what is written while a test has ``capsys`` or one like it disabled.

    :param captures: whether the descriptors are captured otherwise.
    """
    original: Any = pytest.CaptureFixture.disabled
    own = os.getpid()

    def disabled(fixture: Any) -> AbstractContextManager[None]:
        # a session within a test shows what it has by itself, a fork of a test has nobody to tell
        if fixture.request.config is not config or os.getpid() != own:
            return original(fixture)  # type: ignore[no-any-return]
        return _disabled(lambda: original(fixture), emitter, captures=captures)

    pytest.CaptureFixture.disabled = disabled  # type: ignore[method-assign, assignment]


@contextlib.contextmanager
def _disabled(original: Disabled, emitter: Emitter, *, captures: bool) -> Iterator[None]:
    try:
        with original(), _kept_apart(emitter):
            yield
    finally:  # what a crash report shows is from now on what pytest captures, if it does
        with contextlib.suppress(OSError):  # the test may have closed a stream
            emitter.flush([os.dup(fd) if captures else _nothing() for fd in (1, 2)])


@contextlib.contextmanager
def _kept_apart(emitter: Emitter) -> Iterator[None]:
    """Send what is written in the block once it ends."""
    with contextlib.ExitStack() as kept:
        try:
            files = [(fd, kept.enter_context(tempfile.TemporaryFile())) for fd in (1, 2)]
            before = [(fd, os.dup(fd)) for fd, _ in files]
        except OSError:  # a full disk; a stream that the test has closed
            yield
            return
        _flush()
        emitter.flush([os.dup(file.fileno()) for _, file in files])  # for the report of a crash
        for fd, file in files:
            os.dup2(file.fileno(), fd)
        try:
            yield
        finally:
            _flush()
            for fd, own in before:
                os.dup2(own, fd)
                os.close(own)
            for fd, file in files:
                _send(fd, os.pread(file.fileno(), MOST, 0), emitter)


def _nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def _flush() -> None:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stdout.flush()
        sys.stderr.flush()


def _send(stream: int, data: bytes, emitter: Emitter) -> None:
    """Send text on, to the user and to what is reported of a crash."""
    if data:
        with contextlib.suppress(OSError):
            os.write(stream, data[-(2**12) :])
        emitter.put(events.Live(stream, data))
        emitter.flush()
