"""Ending what descends from a process, beside what has to stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO

import pytest

from pytest_remotegpu.worker import process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

FORKS = """
import os, sys

print(flush=True)
while not os.read(0, 1) == b"!":
    pass
os.set_blocking(0, False)
forks = 0
while True:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        sys.exit(f"fork {forks} ended with status {status}")
    forks += 1
    try:
        if not os.read(0, 1):
            sys.exit(0 if forks > 20 else "too few forks")
    except BlockingIOError:
        pass
"""
SLEEPS = "import time; print(flush=True); time.sleep(600)"


def _started(code: str) -> subprocess.Popen[bytes]:
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"\n"
    return started


@pytest.fixture
def forking() -> Iterator[subprocess.Popen[bytes]]:
    with _started(FORKS) as started:
        yield started
        started.kill()


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with _started(SLEEPS) as started:
        yield started
        started.kill()


def _input(started: subprocess.Popen[bytes]) -> IO[bytes]:
    assert started.stdin is not None
    return started.stdin


def test_what_stays_may_fork_meanwhile(
    forking: subprocess.Popen[bytes], sleeping: subprocess.Popen[bytes]
) -> None:
    """Nothing that begins below a process that stays is ended, not even while others are."""
    _input(forking).write(b"!")
    _input(forking).flush()
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        assert process.end_tree(keep=(forking.pid,)) == []
    assert forking.poll() is None
    _input(forking).close()
    assert forking.wait() == 0
    assert sleeping.pid not in process.children(os.getpid())


def test_descendants_of_what_is_left_out_are_left_out() -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPS!r}])"
    with _started(code) as started:
        (below,) = process.children(started.pid)
        found = process.children(os.getpid())
        assert {started.pid, below} <= {*found}
        kept = process.children(os.getpid(), without=(started.pid,))
        assert not {started.pid, below} & {*kept}
        assert {*process.children(started.pid, without=(started.pid,))} == {below}
        process.end_tree()
        started.wait()  # which says 0 where somebody has buried it
        assert not {started.pid, below} & {*process.children(os.getpid())}
