"""A check of a far side: a worker is started there, says what it is, and is ended.

Knows backends by their contract and of the wire the hello; sends no order.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from pytest_remotegpu import backends
from pytest_remotegpu.backends.base import Backend, Channel, Environment, Site
from pytest_remotegpu.config import split_spec
from pytest_remotegpu.doctor.check import Check, fail, ok, warn
from pytest_remotegpu.errors import FarSideError, RemoteGpuError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol.frames import EventStream, frame
from pytest_remotegpu.protocol.hello import Hello, differences

__all__ = ["check_hello", "examine", "open_backend"]

PATIENCE: Final = 60.0
"""Seconds for the hello; a login may take some."""


def open_backend(spec: str, python: str) -> Backend:
    """Read a specification as a session would.

    :param python: the far interpreter, or empty.
    :raises UsageError: where it can't be read.
    """
    name, rest = split_spec(spec)
    site = Site(python=python, executable=sys.executable, platform=sys.platform, root=os.getcwd())  # noqa: PTH109 -- a text is wanted
    return backends.find(name, rest, site)


def examine(
    backend: Backend, environ: Mapping[str, str], patience: float = PATIENCE
) -> Iterator[Check]:
    """Start a worker and check what it says of itself.

    :param patience: seconds to wait for it.
    """
    try:
        channel = backend.open(Shape(1), Environment(dict(environ)))
    except RemoteGpuError as error:
        yield fail("remote", f"{backend.name} can't be started: {error}", _FIX)
        return
    try:
        hello = _listen(channel, patience)
    except FarSideError as error:
        yield fail("remote", f"{backend.name}: {error}", _FIX)
    else:
        yield from check_hello(backend.name, Hello.here(), hello)
    finally:
        channel.stop()


_FIX: Final = "see docs/troubleshooting.md, 'When the worker starts'"


def _listen(channel: Channel, patience: float) -> Hello:
    """Give the hello of the worker at the other end.

    :raises FarSideError: where none comes.
    """
    found: list[Hello] = []
    trouble: list[str] = []
    reader = threading.Thread(target=_read, args=(channel, found, trouble), daemon=True)
    reader.start()
    try:
        channel.send(frame(Hello.here().encode()))
    except FarSideError as error:
        trouble.append(str(error))
    reader.join(patience)
    if found:
        return found[0]
    if reader.is_alive():
        raise FarSideError(f"no hello came within {patience:g} s")
    raise FarSideError("; ".join([*trouble, channel.diagnosis()]))


def _read(channel: Channel, found: list[Hello], trouble: list[str]) -> None:
    stream = EventStream("", "")
    try:
        for chunk in channel.frames():
            for said in stream.feed(chunk):
                assert isinstance(said, Hello)
                found.append(said)
                return
    except RemoteGpuError as error:
        trouble.append(str(error))


def check_hello(name: str, here: Hello, there: Hello) -> Iterator[Check]:
    """Check what a worker says of itself.

    :param name: of the far side.
    """
    text = (
        f"{name}: {there.host or 'a host without a name'}, Python {there.python} "
        f"({there.executable}), pytest {there.pytest or 'missing'}, {there.package}"
    )
    wrong = differences(here, there)
    for difference in wrong:
        what, _, fix = difference.rpartition(": ")
        yield fail("remote", f"{name}: {what}", fix)
    if not wrong:
        yield ok("remote", text)
    if there.pretend is not None:
        yield warn("remote", f"{name} pretends {there.pretend} GPUs and uses none", "nothing, if "
                   "that is meant")  # fmt: skip
    elif not there.gpus:
        look = f"{there.executable or 'python3'} -m pytest_remotegpu doctor"
        yield fail("remote", f"{name} shows no GPU", f"run there: {look}")
    else:
        yield ok("remote", f"{name}: {len(there.gpus)} GPUs, {', '.join(there.gpus)}")
