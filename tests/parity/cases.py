"""Runs with pytest's own options that must give a plain run's results.

A case is a chain of runs in one copy of a project, as `--lf` and its like need a run before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .compare import Order
from .projects import PROJECTS
from .running import LOOK, Leg, Observation, Project, Workspace

BY_NAME = {project.name: project for project in PROJECTS}
CHOICES = BY_NAME["choices"]


@dataclass(frozen=True)
class Step:
    """One run of a case.

    Attributes:
        options: the command line, beside what project and leg add.
        adds: files written into the copy before the run, as (name, content).
    """

    options: tuple[str, ...] = LOOK
    adds: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Case:
    """A chain of runs of one project, and how strictly the order is compared."""

    name: str
    project: Project
    steps: tuple[Step, ...] = (Step(),)
    order: Order = "stretches"

    def run(self, workspace: Workspace, leg: Leg) -> tuple[Observation, ...]:
        """Run the steps one after another in one copy of the project."""
        seen = []
        for step in self.steps:
            for name, content in step.adds:
                (workspace.folder / name).write_text(content, encoding="utf-8")
            seen.append(workspace.run(leg, step.options))
        return tuple(seen)


def whole(project: Project) -> Case:
    """Give the case that runs a project once, with everything shown."""
    return Case("whole", project)


def choices(name: str, *chain: Sequence[str], order: Order = "stretches") -> Case:
    """Give a case on the small project that has a bit of everything."""
    return Case(name, CHOICES, tuple(Step(tuple(options)) for options in chain), order)


NEW_FILE = ("test_0_new.py", "import pytest\n\n\n@pytest.mark.gpu\ndef test_new():\n    pass\n")
SOME_IDS = (
    "test_b.py::test_here_two",
    "test_a.py::test_far_four[1]",
    "test_a.py::test_far_two",
    "test_a.py::test_far_four[2]",
)

CASES: tuple[Case, ...] = (
    choices("stop at the first failure", ["-x", "-v", "-rA"], order="exact"),
    choices("stop at the second failure", ["--maxfail=2", "-v", "--tb=short"], order="exact"),
    choices("keyword", ["-k", "four or six", "-q", "--tb=native"]),
    choices("marker", ["-m", "odd", "-vv", "--durations=0", "--show-capture=no"]),
    choices("nothing selected", ["-k", "nothing_like_this"]),
    choices("ids", [*SOME_IDS, "-v"]),
    choices(
        "deselected, long and coloured",
        [
            *("--deselect=test_a.py::test_far_four[2]", "-v", "-l", "--tb=long", "-rA"),
            *("--color=yes", "-o", "junit_logging=all"),
        ],
    ),
    Case(
        "failed and new ones",
        CHOICES,
        (
            Step(("--tb=line", "-v")),
            Step(("--lf", "-v", "-rA")),
            Step(("--ff", "-v", "--tb=no")),
            Step(("--nf", "--co", "-q"), adds=(NEW_FILE,)),
        ),
    ),
    choices("stepwise", ["--sw", "-v"], ["--sw", "-v"], ["--sw", "--sw-skip", "-v"], order="exact"),
    choices("collection", ["--co"]),
    choices("warnings are errors", ["-W", "error", "-q", "--tb=no", "-rN"]),
    Case("broken files", Project("broken")),
)
