"""The line between a session's first process and those that do its work: who has to end, and when.

One connection for each process, on this host alone; its end tells that the other side is gone,
however that came about. Knows sockets and threads only; must not know what is to be ended.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["AT_ONCE", "GONE", "IN_GOOD_ORDER", "Lifeline", "hold"]

HERE: Final = "127.0.0.1"
IN_GOOD_ORDER: Final = b"i"
"""End as after a first Ctrl-C."""
AT_ONCE: Final = b"n"
"""End as after a second one."""
GONE: Final = b""
"""Nobody is at the other end any more."""
LONGEST: Final = 256
"""Bytes of a greeting at the most."""
GREETING: Final = 1.0
"""Seconds in which a process that has called must have said its name."""


class Lifeline:
    """The end of the process that others work for.

    :ivar address: what the others have to know.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((HERE, 0), backlog=socket.SOMAXCONN)
        self._listener.setblocking(False)
        self._token = secrets.token_hex(16)
        self._lines: dict[str, socket.socket] = {}
        self.address = f"{self._listener.getsockname()[1]} {self._token}"

    def _admit(self) -> None:
        """Take in those who have called by now."""
        while True:
            try:
                line, _address = self._listener.accept()
            except OSError:
                return
            line.settimeout(GREETING)
            with contextlib.suppress(OSError), line.makefile("rb") as file:
                token, _, name = file.readline(LONGEST).decode("utf-8", "replace").partition(" ")
                if hmac.compare_digest(token.encode(), self._token.encode()):
                    line.setblocking(False)
                    self._lines[name.rstrip("\n")] = line
                    continue
            line.close()

    def living(self) -> set[str]:
        """Name the processes at the other ends."""
        self._admit()
        for name, line in list(self._lines.items()):
            with contextlib.suppress(BlockingIOError):
                try:
                    gone = not line.recv(1)
                except ConnectionError:
                    gone = True
                if gone:
                    self._lines.pop(name).close()
        return set(self._lines)

    def tell(self, word: bytes, names: set[str]) -> None:
        """Say a word to some of them; whoever is gone need not hear it."""
        for name in names & self.living():
            with contextlib.suppress(OSError):
                self._lines[name].send(word)

    def close(self) -> None:
        """Let go: the others hear that this process is gone."""
        self._listener.close()
        for line in self._lines.values():
            line.close()
        self._lines.clear()


def hold(address: str, name: str, hear: Callable[[bytes], None]) -> None:
    """In a process that does the work: let a thread hear each word; :data:`GONE` is the last.

    :param address: see :class:`Lifeline`.
    :param name: this process's own, without a line break.
    :raises OSError: where nobody is there any more.
    """
    port, token = address.split()
    line = socket.create_connection((HERE, int(port)))
    line.sendall(f"{token} {name}\n".encode())
    threading.Thread(
        target=_listen, args=(line, hear), name="remotegpu-lifeline", daemon=True
    ).start()


def _listen(line: socket.socket, hear: Callable[[bytes], None]) -> None:
    with line:
        while True:
            try:
                word = line.recv(1)
            except OSError:
                word = GONE
            hear(word)
            if word == GONE:
                return
