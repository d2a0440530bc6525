"""Runs a project plainly and with all of its tests far away, and has both say the same.

Knows pytest's command line and junit files only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from downstream.outcomes import Outcomes, compare, read

__all__ = ["FAR", "alike", "session"]

FAR = ("--remote-all", "--remote=local:cpu")
PATIENCE = 100.0
"""Seconds that a session may take."""


def session(
    folder: Path,
    *words: str | Path,
    command: Sequence[str | Path] = (sys.executable, "-m", "pytest"),
    environ: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> tuple[Outcomes, str]:
    """Run pytest in a folder, and give what came of it and what it wrote.

    :param environ: variables that are set besides; one that is empty is taken away.
    :param patience: seconds that it may take.
    """
    report = folder.parent / "report.xml"
    report.unlink(missing_ok=True)
    given = {**os.environ, **(environ or {})}
    done = subprocess.run(
        [*command, *words, f"--junitxml={report}", "-o", "junit_family=xunit1"],
        cwd=folder,
        env={name: value for name, value in given.items() if value},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience,
        check=False,
    )
    assert "INTERNALERROR" not in done.stdout, done.stdout
    return read(report, done.returncode), done.stdout


def alike(
    folder: Path,
    *words: str | Path,
    command: Sequence[str | Path] = (sys.executable, "-m", "pytest"),
    environ: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> Outcomes:
    """Run a project in both ways, see that all tests ran far away and that nothing differs.

    :returns: what came of it.
    """
    plain, said = session(folder, *words, command=command, environ=environ, patience=patience)
    assert plain.cases, said
    far, said_far = session(
        folder, *words, *FAR, command=command, environ=environ, patience=patience
    )
    differing = "\n".join(map(str, compare(plain, far)))
    assert not differing, f"{differing}\n\n{said}\n\n{said_far}"
    assert far.far == set(far.cases), said_far
    return plain
