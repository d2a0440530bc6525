"""Each folder of ``examples/`` as its user runs it: through ``local:cpu``, and plainly.

Knows the examples by their folders only, apart from what the quickstart promises. That of training
takes longer than others: ``tests/diagnostics/test_training.py`` runs it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
LONG = {"training"}
NAMES = sorted({path.name for path in EXAMPLES.iterdir() if path.is_dir()} - LONG)
TORCH_IS_MISSING = re.compile(r"torch.* not installed")
CARD_IS_MISSING = re.compile(r"needs a CUDA card|is no way to compute the \w+ branch")
HAS_TORCH = importlib.util.find_spec("torch") is not None
GPU_IS_MISSING = "this host shows 0"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="local:cpu needs a POSIX system")


@dataclass(frozen=True)
class Case:
    """One test of a run, as the junit file has it.

    :ivar skipped: the reason, ``None`` for a test that ran. :ivar failed: the message, if it did.
    :ivar properties: as recorded, those of the plugin included.
    """

    name: str
    skipped: str | None
    failed: str | None
    properties: dict[str, str]

    @property
    def shipped(self) -> bool:
        """Whether it says that a worker ran it."""
        return "remotegpu_worker" in self.properties


@dataclass(frozen=True)
class Run:
    """One run of an example: its folder, exit status, output, and tests."""

    folder: Path
    status: int
    output: str
    cases: list[Case]


def run(name: str, folder: Path, *arguments: str) -> Run:
    """Run a copy of an example in a clean environment that shows no GPU."""
    project = folder / name
    if not project.exists():
        ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        shutil.copytree(EXAMPLES / name, project, ignore=ignored)
    kept = {key: val for key, val in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "--junitxml=junit.xml", *arguments],
        cwd=project,
        env={**kept, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    return Run(project, done.returncode, done.stdout, _cases(project / "junit.xml"))


def _cases(path: Path) -> list[Case]:
    found = []
    for case in ET.parse(path).iter("testcase"):  # noqa: S314  written by our own run
        failed = case.find("failure") if case.find("error") is None else case.find("error")
        found.append(
            Case(
                case.attrib["name"],
                None if (skip := case.find("skipped")) is None else skip.attrib["message"],
                None if failed is None else failed.attrib["message"],
                {part.attrib["name"]: part.attrib["value"] for part in case.iter("property")},
            )
        )
    return found


@pytest.fixture(scope="module")
def ship(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Run an example through ``local:cpu``, each once."""
    folder = tmp_path_factory.mktemp("shipped")
    return functools.cache(
        lambda name: run(name, folder, "--remote=local:cpu", "--remote-artifacts=artifacts")
    )


@pytest.mark.parametrize("name", NAMES)
def test_example_passes_through_local_cpu(name: str, ship: Callable[[str], Run]) -> None:
    done = ship(name)
    assert done.status == 0, done.output
    assert [case for case in done.cases if case.failed] == []
    skipped = {case.skipped for case in done.cases if case.skipped}
    without_torch = {reason for reason in skipped if TORCH_IS_MISSING.search(reason)}
    assert not (without_torch and HAS_TORCH)
    others = skipped - without_torch
    assert all(CARD_IS_MISSING.search(reason) for reason in others), others
    assert any(case.shipped for case in done.cases)
    assert "no GPU was used" in done.output


@pytest.mark.parametrize("name", NAMES)
def test_example_passes_plainly(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)
    assert done.status == 0, done.output
    assert [case for case in done.cases if case.failed] == []
    skipped = {case.skipped for case in done.cases if case.skipped}
    assert skipped
    assert all(GPU_IS_MISSING in reason for reason in skipped), skipped
    assert not any(case.shipped for case in done.cases)


def test_examples_are_run() -> None:
    assert NAMES == ["fa2_thresholds", "quickstart", "torch_fixtures"]


def test_quickstart_shows_the_main_job(ship: Callable[[str], Run]) -> None:
    done = ship("quickstart")
    cards = {case.name: case.properties.get("remotegpu_gpu", "here") for case in done.cases}
    assert cards == {
        "test_split_keeps_every_point[1]": "here",
        "test_split_keeps_every_point[2]": "here",
        "test_split_keeps_every_point[8]": "here",
        "test_loss_falls[0.1]": "1 GPU (pretend)",
        "test_loss_falls[0.3]": "1 GPU (pretend)",
        "test_gradient_vanishes_at_the_solution": "1 GPU (pretend)",
        "test_two_halves_make_the_whole": "2 GPUs (pretend)",
    }
    summary = done.output.partition("remote summary")[2]
    assert "1 GPU   1 worker   3 tests" in summary
    assert "2 GPUs   1 worker   1 test " in summary
    curves = sorted((done.folder / "artifacts").glob("*/loss.csv"))
    assert len(curves) == 2
    for curve in curves:
        lines = curve.read_text(encoding="utf-8").splitlines()
        assert (lines[0], len(lines)) == ("step,loss", 31)
