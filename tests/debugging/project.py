"""Small projects for sessions at a terminal, and how such sessions are started.

Knows the command line only.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .seat import Seat

__all__ = ["CPU", "PLAIN", "seated", "write"]

CPU: Final = "--remote=local:cpu"
PLAIN: Final = "-oremotegpu="
"""The same session without a far side; the tests' mark is one that the project knows."""


def write(project: Path, text: str, name: str = "test_it.py") -> None:
    """Write a file of the project; its first line is that of the text."""
    (project / name).write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")


def seated(project: Path, where: str, *args: str, environ: Mapping[str, str] | None = None) -> Seat:
    """Start a session, by this side's configuration."""
    marker = ["-o", "markers=gpu: here"] if where == PLAIN else [where]
    return Seat(project, *marker, *args, environ=environ)
