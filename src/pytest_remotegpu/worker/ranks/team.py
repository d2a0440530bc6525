"""The processes of one launcher: forked together, read together, ended together.

Knows processes, sockets and pipes; what ranks say, it hands on unread.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.worker.process import DUMP, allow_look, fork, nameless_file
from pytest_remotegpu.worker.ranks import rank
from pytest_remotegpu.worker.ranks.accounts import End
from pytest_remotegpu.worker.ranks.words import collective
from pytest_remotegpu.worker.run import RunnerHandle, without_frame_work

__all__ = ["Member", "Team"]

LOOK: Final = 0.6
"""Seconds in which the stacks of all ranks must have come."""
MODULES: Final = "Extension modules:"
"""How a line of faulthandler begins that says nothing of where a process was."""
BURIED: Final = 5.0
"""Seconds in which a process that was killed is gone."""


class Member:
    """One rank as its launcher sees it.

    :ivar resting: why it rests, once it has come to the end of what it was told; ``None`` while it
        is busy. :ivar status: how it has ended, as ``os.waitpid`` has it; ``None`` while it lives.
    :ivar ended_at: when that was noticed.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.handle = RunnerHandle(nameless_file(f"stacks of rank {number}"))
        self.pidfd = -1
        self.resting: str | None = None
        self.status: int | None = None
        self.peak = 0
        self.ended_at = 0.0

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return self.status is None

    def end(self) -> End:
        """Say how it has ended by itself, in the words for a report."""
        crash = self.handle.crash(self.status or 0, self.peak)
        cause = crash.cause.replace("the worker process ", "")
        if self.status == 0:
            cause = "ended with exit status 0 while the test ran, which says nothing of the test"
        return _end(cause, self.ended_at, crash, stopped=False)

    def stopped(self, why: str, pending: str = "") -> End:
        """Say what it did when it was ended because of what others had done.

        :param pending: the collective that its recorder knows it to be in.
        """
        self.handle.late = why
        crash = self.handle.crash(self.status or 0, self.peak)
        return _end(why, time.time(), crash, pending, stopped=True)


def _end(how: str, at: float, crash: events.Crashed, pending: str = "", *, stopped: bool) -> End:
    stack, stdout, stderr = (
        part.decode("utf-8", "replace") for part in (crash.stack, crash.stdout, crash.stderr)
    )
    lines = [line for line in stack.splitlines() if not line.startswith(MODULES)]
    text = without_frame_work("\n".join(lines))
    return End(how, at, text, stdout, stderr, stopped, collective(text) or pending)


class Team:
    """All ranks.

    :param world: how many. :param own: descriptors of this process that they must not have.
    :param live: whether what they write is to be shown, each line under the rank's name.
    """

    def __init__(self, world: int, own: Sequence[socket.socket | int], *, live: bool) -> None:
        self.members: list[Member] = []
        self._live = live
        self._lines: dict[tuple[int, int], bytes] = {}
        for number in range(world):
            self._fork(number, own)
        self._selector = selectors.DefaultSelector()
        self._said: list[tuple[Member, events.Batch]] = []
        for member in self.members:
            self._watch(member)

    def _fork(self, number: int, own: Sequence[socket.socket | int]) -> None:
        member = Member(number)
        self.members.append(member)
        ends = list(member.handle.ends)
        member.handle.ends.clear()

        def begin() -> NoReturn:
            for descriptor in own:
                _close(descriptor)
            for other in self.members:
                other.handle.close()
            allow_look(os.getppid())
            _become(ends)

        pid = fork(begin)
        for fd in ends:
            os.close(fd)
        member.handle.started(pid)

    def _watch(self, member: Member) -> None:
        member.pidfd = os.pidfd_open(member.handle.pid)
        handle = member.handle
        watched: list[int | socket.socket] = [member.pidfd, handle.channel, *handle.outputs]
        for fileobj in watched:
            self._selector.register(fileobj, selectors.EVENT_READ, member)

    def turn(self, seconds: float | None) -> list[tuple[Member, events.Batch]]:
        """Wait until something happens, at most so long; give what was said."""
        ready = {key.data.number: key.data for key, _ in self._selector.select(seconds)}
        for member in ready.values():
            self._read(member)
            if member.alive:
                self._look_for_end(member)
        said, self._said = self._said, []
        return said

    def _read(self, member: Member) -> None:
        handle = member.handle
        batches = handle.read()
        self._read_outputs(member)
        for batch in batches:
            self._said.append((member, batch))
            if batch.waits:
                handle.send(orders.Shown())
        if handle.broken:
            handle.kill()
        if handle.closed:
            self._forget(handle.channel)

    def _read_outputs(self, member: Member) -> None:
        for fd, stream in list(member.handle.outputs.items()):
            data = member.handle.read_output(fd)
            if data and self._live:
                self._show(member.number, stream, data)
            elif not data and member.handle.closed:
                self._forget(fd)

    def _show(self, number: int, stream: int, data: bytes) -> None:
        *lines, rest = (self._lines.pop((number, stream), b"") + data).split(b"\n")
        self._lines[number, stream] = rest
        _write(stream, b"".join(b"[rank %d] %s\n" % (number, line) for line in lines))

    def show_rest(self) -> None:
        """Show the lines that have not come to an end."""
        lines, self._lines = self._lines, {}
        for (number, stream), rest in lines.items():
            if rest:
                _write(stream, b"[rank %d] %s\n" % (number, rest))

    def _look_for_end(self, member: Member) -> None:
        pid, status, usage = os.wait4(member.handle.pid, os.WNOHANG)
        if not pid:
            return
        member.status, member.peak, member.ended_at = status, usage.ru_maxrss, time.time()
        while batches := member.handle.read():
            self._said += [(member, batch) for batch in batches]
        self._read_outputs(member)
        handle = member.handle
        watched: list[int | socket.socket] = [member.pidfd, handle.channel, *handle.outputs]
        for fileobj in watched:
            self._forget(fileobj)
        os.close(member.pidfd)

    def _forget(self, fileobj: int | socket.socket) -> None:
        if fileobj in self._selector.get_map():
            self._selector.unregister(fileobj)

    def tell(self, *messages: object) -> None:
        """Say something to all that live."""
        for member in self.members:
            if member.alive:
                for message in messages:
                    member.handle.send(message)

    def interrupt(self) -> None:
        """Interrupt all."""
        _signal(self.members, signal.SIGINT)

    def look(self, members: Iterable[Member]) -> None:
        """Have the stacks of ranks written to their files."""
        members = [member for member in members if member.alive]
        for member in members:
            os.ftruncate(member.handle.stacks, 0)
            os.lseek(member.handle.stacks, 0, os.SEEK_SET)
        _signal(members, DUMP)
        deadline = time.monotonic() + LOOK
        before: list[int] = []
        while time.monotonic() < deadline:
            time.sleep(0.02)
            sizes = [os.fstat(member.handle.stacks).st_size for member in members]
            if all(sizes) and sizes == before:
                return
            before = sizes

    def stop(self, members: Iterable[Member]) -> list[tuple[Member, events.Batch]]:
        """End ranks now, and wait until they are gone; give what they said last."""
        members = [member for member in members if member.alive]
        _signal(members, signal.SIGKILL)
        said: list[tuple[Member, events.Batch]] = []
        deadline = time.monotonic() + BURIED
        while any(member.alive for member in members) and time.monotonic() < deadline:
            said += self.turn(0.1)
        return said


def _signal(members: Iterable[Member], number: int) -> None:
    for member in members:
        if member.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member.handle.pid, number)


def _write(stream: int, data: bytes) -> None:
    view = memoryview(data)
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(stream, view) :]


def _close(descriptor: socket.socket | int) -> None:
    if isinstance(descriptor, int):
        os.close(descriptor)
    else:
        descriptor.close()


def _become(ends: list[int]) -> NoReturn:
    """Go on as a rank on these descriptors."""
    channel, out, err, stacks = ends
    null = os.open(os.devnull, os.O_RDWR)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    for fd in (null, out, err):
        os.close(fd)
    os.setsid()
    rank.main(channel, stacks)
