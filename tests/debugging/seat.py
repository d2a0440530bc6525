"""A session in a pseudo-terminal, and whoever sits there: types keys, and reads what is shown.

Knows terminals and the command line, nothing of the package.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

__all__ = ["PROMPT", "Seat"]

PATIENCE: Final = 60.0
"""Seconds that an answer may take; a first session imports torch."""
PROMPT: Final = "(Pdb) "
STARTER: Final = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
"""
"""Makes its standard input the terminal of its session, and becomes pytest."""
ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Seat:
    """A session of pytest whose streams are a terminal.

    :param folder: the session's working directory.
    :param rows: of the terminal, and ``columns``.
    """

    def __init__(
        self,
        folder: Path,
        *args: str,
        environ: Mapping[str, str] | None = None,
        rows: int = 30,
        columns: int = 100,
    ) -> None:
        self._master, slave = os.openpty()
        self.resize(rows, columns)
        self._mode = termios.tcgetattr(slave)
        self._slave = slave
        self.text = ""
        self._read_to = 0
        words = [sys.executable, "-c", STARTER, "--color=no", "-p", "no:cacheprovider", *args]
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", **(environ or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for fd in (self._master, self._slave):
            with contextlib.suppress(OSError):
                os.close(fd)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def interrupt(self, shown: str) -> None:
        """Press Ctrl-C while a line is typed, until that is answered.

        Python's readline module looks for signals only where one ends its wait for a key: it does
        not hear the one that comes just after a key was shown, and it takes the next.
        """
        for _ in range(10):
            self.type("\x03")
            deadline = time.monotonic() + PATIENCE / 10
            while shown not in self.text[self._read_to :] and time.monotonic() < deadline:
                self._read(0.1)
            if shown in self.text[self._read_to :]:
                break
        self.expect(shown)

    def _read(self, seconds: float) -> bool:
        """Read what comes; say whether anything did."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self._master, 2**16)
        except OSError:
            return False
        self.text += ESCAPES.sub("", chunk.decode("utf-8", "replace")).replace("\r", "")
        return bool(chunk)

    def expect(self, text: str, seconds: float = PATIENCE) -> str:
        """Wait until something is shown after all that was waited for before.

        :return: what was shown before it.
        """
        deadline = time.monotonic() + seconds
        while (at := self.text.find(text, self._read_to)) < 0:
            assert time.monotonic() < deadline, f"{text!r} was not shown:\n{self.text}"
            assert self._read(0.2) or self.process.poll() is None, (
                f"the session ended without {text!r}:\n{self.text}"
            )
        before, self._read_to = self.text[self._read_to : at], at + len(text)
        return before

    def settle(self, true: Callable[[], object]) -> None:
        """Wait until something is true."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"it never came true:\n{self.text}"
            self._read(0.02)

    def wait_for(self, file: Path) -> None:
        """Wait until the session's tests have made a file."""
        self.settle(file.exists)

    def hang_up(self) -> None:
        """Close the terminal's window."""
        os.close(self._slave)
        os.close(self._master)

    def ask(self, line: str) -> str:
        """Type a line at the prompt; give the answer."""
        self.type(f"{line}\r")
        self.expect(f"{line}\n")
        return self.expect(PROMPT).strip()

    def end(self) -> int:
        """Wait for the session's end; give its exit status. Its terminal must be as it was."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it has not ended:\n{self.text}"
            self._read(0.1)
        while self._read(0):
            pass
        assert termios.tcgetattr(self._slave) == self._mode, "the terminal is not as it was"
        return self.process.returncode

    @property
    def last_line(self) -> str:
        """The last line, without the time that the session took."""
        return re.sub(r" in [\d.]+s.*", "", self.text.strip().splitlines()[-1]).strip("= ")
