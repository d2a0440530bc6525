"""Runs pytest on small projects as a user would, and reads what came of it.

Knows the command line only, nothing of the package's inside.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

__all__ = ["CPU", "LONG", "FakePython", "Started", "own_marker", "run", "said", "until"]

CPU = "--remote=local:cpu"
PATIENCE = 40.0
"""Seconds that a session may take."""
LONG = """
    import pathlib
    import time
    import pytest

    @pytest.fixture(scope="module")
    def thing():
        yield
        pathlib.Path("torn-down").touch()

    @pytest.mark.gpu
    def test_before(thing): pass

    @pytest.mark.gpu
    def test_long(thing):
        pathlib.Path("has-begun").touch()
        time.sleep(60)

    @pytest.mark.gpu
    def test_after(thing): pass
"""
"""A project whose second test runs for a minute, with a fixture that leaves a file at its end."""


def said(result: pytest.RunResult) -> str:
    """Give all that a session has written; an internal error is none of its answers."""
    text = result.stdout.str() + "\n" + result.stderr.str()
    assert "INTERNALERROR" not in text
    assert "Traceback (most recent call last)" not in result.stderr.str()
    return text


def run(pytester: pytest.Pytester, *args: str | Path) -> pytest.RunResult:
    """Run pytest in *pytester*'s folder, as a user's shell would."""
    result = pytester.runpytest_subprocess(*args, timeout=PATIENCE)
    said(result)
    return result


def own_marker(pytester: pytest.Pytester, where: str) -> None:
    """Let a project register a ``gpu`` marker of its own, in its ``ini`` or its ``conftest``."""
    if where == "ini":
        pytester.makeini("[pytest]\nmarkers = gpu(memory): needs a card\n")
    else:
        pytester.makeconftest("""
            def pytest_configure(config):
                config.addinivalue_line("markers", "gpu(memory): needs a card")
        """)


class FakePython:
    """An interpreter that leaves a file when it is started, and does nothing else.

    :ivar path: what to name in ``remotegpu_python``.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fake-python"
        self._trace = folder / "fake-python-was-started"
        self.path.write_text(f"#!/bin/sh\ntouch '{self._trace}'\n")
        self.path.chmod(0o755)

    @property
    def started(self) -> bool:
        """Whether anybody has started it."""
        return self._trace.exists()


def until(true: Callable[[], Any], seconds: float = PATIENCE) -> bool:
    """Wait until something is true; say whether it was, within *seconds*."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Started:
    """A session that a test looks on: what it writes, and when, and which processes it has.

    :param merged: whether stderr goes the way of stdout.
    """

    def __init__(self, pytester: pytest.Pytester, *args: str | Path, merged: bool = True) -> None:
        self._mark = f"REMOTEGPU_TRACE={uuid.uuid4().hex}".encode()
        name, _, value = self._mark.decode().partition("=")
        os.environ[name] = value
        try:
            self.process = pytester.popen(
                [sys.executable, "-m", "pytest", *map(str, args)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merged else subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            del os.environ[name]
        self.began = time.monotonic()
        self._chunks: list[tuple[float, bytes]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        with stream:
            while chunk := os.read(stream.fileno(), 2**16):
                self._chunks.append((time.monotonic() - self.began, chunk))

    @property
    def text(self) -> str:
        """What it has written so far."""
        return b"".join(chunk for _, chunk in list(self._chunks)).decode()

    def at(self, text: str) -> float:
        """Say when *text* was there, in seconds since the start."""
        seen = b""
        for moment, chunk in list(self._chunks):
            seen += chunk
            if text.encode() in seen:
                return moment
        raise AssertionError(f"{text!r} was never written:\n{self.text}")

    def wait_for(self, text: str) -> None:
        """Wait until it has written *text*."""
        assert until(lambda: text in self.text or self.process.poll() is not None)
        assert until(lambda: text in self.text, 2.0), self.text

    def end(self, patience: float = PATIENCE) -> int:
        """Wait so many seconds at most for its end, and give its exit status."""
        status: int = self.process.wait(patience)
        self._reader.join(PATIENCE)
        return status

    def living(self) -> list[int]:
        """List its processes, itself among them: all that bear its mark in their environment."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End what is left of it; all at once, so that none of them acts on another one's end."""
        living = self.living()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
