"""A project under git, and what a session puts on record of its commit. Knows no far side."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from session.running import run, said

__all__ = ["check_out", "commit", "git", "recorded"]

GIT = (
    *("git", "-c", "user.name=u", "-c", "user.email=u@localhost", "-c", "commit.gpgsign=false"),
    *("-c", "protocol.file.allow=always"),
)
UNTRACKED = ("*.xml", ".pytest_cache", "__pycache__", "runpytest*", "std*")
"""What sessions and pytester leave in the folder."""


def git(folder: Path, *words: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, message: str) -> str:
    """Commit everything, and give the commit."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


def check_out(pytester: pytest.Pytester, *ignored: str) -> None:
    """Make a checkout of a project with one test that prints a value; 1 in the first commit.

    :param ignored: what git is to ignore besides.
    """
    lines = "".join(f"{pattern}\n" for pattern in (*UNTRACKED, *ignored))
    (pytester.path / ".gitignore").write_text(lines)
    pytester.makepyfile(
        value="VALUE = 1\n",
        test_it="""
            import pytest
            import value

            @pytest.mark.gpu
            def test_value(): print("the value is", value.VALUE)
        """,
    )
    git(pytester.path, "init", "-q", ".")
    commit(pytester.path, "one")


def recorded(project: pytest.Pytester, *args: str) -> tuple[str, str]:
    """Run, and give the commit that junit and summary have, and all that was said."""
    result = run(project, *args, "--junitxml=out.xml", "-rP")
    result.assert_outcomes(passed=1)
    text = (project.path / "out.xml").read_text(encoding="utf-8")
    found = text.partition('name="remotegpu_commit" value="')[2].partition('"')[0]
    head, dirty, digest = found.partition("-dirty-")
    line = f"commit {head[:12]}" + (f" with changes {digest}" if dirty else "")
    assert line in said(result).splitlines()
    return found, said(result)
