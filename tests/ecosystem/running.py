"""Runs a suite with the plugins that it asks for, and reads what they have written.

Knows what the parity suite knows of a run, and the plugins' names; must not know what is compared.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from parity import terminal
from parity.normal import Normaliser
from parity.running import DROPPED, HERE, Leg, Observation, finish, read

__all__ = ["CORPUS", "Case", "Reader", "Seen", "run"]

CORPUS = Path(__file__).parent / "corpus"
Reader = Callable[[Path, Normaliser], object]
"""Reads what a plugin has written into a file or folder; the rest of it may differ."""


ALWAYS = (r"\[gw\d+\] ",)
"""Text that is left out: which process of pytest-xdist had a test."""


@dataclass(frozen=True)
class Case:
    """A suite, and how it is run.

    Attributes:
        name: shown in test ids.
        plugins: the names under which pytest knows the plugins: no other is loaded.
        suite: the folder of the corpus.
        options: of each run; several runs follow each other in the same folder.
        environment: variables that belong to it.
        files: what is compared of what the plugins write, by the path in the suite's folder.
        git: the folder is a checkout; these files have changed since.
        any_order: results come in any order.
        varies: regular expressions of text that differs between any two runs, beside what always
            does.
        legs: the ways to ship it.
        lacks: names of properties of the junit file's suite that are missing, as is documented.
    """

    name: str
    plugins: tuple[str, ...]
    suite: str
    options: tuple[tuple[str, ...], ...] = ((),)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Reader] = field(default_factory=dict)
    git: tuple[str, ...] = ()
    any_order: bool = False
    varies: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    legs: tuple[str, ...] = ("here",)


@dataclass(frozen=True)
class Plugged(Normaliser):
    """Takes away what differs between any two runs because of plugins.

    Attributes:
        varies: regular expressions of that.
    """

    varies: tuple[str, ...] = ()

    def text(self, value: str) -> str:
        """Replace in a text what may differ, and leave out what these say."""
        value = super().text(value)
        for pattern in (*self.varies, *ALWAYS):
            value = re.sub(pattern, "", value)
        return value


@dataclass(frozen=True)
class Seen:
    """What there is to see of one run: what pytest says, and what the plugins have written."""

    pytest: Observation
    files: dict[str, object]


def run(case: Case, leg: Leg, root: Path) -> list[Seen]:
    """Run a case in a copy of its suite below ``root``, which must not exist."""
    folder = root / "suite"
    shutil.copytree(CORPUS / case.suite, folder)
    for name in ("tmp", "plugin"):
        (root / name).mkdir()
    shutil.copy(HERE / "observer.py", root / "plugin" / "parity_observer.py")
    if case.git:
        _check_in(folder, case.git)
    return [_step(case, leg, root, options) for options in case.options]


def _check_in(folder: Path, changed: tuple[str, ...]) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        author = ["-c", "user.name=it", "-c", "user.email=it@example.org"]
        subprocess.run(["git", *author, *words], cwd=folder, check=True)  # noqa: S607 -- whichever
    for name in changed:
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write("\n# changed\n")


def _step(case: Case, leg: Leg, root: Path, options: tuple[str, ...]) -> Seen:
    out = root / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    names = ("remotegpu", "parity_observer", *case.plugins)
    loaded = [word for name in names for word in ("-p", name)]
    look = ["-rA", "-v", "--color=no", f"--junitxml={out / 'junit.xml'}"]
    command = [sys.executable, "-m", "pytest", *loaded, *look, *options, *leg.args]
    status, output = finish(command, root / "suite", _environment(case, leg, root))
    normal = Plugged((re.escape(str(root)), *leg.far_roots), case.varies)
    found = {name: read_(root / "suite" / name, normal) for name, read_ in case.files.items()}
    return Seen(_without(read(status, output, out, normal), case.lacks), found)


def _without(seen: Observation, names: tuple[str, ...]) -> Observation:
    """Leave out properties of the suite in the junit file."""
    if seen.junit is None or not names:
        return seen
    left_out = re.compile("|".join(f"property (?:{name})" for name in names))
    suite = {k: v for k, v in seen.junit.suite.items() if not left_out.fullmatch(k)}
    return replace(seen, junit=replace(seen.junit, suite=suite))


def _environment(case: Case, leg: Leg, root: Path) -> dict[str, str]:
    """Give the variables of a run: ours without what would change pytest, and those named."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
    return {
        **kept,
        "COLUMNS": str(terminal.FULL_WIDTH),
        "LINES": "40",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(root / "plugin"),
        "PARITY_OUT": str(root / "out"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_DEBUG_TEMPROOT": str(root / "tmp"),
        **case.environment,
        **dict(leg.environment),
    }
