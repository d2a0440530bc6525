"""Runs one project in a pytest process of its own and reads back everything that it reported.

It knows the observer's file and the table of what may differ; it must not know what is compared.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import fakes

from . import junit, terminal
from .normal import Normaliser
from .terminal import Terminal

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
LOOK = ("-rA", "-v", "--color=no")
# Loading it costs a second in each run that has a warning to show.
LEFT_OUT = ("-p", "no:hypothesispytest")
DROPPED = ("PYTEST", "PARITY", "COV_", "CI", "BUILD_NUMBER", "FORCE_COLOR", "NO_COLOR", "PY_COLORS")
LIMIT = 120.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A test report as the observer saw it; each field is compared."""

    nodeid: str
    kind: str
    when: str
    outcome: str
    location: str
    wasxfail: str
    longrepr: str
    longrepr_kind: str
    crash: str | None
    sections: list[tuple[str, str]]
    user_properties: list[tuple[str, str]]
    keywords: list[str]
    context: str
    timed: bool
    attributes: dict[str, str]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A selected item; each field is compared."""

    nodeid: str
    location: str
    keywords: list[str]
    markers: list[str]
    gpu: bool


class Warned(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """A recorded warning; each field is compared."""

    category: str
    text: str
    nodeid: str
    when: str
    filename: str
    lineno: int


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """A failed or skipped collection; each field is compared."""

    nodeid: str
    outcome: str
    longrepr: str


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """All that the observer wrote in one session."""

    items: list[Item] = []
    deselected: list[str] = []
    collected: list[Collected] = []
    reports: list[Report] = []
    warnings: list[Warned] = []
    events: list[tuple[str, str]] = []
    exitstatus: int | None = None


@dataclass(frozen=True)
class Observation:
    """One finished run.

    Attributes:
        status: the exit status of the process.
        sessions: one per process that took itself for the controller; more or less than one is
            a difference of its own.
        output: what the process wrote on both of its streams, as it was.
        terminal: the same, normalised and taken apart.
        junit: the junit file, or None where none was written.
    """

    status: int
    sessions: tuple[Session, ...]
    output: str
    terminal: Terminal
    junit: junit.Junit | None

    @property
    def session(self) -> Session:
        """The session, an empty one where the observer wrote nothing."""
        return self.sessions[0] if self.sessions else Session()


@dataclass(frozen=True)
class Project:
    """A folder of the corpus and how it is run.

    Attributes:
        name: the folder's name.
        args: pytest arguments that belong to the project.
        cwd: the folder to run in, relative to the project.
        environment: variables that belong to the project.
    """

    name: str
    args: tuple[str, ...] = ()
    cwd: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    @property
    def folder(self) -> Path:
        """Where the project is kept."""
        return CORPUS / (self.source or self.name)


@dataclass(frozen=True)
class Leg:
    """A way to run a project.

    Attributes:
        name: shown in test ids.
        args: what is added to the command line.
        environment: variables that are added.
        far_roots: regular expressions of folders that hold the project's copy on the far side,
            where that isn't the folder of this run.
        ships_all: unmarked tests run far away as well.
        beside: what is added to the command line of the plain run that it is compared with.
        shared: several workers share the tests, so that these come back in any order.
        headless: what conftests write in the header is not there.
    """

    name: str
    args: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    far_roots: tuple[str, ...] = ()
    ships_all: bool = False
    beside: tuple[str, ...] = ()
    shared: bool = False
    headless: bool = False

    @property
    def plain(self) -> Leg:
        """The plain run that it is compared with."""
        return Leg(" ".join(("plain", *self.beside)), self.beside)


PLAIN = Leg("plain")


@dataclass(frozen=True)
class Workspace:
    """One run's private copy of a project, a folder for results and one for temporary files."""

    root: Path
    project: Project

    @classmethod
    def make(cls, root: Path, project: Project) -> Workspace:
        """Copy the project below `root`, which must not exist."""
        shutil.copytree(project.folder, root / project.name)
        for name in ("out", "tmp", "plugin"):
            (root / name).mkdir()
        shutil.copy(HERE / "observer.py", root / "plugin" / "parity_observer.py")
        shutil.copy(fakes.__file__, fakes.register(root / "plugin"))
        return cls(root, project)

    @property
    def folder(self) -> Path:
        """The copy itself."""
        return self.root / self.project.name

    def run(self, leg: Leg, options: Sequence[str] = LOOK) -> Observation:
        """Run pytest in the copy once and read its results; may be called again.

        Raises:
            subprocess.TimeoutExpired: the run took longer than `LIMIT` seconds and was ended.
        """
        out = self.root / "out"
        shutil.rmtree(out)
        out.mkdir()
        status, output = finish(self.command(leg, options), self.cwd, self.environment(leg))
        return read(status, output, out, Normaliser((re.escape(str(self.root)), *leg.far_roots)))

    @property
    def cwd(self) -> Path:
        """The folder to run in."""
        return self.folder / self.project.cwd

    def command(self, leg: Leg, options: Sequence[str]) -> list[str]:
        """Give the command line of a run."""
        start = [sys.executable, "-m", "pytest", "-p", "parity_observer", *LEFT_OUT]
        junit_file = f"--junitxml={self.root / 'out' / 'junit.xml'}"
        return [*start, junit_file, *self.project.args, *leg.args, *options]

    def environment(self, leg: Leg) -> dict[str, str]:
        """Give the variables of a run: ours without what would change pytest, and those named."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
        return {
            **kept,
            "COLUMNS": str(terminal.FULL_WIDTH),
            "LINES": "40",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(self.root / "plugin"),
            "PARITY_OUT": str(self.root / "out"),
            "PARITY_FOLDER": str(self.folder),
            "PYTEST_DEBUG_TEMPROOT": str(self.root / "tmp"),
            **self.project.environment,
            **dict(leg.environment),
        }


def finish(command: list[str], cwd: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run a command to its end; after `LIMIT` seconds its whole process group is ended."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output.decode("utf-8", "backslashreplace")


def read(status: int, output: str, out: Path, normal: Normaliser) -> Observation:
    """Read and normalise the results of one run."""
    xml = out / "junit.xml"
    files = sorted(out.glob("session-*.json"))
    data = [normal.data(json.loads(path.read_text(encoding="ascii"))) for path in files]
    return Observation(
        status=status,
        sessions=tuple(msgspec.convert(one, Session) for one in data),
        output=output,
        terminal=terminal.parse(normal.text(output)),
        junit=junit.parse(xml, normal) if xml.exists() else None,
    )
