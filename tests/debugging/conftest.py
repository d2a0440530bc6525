"""A project's folder with warm processes near by, and a real SSH server; Linux and macOS only."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sshd
from warmth import Warmth

from .project import CPU, PLAIN

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]


@pytest.fixture(autouse=True)
def _lean_and_warm(monkeypatch: pytest.MonkeyPatch, warm_home: Warmth) -> None:
    """Let sessions share a warm process, which imports no plugin of others."""
    monkeypatch.delenv("CI")
    monkeypatch.setenv("HOME", str(warm_home.runtime))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_remotegpu.plugin")


@pytest.fixture(params=[PLAIN, CPU], ids=["plain", "far"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run all in this session's process, and on a far side: a user sees the same."""
    if request.param == PLAIN:
        monkeypatch.delenv("PYTEST_PLUGINS")
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give an empty project."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return tmp_path


server, gpubox = sshd.server, sshd.gpubox
