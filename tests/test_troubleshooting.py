"""The page of messages: each part of the package that refuses or gives up has a section there.

Knows the package's source by the errors that it raises, and the page by its headings.
"""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

import pytest_remotegpu
from pytest_remotegpu import errors

HOUSE = Path(pytest_remotegpu.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text("utf-8")
SHOWN = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, errors.RemoteGpuError)
    and not issubclass(kind, errors.EndOfStreamError)
}
"""What a user may meet: the names of the package's own exceptions."""

VALUES = "A value that is empty, or not understood"
TOGETHER = "Options that do not go together"
COLLECTED = "Nothing was collected there"
STREAM = "Was not understood, is out of place, came where something else was due"
ENVIRONMENT = "There is no such file, in a line about the environment"
MODAL = "Modal does not take this token, refuses, can't be reached"
WARM = "No warm process was used"
CARDS = "Waiting for cards, and not to be had"
COST = "The cost limit is reached, or the run may cost too much"
COMMAND = "The command says what is missing"
SECTIONS = {
    "backends/__init__": "There is no backend by that name",
    "backends/command": "Names no host, names no command",
    "backends/local": "A rest that is not understood",
    "backends/stdio": "Can't start, ended before it said hello",
    "backends/warm": WARM,
    "backends/modal/image": ENVIRONMENT,
    "backends/modal/sdk": "Needs a package that is not installed",
    "backends/modal/spec": "Names a card that Modal does not have, has a count",
    "backends/modal/*": MODAL,
    "config": VALUES,
    "control": TOGETHER,
    "plugin": TOGETHER,
    "takeover": TOGETHER,
    "larger": "Was not run again, names a card",
    "distributed": TOGETHER,
    "watching": TOGETHER,
    "gpu": "gpu() has no argument, must be",
    "selection": "gpu() has no argument, must be",
    "cost": COST,
    "controller": COST,
    "recipe/*": ENVIRONMENT,
    "outfit": ENVIRONMENT,
    "record": "A result can't be written",
    "inplace": "A result can't be written",
    "outputs": "An artifact is left out",
    "shipping": "Outside the project root",
    "snapshot/git": "Needs a git checkout, names no commit",
    "snapshot/revision": "Needs a git checkout, names no commit",
    "snapshot/*": "Over the limit of remotegpu_max_upload",
    "manifest": STREAM,
    "protocol/hello": "Where its hello was due",
    "protocol/frames": "Where its hello was due",
    "protocol/*": STREAM,
    "collectors": COLLECTED,
    "conftestless": COLLECTED,
    "conftests": COLLECTED,
    "further": COLLECTED,
    "gathering": COLLECTED,
    "grown": COLLECTED,
    "news": COLLECTED,
    "trees": COLLECTED,
    "benchmarked": STREAM,
    "desk": STREAM,
    "lanes": STREAM,
    "rebuilt": STREAM,
    "written": STREAM,
    "members": STREAM,
    "reports": STREAM,
    "covered": STREAM,
    "session": "The far side has no test",
    "cli": COMMAND,
    "doctor/*": COMMAND,
    "errands": COMMAND,
    "benching": COMMAND,
    "rented": COMMAND,
    "shelling": COMMAND,
    "worker/hold": CARDS,
    "worker/leases": "The folder of leases can't be used",
    "worker/ranks/mpi": "No mpirun, or not enough ranks",
    "worker/*": STREAM,
}
"""By module, the section that its messages are found in; the first that fits counts."""
LIBRARIES = ("bench/*", "diagnostics/*", "testing/*")
"""Their errors are those of functions that tests call, and of commands with pages of their own."""


def raised(path: Path) -> set[str]:
    """Name the exceptions of the package that a module raises."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            names |= {getattr(made, "id", ""), getattr(made, "attr", "")}  # pytest.UsageError, too
    return names & SHOWN


MODULES = {
    name: path
    for path in sorted(HOUSE.rglob("*.py"))
    if raised(path)
    and not any(
        fnmatch(name := path.relative_to(HOUSE).with_suffix("").as_posix(), each)
        for each in LIBRARIES
    )
}


def section(module: str) -> str | None:
    """Name the section that the messages of a module are found in."""
    return next((to for pattern, to in SECTIONS.items() if fnmatch(module, pattern)), None)


def test_modules_were_found() -> None:
    assert len(MODULES) > 50
    assert {"config", "gpu", "takeover"} <= MODULES.keys()


@pytest.mark.parametrize("module", MODULES)
def test_messages_of_a_module_have_a_section(module: str) -> None:
    assert section(module), f"say in {Path(__file__).name} where the messages of {module} are"


@pytest.mark.parametrize("heading", sorted(set(SECTIONS.values())))
def test_section_is_there(heading: str) -> None:
    assert re.findall(rf"^### {re.escape(heading)}$", PAGE, re.MULTILINE) == [f"### {heading}"]


@pytest.mark.parametrize("pattern", SECTIONS)
def test_no_module_is_named_that_raises_nothing(pattern: str) -> None:
    assert [name for name in MODULES if fnmatch(name, pattern)]
