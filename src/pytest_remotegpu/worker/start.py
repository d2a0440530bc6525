"""How runners come to be: forked from a zygote on Linux, spawned elsewhere.

Imports neither pytest nor the user's code; knows nothing of orders and events.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_remotegpu.worker.process import FORK, LENGTH, REPLY, ROOT

__all__ = ["End", "Forking", "Spawning", "choose"]


@dataclass(frozen=True)
class End:
    """A process that has ended.

    :ivar status: as ``os.waitpid`` gives it.
    :ivar peak_rss_kib: its largest resident size in KiB; 0 where it is not known.
    """

    pid: int
    status: int
    peak_rss_kib: int


class Forking:
    """Starts runners by forking a zygote: torch and pytest's plugins are imported once."""

    def __init__(self, scratch: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="zygote-", dir=scratch)
        self.socket, child = socket.socketpair()
        with child:
            command = [sys.executable, "-P", "-m", "pytest_remotegpu.worker.zygote"]
            self.process = subprocess.Popen(
                [*command, str(child.fileno()), str(os.getpid())],
                pass_fds=[child.fileno()],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._pending: list[list[int]] = []
        self._ready = False
        self._buffer = b""

    @property
    def pid(self) -> int:
        """The process that must outlive the runners."""
        return self.process.pid

    def keep_out(self, root: str) -> None:
        """Let no module of the project in ``root`` be in a runner from the start."""
        text = os.fsencode(root)
        self.socket.sendall(ROOT + LENGTH.pack(len(text)) + text)

    def start(self, ends: list[int]) -> int:
        """Ask for a runner on these descriptors, which are closed here.

        :return: 0, since its process id comes later.
        """
        if self._ready:
            self._fork(ends)
        else:
            self._pending.append(ends)
        return 0

    def _fork(self, ends: list[int]) -> None:
        socket.send_fds(self.socket, [FORK], ends)
        for fd in ends:
            os.close(fd)
        ends.clear()

    def read(self) -> Iterator[int | End | None]:
        """Yield the process id of each started runner and the end of each ended one.

        ``None`` says that the zygote is gone.
        """
        try:
            chunk = self.socket.recv(2**16)
        except OSError:
            chunk = b""
        if not chunk:
            yield None
        self._buffer += chunk
        while len(self._buffer) >= REPLY.size:
            kind, first, status, peak = REPLY.unpack(self._buffer[: REPLY.size])
            self._buffer = self._buffer[REPLY.size :]
            if kind == b"R":
                self._ready = True
                for ends in self._pending:
                    self._fork(ends)
                self._pending.clear()
            elif kind == b"S":
                yield first
            else:
                yield End(first, status, peak)

    def close(self) -> None:
        """End the zygote, and with it every runner."""
        self.socket.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


class Spawning:
    """Starts each runner as a process of its own, where forking is no option."""

    pid = 0

    def __init__(self) -> None:
        self.socket, self._bell = socket.socketpair()
        self._children: list[subprocess.Popen[bytes]] = []

    def keep_out(self, root: str) -> None:
        """Do nothing: a spawned runner begins with nothing."""

    def start(self, ends: list[int]) -> int:
        """Start a runner on these descriptors, which are closed here.

        :return: its process id.
        """
        channel, out, err = ends
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "pytest_remotegpu.worker.spawned", str(channel)],
            pass_fds=[channel],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        for fd in ends:
            os.close(fd)
        ends.clear()
        self._children.append(child)
        return child.pid

    def read(self) -> Iterator[int | End | None]:
        """Yield the end of each ended runner; nobody rings, so the supervisor asks now and then."""
        for child in [child for child in self._children if child.poll() is not None]:
            self._children.remove(child)
            code = child.returncode
            yield End(child.pid, -code if code < 0 else code << 8, 0)

    def close(self) -> None:
        """End every runner."""
        for child in self._children:
            child.kill()
            child.wait()
        self.socket.close()
        self._bell.close()


def choose(scratch: str, *, spawn: bool) -> Forking | Spawning:
    """Fork on Linux; spawn elsewhere, and where it is asked for.

    :param scratch: a folder for what the starter needs.
    """
    return Spawning() if spawn or sys.platform != "linux" else Forking(scratch)
