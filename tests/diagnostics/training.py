"""Runs copies of ``examples/training``, whole or with a fault planted in one of its files.

Knows the example by its folder, and the command line.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

__all__ = ["EXAMPLE", "Fault", "Run", "run"]

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "training"
LIMIT: Final = 400
"""Seconds that a run may take where other tests have the cores as well."""
CODE: Final = re.compile(r"^E +(?!note)([a-z]+(?:-[a-z]+)+): ", re.MULTILINE)
LINE: Final = re.compile(r"^(\S+::\S+) (PASSED|FAILED|SKIPPED|ERROR)\b", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """A slip of the pen in a file of the example: a text, and what stands in its place."""

    file: str
    text: str
    instead: str


@dataclass(frozen=True)
class Run:
    """What came of a run: its exit status, its output, each test's outcome, and why any failed."""

    status: int
    output: str
    outcomes: dict[str, str]
    failures: dict[str, str]

    def codes(self, name: str) -> set[str]:
        """Give the codes of the findings that a failed test shows."""
        return set(CODE.findall(self.failures[name]))

    def having(self, outcome: str) -> set[str]:
        """Name the tests of this outcome."""
        return {name for name, found in self.outcomes.items() if found == outcome}


def run(folder: Path, *arguments: str, faults: tuple[Fault, ...] = ()) -> Run:
    """Run a copy of the example in surroundings that show no GPU."""
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    project = Path(shutil.copytree(EXAMPLE, folder / "training", ignore=ignored))
    for fault in faults:
        path = project / fault.file
        source = path.read_text(encoding="utf-8")
        assert source.count(fault.text) == 1, f"{fault.text!r} is not once in {fault.file}"
        path.write_text(source.replace(fault.text, fault.instead), encoding="utf-8")
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rs", "--junitxml=junit.xml", *arguments],
        cwd=project,
        env={**kept, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    outcomes = dict(LINE.findall(done.stdout))
    return Run(done.returncode, done.stdout, outcomes, _failures(project / "junit.xml"))


def _failures(path: Path) -> dict[str, str]:
    """Read what each failed test says, by its id; both texts of one that fails twice."""
    found: dict[str, str] = {}
    for case in ET.parse(path).iter("testcase"):  # noqa: S314  written by our own run
        name = f"{case.attrib['classname']}.py::{case.attrib['name']}"
        for part in (*case.iter("failure"), *case.iter("error")):
            found[name] = f"{found.get(name, '')}{part.text}\n"
    return found
