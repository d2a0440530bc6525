"""The ways in which a suite is run, and one run of one of them.

Knows command lines and files, and nothing of what comes of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .outcomes import Outcomes, read
from .suites import HERE, Suite

__all__ = ["FAR", "LEGS", "PLAIN", "Leg", "Place", "surroundings"]

ROOT: Final = HERE.parents[1]
COMMON: Final = (
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "-o",
    "junit_family=xunit1",
    "--color=no",
)
DROPPED: Final = (
    "PYTEST",
    "REMOTEGPU",
    "COV_",
    "COVERAGE",
    "TOX",
    "MODAL",
    "PYTHONPATH",
    "PYTHONHASH",
)
CI: Final = ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "VIRTUAL_ENV", "FORCE_COLOR")


@dataclass(frozen=True)
class Leg:
    """A way to run a suite.

    :ivar name: what it is called in results and on the command line.
    :ivar args: what is added to pytest's command line.
    :ivar service: whether it needs the service that Modal's client takes for the real one.
    """

    name: str
    args: tuple[str, ...] = ()
    service: bool = False


PLAIN: Final = Leg("plain")
FAR: Final = (
    Leg("local", ("--remote-all", "--remote=local:cpu")),
    # a container of that service has the packages of the interpreter that runs it
    Leg("modal", ("--remote-all", "--remote=modal:T4", "-o", "remotegpu_requirements=none"), True),
)
CARD: Final = Leg("card", ("--remote-all", "--remote=local"))
LEGS: Final = {leg.name: leg for leg in (*FAR, CARD)}


def surroundings(suite: Suite, runtime: Path, python: Path) -> dict[str, str]:
    """Give the variables of a run: this process's, without what would reach into sessions.

    The interpreter's folder is first on the path, as where its environment is activated.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(DROPPED) and name not in CI
    }
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**kept, "XDG_RUNTIME_DIR": str(runtime), "PATH": path, **suite.environ}


@dataclass(frozen=True)
class Place:
    """Where a suite lives while it is run: its environment, its sdist, its folder.

    :ivar python: the interpreter that has the suite's packages and this one.
    :ivar archive: the file that was installed.
    :ivar folder: made anew for each run, so that none finds what another has left.
    :ivar environ: the variables of all runs.
    """

    suite: Suite
    python: Path
    archive: Path
    folder: Path
    environ: Mapping[str, str]

    def run(self, leg: Leg, limit: float) -> Outcomes:
        """Run the suite so.

        :param limit: seconds after which it is ended.
        :raises subprocess.TimeoutExpired: if that comes to pass.
        """
        project = self._unpacked()
        report = self.folder / f"{leg.name}.xml"
        report.unlink(missing_ok=True)
        began = time.monotonic()
        with (self.folder / f"{leg.name}.log").open("wb") as log:
            done = subprocess.run(
                list(self._command(leg, project, report)),
                cwd=ROOT if leg.service else project,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            )
        return read(report, done.returncode, time.monotonic() - began)

    def _command(self, leg: Leg, project: Path, report: Path) -> Iterator[str]:
        if leg.service:
            yield from (str(self.python), "-m", "tests.loopback", "--")
            yield from ("sh", "-c", 'cd "$0" && exec "$@"', str(project))
        yield from (str(self.python), "-m", "pytest", *COMMON, f"--junitxml={report}")
        if self.suite.draws:
            yield "--hypothesis-seed=0"
        if leg != PLAIN and self.suite.far:
            yield from ("-o", f"remotegpu_env={' '.join(self.suite.far)}")
        yield from (*leg.args, *self.suite.args)

    def _unpacked(self) -> Path:
        """Make the folder that pytest is started in: the sdist's own, or an empty one."""
        project = self.folder / "project"
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir(parents=True)
        if self.suite.installed:
            return project
        with tarfile.open(self.archive) as archive:
            archive.extractall(project, filter="data")
        (inner,) = project.iterdir()
        return inner
