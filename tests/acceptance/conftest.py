"""A real SSH server for the tests in this folder, where one is installed."""

from __future__ import annotations

import pytest

import sshd

server, gpubox = sshd.server, sshd.gpubox


@pytest.fixture
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out other plugins, which take longer to import than a session takes."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_remotegpu.plugin")
