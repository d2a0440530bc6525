"""What all tests share: pytester, and no word of an outer session to those that tests start."""

from __future__ import annotations

import os

import pytest

from stage import Stage

pytest_plugins = "pytester"

# Under tox pytest keeps its cache in one folder, which all inner sessions would share.
os.environ.pop("TOX_ENV_DIR", None)


@pytest.fixture(autouse=True)
def _no_outer_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what would reach into the sessions that tests start."""
    for name in [name for name in os.environ if name.startswith(("PYTEST_REMOTEGPU", "REMOTEGPU"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


@pytest.fixture
def stage(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Give a project and a far side that follows scripts."""
    return Stage(pytester, monkeypatch)
