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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pytest_remotegpu.worker.process import FORK, LENGTH, REPLY, ROOT

__all__ = ["End", "Forking", "Spawning", "Zygote", "choose", "spawn_zygote"]

ZYGOTE_GRACE: Final = 2.0
"""Seconds in which a zygote ends by itself, once nobody speaks to it."""


@dataclass(frozen=True)
class End:
    """A process that has ended.

    :ivar status: as ``os.waitpid`` gives it.
    :ivar peak_rss_kib: its largest resident size in KiB; 0 where it is not known.
    """

    pid: int
    status: int
    peak_rss_kib: int

    @property
    def how(self) -> tuple[int, int]:
        """Both together."""
        return self.status, self.peak_rss_kib


class Zygote:
    """One end of the socket to a zygote, which forks runners: torch and plugins are imported once.

    :ivar pid: the process that must outlive the runners; 0 while it is not known.
    """

    polls = False

    def __init__(self, control: socket.socket, pid: int = 0) -> None:
        self.socket = control
        self.pid = pid
        self._pending: list[list[int]] = []
        self._ready = False
        self._buffer = b""

    def keep_out(self, root: str) -> None:
        """Let no module of the project in ``root`` be in a runner from the start."""
        text = os.fsencode(root)
        with contextlib.suppress(OSError):  # whoever is gone is noticed by the reader
            self.socket.sendall(ROOT + LENGTH.pack(len(text)) + text)

    def start(self, ends: list[int], locks: list[int]) -> int:
        """Ask for a runner on these descriptors, which are closed here.

        :param locks: further ones, for the runner to hold; they stay open here.
        :return: 0, since its process id comes later.
        """
        ends += [os.dup(fd) for fd in locks]
        if self._ready:
            self._fork(ends)
        else:
            self._pending.append(ends)
        return 0

    def _fork(self, ends: list[int]) -> None:
        with contextlib.suppress(OSError):
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
            elif kind == b"P":
                self.pid = first
                self._began()
            elif kind == b"S":
                yield first
            else:
                yield End(first, status, peak)

    def _began(self) -> None:
        """Do what is to be done once the process is known, before it forks."""

    def close(self) -> None:
        """Let the zygote go: it ends, and with it every runner."""
        self.socket.close()


class Forking(Zygote):
    """A zygote of this supervisor's own."""

    def __init__(self, scratch: str, *options: str) -> None:
        control, child = socket.socketpair()
        folder = tempfile.mkdtemp(prefix="zygote-", dir=scratch)
        self._process = spawn_zygote(child, folder, *options)
        super().__init__(control, self._process.pid)

    def close(self) -> None:
        """End the zygote, and with it every runner."""
        super().close()
        try:
            self._process.wait(ZYGOTE_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def spawn_zygote(
    control: socket.socket,
    folder: str,
    *options: str,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a zygote that serves ``control``, which is closed here.

    :param folder: an empty folder for it to work in.
    :param environ: its variables; ``None`` for those of this process.
    """
    with control:
        command = [sys.executable, "-m", "pytest_remotegpu.worker.zygote"]  # in an empty folder
        return subprocess.Popen(
            [*command, str(control.fileno()), *options],
            pass_fds=[control.fileno()],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=None if environ is None else dict(environ),
        )


class Spawning:
    """Starts each runner as a process of its own, where forking is no option."""

    pid = 0
    polls = True

    def __init__(self) -> None:
        self.socket, self._bell = socket.socketpair()
        self._children: list[subprocess.Popen[bytes]] = []

    def keep_out(self, root: str) -> None:
        """Do nothing: a spawned runner begins with nothing."""

    def start(self, ends: list[int], locks: list[int]) -> int:
        """Start a runner on these descriptors, which are closed here.

        :param locks: further ones, for the runner to hold; they stay open here.
        :return: its process id.
        """
        channel, out, err, stacks = ends
        words = [str(channel), str(stacks)]
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "pytest_remotegpu.worker.spawned", *words],
            pass_fds=[channel, stacks, *locks],
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


def choose(scratch: str, *options: str, spawn: bool) -> Zygote | Spawning:
    """Fork on Linux; spawn elsewhere, and where it is asked for.

    :param scratch: a folder for what the starter needs. :param options: for the zygote.
    """
    return Spawning() if spawn or sys.platform != "linux" else Forking(scratch, *options)
