"""A real SSH server for the tests in this folder, where one is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sshd


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


@pytest.fixture
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out other plugins, which take longer to import than a session takes."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_remotegpu.plugin")
