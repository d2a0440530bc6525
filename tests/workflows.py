"""Workflows as text: their jobs, what each may, and what it has shells run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".github" / "workflows"


def read(name: str) -> str:
    """Read a workflow."""
    return (FOLDER / name).read_text(encoding="utf-8")


def split(text: str) -> dict[str, str]:
    """Split a workflow into its jobs, without comments."""
    _, _, jobs = re.sub(r"(^|\s)#.*", "", text).partition("\njobs:\n")
    parts = re.split(r"^  (\w+):$", jobs, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def permissions(job: str) -> dict[str, str]:
    """Give what a job may."""
    (block,) = re.findall(r"^    permissions:\n((?:      .*\n)+)", job, re.MULTILINE)
    return dict(re.findall(r"([\w-]+): (\w+)", block))


def scripts(job: str) -> list[str]:
    """Give what a job has shells run."""
    one = re.findall(r"^ +(?:- )?run: (?!\|)(.+)$", job, re.MULTILINE)
    blocks = re.findall(r"^( +)run: \|\n((?:\1 +.*\n)+)", job, re.MULTILINE)
    return one + [block for _, block in blocks]


def run(script: str, stand_in: str, folder: Path, told: dict[str, str]) -> tuple[int, list[str]]:
    """Run a script with a program that only says what it was started with.

    :param stand_in: the program's name.
    :return: whether it has taken the shell's place (0 for no), and its arguments.
    """
    (folder / "script.sh").write_text(script, encoding="utf-8")
    program = folder / stand_in
    program.write_text('#!/bin/sh\necho "$$"\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    with subprocess.Popen(
        ["/usr/bin/env", "bash", "-e", "script.sh"],
        cwd=folder,
        env={"PATH": f"{folder}:{os.environ['PATH']}", "RUNNER_TEMP": "/temp", **told},
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        said, _ = shell.communicate(timeout=60)
    pid, *arguments = said.splitlines()
    return (shell.pid if int(pid) == shell.pid else 0), arguments
