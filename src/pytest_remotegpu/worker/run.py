"""One runner as its supervisor sees it: a process, a socket, two pipes, and how far it has come.

Knows how runners are started and how they end; knows nothing of the user's side.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events, frames, orders
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker.process import describe_end, memory_kills

__all__ = ["RunnerHandle", "live", "without_frame_work"]

TAIL: Final = 2**16
"""Bytes of uncaptured output that are kept for a crash report."""
AT_ONCE: Final = 8 * 2**20
"""Bytes of events to take in before they are passed on."""
COALESCE: Final = 0.004
"""Seconds to let a busy runner write on before its events are passed on together."""
ENDS: Final = {events.OVER, events.FAILED, events.LEFT}
FRAMEWORK: Final = re.compile(
    r'^  File "(?:[^"]*/(?:_pytest|pluggy|pytest_remotegpu/worker)/|<frozen runpy>)'
)
_BATCH: Final = msgspec.msgpack.Decoder(events.Batch)


class Tail:
    """The last bytes of a stream, in two parts: read before the last look at the events, and since.

    A test whose start is found by a look can have written only what was read since the look before.
    """

    def __init__(self) -> None:
        self._before = bytearray()
        self._since = bytearray()

    def add(self, data: bytes | bytearray) -> None:
        """Append what was read."""
        self._since += data
        del self._since[:-TAIL]

    def forget(self) -> None:
        """Drop what can't be of the test that has just begun."""
        self._before.clear()

    def looked(self) -> None:
        """Take note that all events up to now are known."""
        self._before += self._since
        del self._before[:-TAIL]
        self._since.clear()

    def take(self) -> bytes:
        """Give what is kept, and forget it."""
        data = bytes(self._before + self._since)
        self._before.clear()
        self._since.clear()
        return data


class RunnerHandle:
    """A runner's descriptors and state.

    :param stacks: a file for stacks.
    :ivar ends: what the child must get: its socket, its stdout, its stderr and that file.
    :ivar late: the limit for which it is being ended, in words. :ivar spoilt: whether no further
        test may run in it. :ivar rests: whether it has come to the end of a stretch.
    :ivar current: the place of the running test; -1 for none. :ivar collecting: the id of the file
        that is being imported; empty for none.
    :ivar debugs: whether a debugger has the terminal.
    :ivar attempt: how often the running test has been begun in this process.
    :ivar over: whether the session said that it ended. :ivar left: whether its exit functions have
        run as well.
    """

    def __init__(self, stacks: int) -> None:
        self.stacks = stacks
        self.channel, child = socket.socketpair()
        out, child_out = os.pipe()
        err, child_err = os.pipe()
        self.ends = [child.detach(), child_out, child_err, os.dup(stacks)]
        self.outputs = {out: 1, err: 2}
        for fd in self.outputs:
            os.set_blocking(fd, False)
        self.channel.setblocking(False)
        self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        self._frames = frames.Frames(frames.MAX_OUTBOUND)
        self.tails = {1: Tail(), 2: Tail()}
        self.captured: list[int] = []
        self.broken = ""
        self.pid = 0
        self._unsent = bytearray()
        self.current = -1
        self.following = -1
        self.failures = self.attempt = 0
        self.over = self.left = False
        self.progressed = False
        self.late = ""
        self.collecting = b""
        self.debugs = False
        self._kept: list[bytes] = []
        self.doomed = False
        self._ran: deque[int] = deque(maxlen=6)
        self._kills = memory_kills()
        self.offspring = ""
        self.spoilt = False
        self.rests = False
        self.closed = False

    @property
    def excused(self) -> bool:
        """Whether a bad end says no more than its tests have: what spoilt it has failed one."""
        return self.over and self.spoilt and self.failures > 0

    @property
    def done(self) -> bool:
        """Whether it has come to its end in good order, and nothing of its own runs any more."""
        return self.left and not (self.spoilt or self.late)

    def send(self, message: object) -> None:
        """Send a message, once somebody is there to read it; who is gone is noticed elsewhere."""
        self._unsent += frames.encode_message(message)
        if self.pid:
            self._write()

    def take(self, message: orders.Values | orders.Interrupt) -> None:
        """Take in what concerns the running process alone."""
        if isinstance(message, orders.Interrupt):
            self.interrupt()
        else:
            self.send(message)

    def started(self, pid: int) -> None:
        """Take note that the process runs: only now may more be written than a socket holds."""
        self.pid = pid
        self._write()

    def _write(self) -> None:
        unsent, self._unsent = self._unsent, bytearray()
        with contextlib.suppress(OSError):
            self.channel.setblocking(True)
            self.channel.sendall(unsent)
        with contextlib.suppress(OSError):
            self.channel.setblocking(False)

    def hear(self) -> list[events.Batch]:
        """Give what has come, with what comes within a moment: less where the runner waits."""
        batches = self.read()
        if self.closed or any(batch.is_awaited for batch in batches):
            return batches
        end = time.monotonic() + COALESCE
        while time.monotonic() < end:
            time.sleep(COALESCE / 2)
            more = self.read()
            batches += more
            if self.closed or any(batch.is_awaited for batch in more):
                break
        return batches

    def read(self) -> list[events.Batch]:
        """Give the batches that have come, up to bytes that a test wrote, as ``broken`` says."""
        batches: list[events.Batch] = []
        size = 0
        while not self.closed and size < AT_ONCE:
            try:
                chunk, fds, _flags, _address = socket.recv_fds(self.channel, 2**18, 2)
            except BlockingIOError:
                break
            except OSError:
                chunk, fds = b"", []
            if fds:
                _close_all(self.captured)
                self.captured = fds
            self.closed = not chunk
            size += len(chunk)
            self._take_in(chunk, batches)
        for batch in batches:
            self._follow(batch)
        if size < AT_ONCE:
            for tail in self.tails.values():
                tail.looked()
        return batches

    def _take_in(self, chunk: bytes, batches: list[events.Batch]) -> None:
        """Decode what is whole; after bytes that a test wrote, nothing is believed any more."""
        try:
            # one by one: what came before the foreign bytes is kept
            batches.extend(_decode(body) for body in self._frames.feed(chunk))
        except ProtocolError as error:
            self.broken = f"the test wrote on the socket of the process that runs it ({error})"
            self.closed = True

    def _follow(self, batch: events.Batch) -> None:
        if self.late:
            return
        if batch.current >= 0 and batch.current != self.current:
            self.progressed = True
            self._ran.append(batch.current)
            for tail in self.tails.values():
                tail.forget()
        self.spoilt = self.spoilt or batch.spoilt
        self.rests = batch.stretch_ended
        self.over = batch.current in ENDS
        self.left = batch.current == events.LEFT
        self.current = max(batch.current, -1)
        self.following = batch.following
        self.collecting = batch.collecting
        self.debugs = batch.debugs
        self.failures = batch.failures
        self.attempt = batch.attempt

    def read_output(self, fd: int) -> bytes:
        """Give what a pipe holds; nothing where it is empty or closed."""
        data = bytearray()
        with contextlib.suppress(BlockingIOError, OSError):
            while chunk := os.read(fd, 2**16):
                data += chunk
                if len(data) > 2**20:
                    break
        self.tails[self.outputs[fd]].add(data)
        return bytes(data)

    def crash(self, status: int, peak_rss_kib: int) -> events.Crashed:
        """Say how the runner ended while ``current`` ran."""
        stdout, stderr = (self._captured(index) for index in (0, 1))
        said = _text(self.tails[2].take())
        stack = "\n".join(filter(None, [self._stacks(), self.offspring, said]))
        cause = self.late or self.broken
        killed = not cause and status == signal.SIGKILL
        if killed and (more := memory_kills() - self._kills) > 0:
            cause = (
                f"{describe_end(status, peak_rss_kib)}; meanwhile the kernel ended {more} "
                "processes of this control group for want of memory"
            )
        return events.Crashed(
            self.current,
            cause or describe_end(status, peak_rss_kib),
            to_text(stack),
            to_text(_text(stdout + self.tails[1].take())),
            to_text(_text(stderr)),
            timeout=bool(self.late),
            before=[place for place in self._ran if place != self.current] if killed else [],
        )

    def unborn(self, status: int, peak_rss_kib: int) -> str:
        """Say how it ended before any test began."""
        crash = self.crash(status, peak_rss_kib)
        cause = crash.cause.replace(" while the test ran", "")
        file = _text(self.collecting)
        cause = cause.replace("the test", f"the import of {file}" if file else "a conftest", 1)
        stack = crash.stack.decode("utf-8", "replace")
        return f"{cause}{'' if self.late else ', before a test began'}\n{stack}"

    def unfinished(self, status: int, peak_rss_kib: int) -> str:
        """Say how it ended after the last test, and what it said last."""
        crash = self.crash(status, peak_rss_kib)
        cause = crash.cause.replace(" while the test ran", "")
        parts = [part.decode("utf-8", "replace").rstrip() for part in (crash.stack, crash.stdout)]
        return "\n".join(filter(None, [cause, *parts]))

    def told_end(
        self, status: int, peak_rss_kib: int, when: str, *, failed: bool = True
    ) -> events.SessionEnded | events.Note:
        """Say how it ended that no test accounts for; the session can't be green where it failed.

        :param when: in words.
        """
        text = to_text(f"{when} {self.unfinished(status, peak_rss_kib)}")
        return events.SessionEnded(1, text) if failed else events.Note(text)

    def _stacks(self) -> str:
        """Read the stacks of its threads, as they were when it was late."""
        if not self.late:
            return ""
        with contextlib.suppress(OSError):
            found = _text(os.pread(self.stacks, 2**20, 0)).strip()
            if found:
                return without_frame_work(found)
        return "its stacks could not be had: it has blocked the signal or closed the file for them"

    def keep_captured(self) -> None:
        """Remember what is captured by now: the look at a late test may end the test's phase."""
        self._kept = [self._captured(index) for index in (0, 1)]

    def _captured(self, index: int) -> bytes:
        """Read what pytest had captured of the running phase; its temporary file is open here."""
        if self._kept:
            return self._kept[index]
        if index >= len(self.captured):
            return b""
        fd = self.captured[index]
        try:
            size = os.fstat(fd).st_size
            return os.pread(fd, min(size, 2**20), max(size - 2**20, 0))
        except OSError:
            return b""

    def last_words(self) -> events.StartFailed:
        """Give what a session said that could not begin."""
        said = b"".join(tail.take() for tail in self.tails.values())
        return events.StartFailed(to_text(_text(said)), usage=True)

    def interrupt(self) -> None:
        """Send it what Ctrl-C sends, if it runs a test."""
        if self.pid and self.current >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it at once; it may have ended by itself."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close every descriptor."""
        self.closed = True
        self.channel.close()
        _close_all((*self.outputs, *self.captured, *self.ends, self.stacks))
        self.outputs, self.captured, self.ends = {}, [], []


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def live(stream: int, data: bytes) -> list[events.Live]:
    """Cut output into pieces that a frame takes."""
    return [events.Live(stream, data[at : at + 2**20]) for at in range(0, len(data), 2**20)]


def without_frame_work(stacks: str) -> str:
    """Leave out the frames of pytest, of pluggy and of this package, below the test's own."""
    lines = stacks.splitlines()
    own = [line for line in lines if not FRAMEWORK.search(line)]
    return "\n".join(own if any(line.startswith("  File") for line in own) else lines)


def _decode(body: bytes) -> events.Batch:
    try:
        return _BATCH.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"undecodable batch of a runner: {error}") from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
