"""Runs pytest on small projects as a user would, and reads what came of it.

Knows the command line only, nothing of the package's inside.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["CPU", "FakePython", "run", "said"]

CPU = "--remote=local:cpu"
PATIENCE = 40.0
"""Seconds that a session may take."""


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
