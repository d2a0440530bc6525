"""A channel over the stdin and stdout of a child process, as ``local`` and ``command`` need it.

Knows neither which program that is nor what its bytes mean.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pytest_remotegpu.errors import FarSideError

__all__ = ["StdioChannel"]

CHUNK: Final = 2**18
TAIL: Final = 2**14
"""Bytes of error output that are kept."""
GRACE: Final = 4.0
"""Seconds that a worker has to clean up once its input is closed."""


class StdioChannel:
    """Starts a process whose stdin takes frames and whose stdout gives them.

    :param command: the program and its arguments.
    :ivar command: the program and its arguments.
    :ivar note: what the user should know of it; empty for nothing.
    :ivar passing: whether a signal ended it, which may not happen again.
    :param variables: its whole environment; ``None`` for this process's own.
    :raises FarSideError: where the program can't be started.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.note = ""
        self.passing = False
        self._errors = bytearray()
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if variables is None else dict(variables),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise FarSideError(f"can't start {self.command[0]!r}: {error}") from error
        self._listener = threading.Thread(target=self._listen, name="remotegpu-stderr", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._process.stderr.fileno(), 2**12):
                self._errors += data
                del self._errors[:-TAIL]

    def send(self, data: bytes) -> None:
        """Write to the process.

        :raises FarSideError: where it has gone.
        """
        assert self._process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self._process.stdin.write(view) or 0 :]
        except (OSError, ValueError) as error:
            raise FarSideError(f"{self.command[0]!r} takes no input any more: {error}") from error

    def frames(self) -> Iterator[bytes]:
        """Yield what the process writes until it closes its stdout."""
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._process.stdout.fileno(), CHUNK):
                yield chunk

    def stop(self) -> None:
        """Close its input, which ends a worker and all it started; then make sure."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
                break
        self._listener.join(1.0)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def diagnosis(self) -> str:
        """Say how the process ended, with the last of its error output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        self._listener.join(1.0)
        code = self._process.returncode
        self.passing = code is not None and code < 0
        ended = (
            "still runs"
            if code is None
            else f"ended with {'signal' if code < 0 else 'exit status'} {abs(code)}"
        )
        errors = bytes(self._errors).decode("utf-8", "replace").strip()
        return f"{' '.join(self.command)} {ended}" + (f"\n{errors}" if errors else "")
