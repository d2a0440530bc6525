"""Stacks of native code, of ranks that hang in it: as py-spy tells them, where that is installed.

Knows processes by their ids. What can't be had in time, or is not allowed, is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["TOOL", "innermost", "places", "stacks"]

TOOL: Final = "py-spy"
PATIENCE: Final = 2.0
"""Seconds in which all stacks must have come."""
DONE: Final = 0.05
"""Seconds in which an answer is taken that has come meanwhile."""
MOST_FRAMES: Final = 16
WIDEST: Final = 120
"""Characters of a frame that are shown; names of templates have thousands."""
MAIN: Final = re.compile(
    r'^Thread [^\n]*"MainThread"[^\n]*\n((?:[ \t]+[^\n]*(?:\n|$))*)', re.MULTILINE
)
PYTHON: Final = re.compile(r"\([^()]*\.py:\d+\)$")


def places(environ: Mapping[str, str]) -> str:
    """Say where the tool is looked for: beside the interpreter, then where all programs are."""
    beside = str(Path(sys.executable).parent)
    return os.pathsep.join(filter(None, [beside, environ.get("PATH", os.defpath)]))


def stacks(processes: Mapping[int, int], path: str) -> dict[int, str]:
    """Give the stacks of processes, native frames among those of Python.

    :param processes: by whatever number the caller has for each, its id.
    :param path: where the tool is looked for.
    :return: by the same numbers what there is.
    """
    tool = shutil.which(TOOL, path=path)
    if tool is None:
        return {}
    deadline = time.monotonic() + PATIENCE
    asked: dict[int, subprocess.Popen[str]] = {}
    for number, pid in processes.items():
        with contextlib.suppress(OSError):
            asked[number] = subprocess.Popen(
                [tool, "dump", "--native", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
    said = {number: _answer(process, deadline) for number, process in asked.items()}
    return {number: text for number, text in said.items() if text}


def _answer(process: subprocess.Popen[str], deadline: float) -> str:
    """Wait for what a tool says; nothing where it is late or fails."""
    try:
        text, _ = process.communicate(timeout=max(deadline - time.monotonic(), DONE))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ""
    return "" if process.returncode else text


def innermost(text: str) -> str:
    """Give the native frames in which the main thread's last call from Python has come to be.

    :param text: as the tool writes it, innermost frame first.
    """
    found = MAIN.search(text)
    frames: list[str] = []
    for line in found[1].splitlines() if found else ():
        if PYTHON.search(line.rstrip()):
            break
        frame = line.strip()
        frames.append(f"  {frame if len(frame) <= WIDEST else frame[: WIDEST - 3] + '...'}")
    if len(frames) > MOST_FRAMES:
        frames[MOST_FRAMES:] = [f"  ... and {len(frames) - MOST_FRAMES} more"]
    return "\n".join(["in native code (innermost frame first):", *frames]) if frames else ""
