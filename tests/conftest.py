"""What all tests share: pytester, and no word of an outer session to those that tests start."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from stage import Stage
from warmth import Warmth, warmth

pytest_plugins = "pytester"

# How long an example takes says more of who else uses the machine than of what is tested.
settings.register_profile("unhurried", settings.default, deadline=None)
settings.load_profile("unhurried")

# Under tox pytest keeps its cache in one folder, which all inner sessions would share.
os.environ.pop("TOX_ENV_DIR", None)

# What is only right where Python holds no output back must not seem right.
os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.fixture(scope="session", autouse=True)
def warm_home() -> Iterator[Warmth]:
    """Give one agent to all sessions that this process's tests start, and end it."""
    with warmth() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(home.runtime))
        patch.setenv("XDG_CACHE_HOME", str(home.runtime / "cache"))
        yield home


@pytest.fixture(autouse=True)
def _no_outer_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what would reach into the sessions that tests start."""
    for name in [name for name in os.environ if name.startswith(("PYTEST_REMOTEGPU", "REMOTEGPU"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # pytester gives each session surroundings of its own, so that no warm process would fit twice
    monkeypatch.setenv("CI", "true")


@pytest.fixture
def stage(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Give a project and a far side that follows scripts."""
    return Stage(pytester, monkeypatch)
