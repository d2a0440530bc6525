"""Which options a runner is given, and which it can't know."""

from __future__ import annotations

import importlib.util

import pytest

from pytest_remotegpu.worker import options

ARGS = [
    "-q",
    "--cov=src",
    "--cov-branch",
    "--no-cov",
    "--cover",
    "-k",
    "cov",
    "a/--cov",
    "--cov",
]


@pytest.mark.parametrize("installed", [False, True])
def test_coverage_is_asked_for_where_somebody_knows_it(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec("pytest") if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: found)
    kept = ["-q", "--cover", "-k", "cov", "a/--cov"]
    assert options.understood(ARGS) == (ARGS if installed else kept)
