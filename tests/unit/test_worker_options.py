"""Which options a runner is given, and which it can't know."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pytest

from pytest_remotegpu.worker import options
from pytest_remotegpu.worker.folders import Folders

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


def test_what_reporters_are_asked_for_is_asked_for_once() -> None:
    """Those that add to reports where tests run go on to do so; nobody else writes a file."""
    given = argparse.Namespace(
        json_report=True,
        json_report_file="out.json",
        benchmark_json="b.json",
        benchmark_disable=False,
        allure_report_dir="results",
        clean_alluredir=True,
        forked=True,
    )
    options.neutralise(given, "local-1")
    assert vars(given) == {
        "json_report": True,
        "json_report_file": None,
        "benchmark_json": None,
        "benchmark_disable": False,
        "allure_report_dir": "results",
        "clean_alluredir": False,
        "forked": False,
    }


def test_folders_of_another_machine_are_stood_in_for(tmp_path: Path) -> None:
    given = argparse.Namespace(text="results", path=Path("bins"), none=None)
    Folders(["text", "path", "none", "missing"], str(tmp_path)).redirect(given)
    assert vars(given) == {
        "text": str(tmp_path / "folders/text"),
        "path": tmp_path / "folders/path",
        "none": None,
    }
