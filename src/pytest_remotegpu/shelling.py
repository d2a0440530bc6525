"""``remotegpu shell``: a shell on a far side, in the surroundings that tests would have there.

A session holds cards, files and variables ready, as for ``remotegpu run``; the terminal goes
another way, since that session's streams are none. What the far side says of it is checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import command
from pytest_remotegpu.commanding import INTERRUPTED, Streams, arguments, put
from pytest_remotegpu.config import split_spec
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.holding import ALONE, END, MARK

__all__ = ["read", "run", "way_in"]

PATIENCE: Final = 3.0
"""Seconds in which a session notices that its shell has ended, before it is told."""
MOST_SAID: Final = 2**16
"""Bytes of a line in which the way in may stand."""
Way = Callable[[str, str], list[str] | None]


def way_in(spec: str, *, terminal: bool) -> Way:
    """Find how a terminal gets to a far side.

    :param terminal: whether there is one.
    :return: gives for a script, and the machine's name, the words of a command; ``None`` where the
        user has to type one.
    :raises UsageError: where nobody knows.
    """
    name, rest = split_spec(spec)
    if name == "local":
        return lambda script, _: ["/bin/sh", script, ALONE]
    if name == "ssh":
        ssh = ["ssh", "-t" if terminal else "-T", "-o", "ConnectTimeout=15", "--", rest]
        return lambda script, _: [*ssh, f"exec /bin/sh {shlex.quote(script)}"]
    if name == "modal":
        return lambda _script, _machine: None
    raise UsageError(
        f"--remote={spec}: nobody knows how a terminal gets there; "
        f"remotegpu run --remote={shlex.quote(spec)} -- COMMAND runs one command"
    )


def run(*, spec: str, gpus: int, options: Sequence[str], environ: Mapping[str, str]) -> int:
    """Let the user sit there; give the exit status of the shell.

    :raises UsageError: for a far side to which no terminal gets.
    """
    shell = Shell(spec, way_in(spec, terminal=os.isatty(0)))
    told = arguments(command.hold_option(shell.token, gpus), options, environ)
    try:
        with shell.aside():
            status = int(pytest.main(told, plugins=[shell]))
    finally:
        shell.leave()
        shell.close()
    return shell.status(status)


class Shell(Streams):
    """Takes the way in from what the far side writes, and goes it."""

    def __init__(self, spec: str, way: Way) -> None:
        super().__init__()
        self.token = secrets.token_hex(8)
        self._spec, self._way = spec, way
        self._said = b""
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._left: int | None = None
        self._over = threading.Event()

    def write(self, stream: int, data: bytes) -> None:
        """Look for the line that names the way in; show all others."""
        if stream != 1 or self._thread is not None:
            super().write(stream, data)
            return
        *lines, self._said = (self._said + data).split(b"\n")
        mark = f"{MARK}{self.token} ".encode()
        for line in lines:
            _, found, told = line.partition(mark)
            if found:
                self._enter(told)
            else:
                super().write(stream, line + b"\n")
        if len(self._said) > MOST_SAID:
            super().write(stream, self._said)
            self._said = b""

    def _enter(self, told: bytes) -> None:
        script, machine = read(told)
        words = self._way(script, machine)
        if words is None:
            line = f"modal container exec --pty {machine} /bin/sh {script}"
            self._say(
                "the machine is ready; Modal attaches a terminal by its own command only, so type "
                f"in another one:\n\n    {line}\n\nit is paid for until that shell ends, or Ctrl-C "
                "is pressed here"
            )
            return
        self._say(f"a shell on {self._spec}; its end is the end of the session")
        self._thread = threading.Thread(target=self._sit, args=(words,), daemon=True)
        self._thread.start()

    def _say(self, text: str) -> None:
        put(self._copies[2], f"remotegpu: {text}\n".encode())

    def _sit(self, words: list[str]) -> None:
        """Wait for the shell; a session that does not hear of its end is ended."""
        try:
            streams = {"stdout": self._copies[1], "stderr": self._copies[2]}
            self._child = subprocess.Popen(words, **streams)  # type: ignore[call-overload]
            self._left = self._child.wait()
        except OSError as error:
            self._left = 127 if isinstance(error, FileNotFoundError) else 126  # as shells have it
            self._say(f"{words[0]} can't be started: {error.strerror}; there was no shell")
        if words[-1] == ALONE:
            _tell(Path(words[-2]).parent / END)
        if not self._over.wait(PATIENCE):
            os.kill(os.getpid(), signal.SIGTERM)

    def leave(self) -> None:
        """End the shell, where the session has ended before it."""
        self._over.set()
        if self._child is not None and self._left is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGHUP)
        if self._thread is not None:
            self._thread.join(PATIENCE)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that the session has heard of the shell's end."""
        if report.when == "call":
            self._over.set()
        super().pytest_runtest_logreport(report)

    def status(self, session: int) -> int:
        """Give the shell's exit status, where it has ended by itself."""
        ended = super().status(session)
        if self._left is None or ended not in (0, INTERRUPTED):
            return ended
        return self._left if self._left >= 0 else 128 - self._left


def _tell(end: Path) -> None:
    """Say on this host that the shell has ended."""
    with contextlib.suppress(OSError):
        file = os.open(end, os.O_WRONLY | os.O_NONBLOCK)
        os.write(file, b"over\n")
        os.close(file)


def read(told: bytes) -> tuple[str, str]:
    """Read where the script is, and on which machine; nothing that a shell could take otherwise.

    :raises UsageError: where it is nothing of the kind.
    """
    try:
        data: Any = json.loads(told)
        script, machine = str(data["enter"]), str(data["machine"])
    except (ValueError, KeyError, TypeError):
        script, machine = "", ""
    if not re.fullmatch(r"/[\w./+-]+", script, re.ASCII) or not re.fullmatch(
        r"[\w-]*", machine, re.ASCII
    ):
        raise UsageError(f"the far side names no way in: {told[:200]!r}")
    return script, machine
