"""The far half of ``remotegpu shell``: keeps a test's surroundings until a shell there has ended.

Writes a script that puts any process of the same user on the same machine into them. Knows the
operating system only; must not know how anybody gets there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["ALONE", "END", "MARK", "hold"]

MARK: Final = "\x1eremotegpu-shell "
"""Begins the line in which the script is named."""
ALONE: Final = "alone"
"""The argument of the script for which it becomes the shell, whose end somebody else tells."""
END: Final = "end"
"""The file beside the script that whoever knows of the end writes to."""
OWN: Final = {
    *("TERM", "SHELL", "HOME", "USER", "LOGNAME", "PWD", "OLDPWD", "SHLVL", "_"),
    *("COLUMNS", "LINES", "DISPLAY", "SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT"),
}
"""Variables that a shell has from its own terminal and login."""


def hold(token: str, environ: Mapping[str, str]) -> int:
    """Say how to get in, and wait until a shell has ended that did.

    :param token: stands in the line that says so. :param environ: what the shell is to have.
    :return: 0.
    """
    with tempfile.TemporaryDirectory(prefix="remotegpu-shell-") as name:
        end, script = Path(name, END), Path(name, "enter")
        os.mkfifo(end, 0o600)
        script.touch(0o600)
        script.write_text(_script(str(end), environ), encoding="utf-8", errors="surrogateescape")
        told = {"enter": str(script), "machine": environ.get("MODAL_TASK_ID", "")}
        os.write(1, f"{MARK}{token} {json.dumps(told)}\n".encode())
        end.read_bytes()
    return 0


def _script(end: str, environ: Mapping[str, str]) -> str:
    """Give the script: surroundings, a shell, a word when that has ended, and its exit status."""
    names = sorted(
        name
        for name in environ
        if name not in OWN and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    )
    lines = [f"export {name}={shlex.quote(environ[name])}" for name in names]
    lines += [f"cd {shlex.quote(os.getcwd())} || exit 1"]  # noqa: PTH109 -- a text is wanted
    lines += [f'test "$1" != {ALONE} || exec "${{SHELL:-/bin/sh}}"', '"${SHELL:-/bin/sh}"']
    lines += ["status=$?"]
    lines += [f"echo over 1<>{shlex.quote(end)} 2>/dev/null", "exit $status", ""]
    return "\n".join(lines)
