"""A project's folder with warm processes near by, and a real SSH server; Linux and macOS only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    """Have one server for all tests."""
    if reason := sshd.why_not():
        pytest.skip(reason)
    with sshd.serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def gpubox(server: sshd.Sshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[sshd.Sshd]:
    """Give the server, whose hosts ``ssh`` knows meanwhile; nothing may be left on it."""
    monkeypatch.setenv("PATH", server.path)
    yield server
    assert (server.living(), server.leavings()) == ([], [])
