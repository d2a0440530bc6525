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


@pytest.mark.parametrize(
    ("argument", "files", "overlooked"),
    [
        ("tesst", ["/home/me/project"], True),
        ("tesst/sub", ["/home/me/project/sub"], True),
        ("tests/sub", ["/home/me/project/tests/sub"], False),
        ("tests/test_a.py::test", ["/home/me/project/tests/test_a.py"], False),
        ("/home/me/project/tests", ["/home/me/project/tests"], False),
        (".", ["/home/me/project"], False),
        ("x" * 5000, ["/home/me/project"], True),
    ],
)
def test_which_paths_were_overlooked(argument: str, files: list[str], *, overlooked: bool) -> None:
    """Those that stand on the command line and are nowhere."""
    found = options.overlooked([argument], ["--brief", argument], files)
    assert found == ([argument] if overlooked else [])
    assert options.overlooked([argument], ["--brief"], files) == []
