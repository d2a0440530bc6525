"""A check of a far side: a worker is started there, says what it is, and is ended.

Knows backends by their contract and of the wire the hello; sends no order.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Final

from pytest_remotegpu import backends
from pytest_remotegpu.backends.base import (
    Backend,
    Channel,
    Describes,
    Environment,
    Examines,
    Site,
    Tells,
)
from pytest_remotegpu.config import split_spec
from pytest_remotegpu.doctor import project
from pytest_remotegpu.doctor.check import FAIL, Check, fail, ok, warn
from pytest_remotegpu.errors import FarSideError, RemoteGpuError, UnreadyError, UsageError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol.frames import EventStream, frame
from pytest_remotegpu.protocol.hello import Hello, differences

__all__ = ["check_hello", "examine", "look", "open_backend"]

PATIENCE: Final = 60.0
"""Seconds for the hello; a login may take some."""
BUILDING: Final = 1800.0
"""The same for a far side that may have to build what it runs in first."""
GLANCE: Final = 0.5
"""Seconds between two looks at what a backend has to say meanwhile."""


def open_backend(spec: str, python: str, site: Site | None = None) -> Backend:
    """Read a specification as a session would.

    :param python: the far interpreter, or empty. :param site: what the project asks for.
    :raises UsageError: where it can't be read. :raises UnreadyError: where something is missing.
    """
    name, rest = split_spec(spec)
    return backends.find(name, rest, site or _site(python))


def _site(python: str, wait: float = 0.0) -> Site:
    return Site(
        python=python,
        executable=sys.executable,
        platform=sys.platform,
        root=os.getcwd(),  # noqa: PTH109 -- a text is wanted
        wait=wait,
    )


def look(spec: str, python: str, environ: Mapping[str, str], wait: float) -> Iterator[Check]:
    """Read a specification, and give the checks of that far side, which are made one by one.

    :param python: the far interpreter, or empty. :param wait: seconds, for a card.
    :raises UsageError: where it can't be read.
    """
    try:
        backend = open_backend(spec, python)
    except UnreadyError as error:
        return iter([fail("remote", error.what, error.fix)])
    if not isinstance(backend, Describes):
        return examine(backend, environ)
    if python:
        raise UsageError(
            f"--python={python} names an interpreter on a host that has one; machines of "
            f"--remote={spec} get their own, of which remotegpu_image says more; leave out --python"
        )
    return _equipped(spec, _site("", wait), environ)


def _equipped(spec: str, site: Site, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check a far side that is equipped with what the project asks for."""
    try:
        backend = open_backend(spec, "", project.asks(site, environ))
    except RemoteGpuError as error:
        yield fail("project", error.what, error.fix or "mend it in the project's files")
    else:
        yield from examine(backend, environ, PATIENCE if backend.prompt else BUILDING)


def examine(
    backend: Backend, environ: Mapping[str, str], patience: float = PATIENCE
) -> Iterator[Check]:
    """Let a backend look at what it needs; where nothing is in the way, start a worker.

    :param patience: seconds to wait for it.
    """
    if isinstance(backend, Examines):
        states = set()
        for finding in backend.examine():
            states.add(finding.state)
            yield Check(**asdict(finding))
        if FAIL in states:
            return
    yield from _try(backend, environ, patience)


def _try(backend: Backend, environ: Mapping[str, str], patience: float) -> Iterator[Check]:
    """Start a worker and check what it says of itself."""
    try:
        channel = backend.open(Shape(1), Environment(dict(environ)))
    except RemoteGpuError as error:
        yield fail("remote", f"{backend.name} can't be started: {error.what}", error.fix or _FIX)
        return
    try:
        hello = _listen(backend, channel, patience)
    except RemoteGpuError as error:
        yield fail("remote", f"{backend.name}: {error.what}", error.fix or _FIX)
    else:
        yield from check_hello(backend.name, Hello.here(), hello)
    finally:
        channel.stop()


_FIX: Final = "see docs/troubleshooting.md, 'When the worker starts'"


def _listen(backend: Backend, channel: Channel, patience: float) -> Hello:
    """Give the hello of the worker at the other end.

    :raises RemoteGpuError: where none comes.
    """
    found: list[Hello] = []
    trouble: list[RemoteGpuError] = []
    reader = threading.Thread(target=_read, args=(channel, found, trouble), daemon=True)
    reader.start()
    try:
        channel.send(frame(Hello.here().encode()))
    except FarSideError as error:
        trouble.append(error)
    _wait(backend, reader, patience)
    if found:
        return found[0]
    if reader.is_alive():
        raise FarSideError(f"no hello came within {patience:g} s")
    for told in trouble:
        if told.fix:
            raise told
    diagnosis = channel.diagnosis()
    said = "; ".join([*map(str, trouble), getattr(channel, "headline", "") or diagnosis])
    fix = str(getattr(channel, "fix", ""))
    raise FarSideError(said.removesuffix(f"; {fix}"), fix=fix)


def _wait(backend: Backend, reader: threading.Thread, patience: float) -> None:
    """Wait for a thread, and pass on what the backend has to say meanwhile: a build takes long."""
    end = time.monotonic() + patience
    while reader.is_alive() and (left := end - time.monotonic()) > 0:
        reader.join(min(left, GLANCE))
        for line in backend.told() if isinstance(backend, Tells) else ():
            sys.stderr.write(f"{backend.name}: {line}\n")
            sys.stderr.flush()


def _read(channel: Channel, found: list[Hello], trouble: list[RemoteGpuError]) -> None:
    stream = EventStream("", "")
    try:
        for chunk in channel.frames():
            for said in stream.feed(chunk):
                assert isinstance(said, Hello)
                found.append(said)
                return
    except RemoteGpuError as error:
        trouble.append(error)


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
