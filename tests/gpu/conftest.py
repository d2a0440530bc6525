"""Sessions on this host's cards, all of them served by one warm agent that ends with the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from warmth import Warmth, warmth

from . import REMOTE, Run

PATIENCE = 100.0
"""Seconds that a session may take; the first one imports torch."""
THERE = 'if "REMOTEGPU_WORKER" in __import__("os").environ: import torch'


@pytest.fixture(scope="session")
def home() -> Iterator[Warmth]:
    """Give a home for the agent."""
    with warmth() as made:
        yield made


@pytest.fixture
def run(pytester: pytest.Pytester, home: Warmth) -> Run:
    """Give a function that runs a session on the cards of this host, with these files.

    Their line ``import torch`` is obeyed in the worker, whose zygote has done so already; this side
    only collects, and would take many times as long for it as for all else. All sessions have the
    same home and import path, lest each needs a zygote of its own.
    """
    environ = {
        name: value for name, value in os.environ.items() if name not in {"CI", "PYTHONPATH"}
    }
    environ |= dict.fromkeys(("XDG_RUNTIME_DIR", "HOME", "USERPROFILE"), str(home.runtime))

    def run(*args: str, **files: str) -> pytest.RunResult:
        for name, text in files.items():
            made = textwrap.dedent(text).replace("\nimport torch\n", f"\n{THERE}\n")
            Path(pytester.path, f"{name}.py").write_text(made)
        junit = (f"--junitxml={pytester.path / 'junit.xml'}", "-o", "junit_family=xunit1")
        command = [sys.executable, "-m", "pytest", REMOTE, "--gpu-required", "-v", "-rA", *junit]
        return _result([*command, *args], pytester.path, environ)

    return run


def _result(command: list[str], folder: Path, environ: dict[str, str]) -> pytest.RunResult:
    """Run a session, and show what it says where its test fails."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    lines = done.stdout.splitlines(), done.stderr.splitlines()
    return pytest.RunResult(done.returncode, *lines, time.monotonic() - began)
