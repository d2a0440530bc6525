"""What runs in a container: one worker for each call, and one that waits, warm, for the next.

Deployed as a function of Modal's; the only module of this package that runs in a container's main
process, which no test of a user's ever enters. Passes bytes on and never looks into them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends.modal.gathering import gathered
from pytest_remotegpu.backends.modal.notice import Notice
from pytest_remotegpu.backends.modal.pieces import GapError, Joiner
from pytest_remotegpu.backends.stdio import StdioChannel

__all__ = [
    "ALIVE",
    "CLAIMED",
    "DATA",
    "DIAGNOSIS",
    "EVERY",
    "GREETING",
    "IDLES",
    "LEASE",
    "NOTICE",
    "PREEMPTED",
    "WEEK",
    "note_of",
    "run",
]

_IMPORTED: Final = time.monotonic()
LEASE: Final = 45.0
"""Seconds after which a container ends its work when nobody asks for it any more."""
EVERY: Final = 10.0
"""Seconds between two signs of life from the user's side."""
POLL: Final = 5.0
"""Seconds for which a container waits for messages in one go."""
MOST_WAITING: Final = 64
"""Pieces of a worker's output that wait to be sent; then it has to wait."""
TOGETHER: Final = 64
"""Messages that are taken in one go."""
SHOWN: Final = 2.0
"""Seconds between two signs of a container that it is at a call."""
NOTED: Final = 100
"""Such signs after which it is noted again that the app is used."""
WEEK: Final = 7 * 86400.0
FIRST: Final = 0.5
"""Seconds until the first, which is not to be in the way of a worker's start."""
GONE: Final = 5.0
"""Seconds without one after which it is gone."""
LEAVING: Final = 18.0
"""Seconds that a worker has to end of its own once its container is about to be taken away."""
CLAIMED: Final = "pytest-remotegpu: this call was begun by another container"
"""Begins the error of a container that was given a call which another one had begun."""
PREEMPTED: Final = ", which was preempted"
"""Stands in it where that one had notice of its end."""
WITHDRAWN: Final = "withdrawn"
"""Stands in the place of a container's claim where the user's side wants nothing of a call more."""
IDLES: Final = "; without work now: "
"""Stands in it before the name of the container, which stays, and may take the next call."""

_CALLS: Final = itertools.count()
"""Counts the calls of this process."""
GREETING: Final = b"H"
DATA: Final = b"F"
ALIVE: Final = b"A"
DIAGNOSIS: Final = b"D"
NOTICE: Final = b"N"
"""The first byte of a chunk says what it is; the container's mark and a number follow."""


def run(request: bytes) -> Iterator[bytes]:
    """Serve one order.

    :param request: a line of JSON with ``nonce``, ``queue``, ``claims``, ``seconds`` (that are
        left of the run; 0 for no limit), ``preload``, ``env`` (variables to set) and ``fresh``
        (whether nothing warm may be used, nor be left), and what the worker is to read first.
    :return: chunks, each with its kind, this container's mark and a number: ``GREETING`` with a
        line of JSON, ``DATA`` with what the worker writes, ``NOTICE`` once the container is about
        to be taken away, and ``DIAGNOSIS`` with how the worker ended.
    :raises RuntimeError: where another container has begun this call; its chunks would be taken for
        those that the user's side has seen already.
    """
    import modal  # noqa: PLC0415 -- only a container has need of it here

    line, _, first = request.partition(b"\n")
    asked = json.loads(line)
    over = threading.Event()
    is_new = next(_CALLS) == 0
    claims, nonce = modal.Dict.from_name(asked["claims"]), asked["nonce"]
    mark = os.urandom(8)
    number = 0

    def chunk(kind: bytes, data: bytes) -> bytes:
        nonlocal number
        number += 1
        return kind + mark + number.to_bytes(4, "big") + data

    with Notice() as notice:
        notice.then(lambda: claims.put(_preempted(nonce), number))
        _claim(claims, nonce, over, is_new=is_new)
        greeting = {
            "call": modal.current_function_call_id(),
            "container": _name(),
            "age": _age(),
        }
        yield chunk(GREETING, json.dumps(greeting).encode())
        work = _Work(modal.Queue.from_name(asked["queue"]), asked, first)
        notice.then(work.leave)
        told = False
        try:
            for data in work.said():
                if notice.came and not told:
                    told = True
                    yield chunk(NOTICE, b"")
                yield chunk(DATA, data) if data else chunk(ALIVE, b"")
            if notice.came and not told:
                yield chunk(NOTICE, b"")
            yield chunk(DIAGNOSIS, work.diagnosis().encode())
        finally:
            over.set()
            work.close(warms=not notice.came)


def _claim(claims: Any, nonce: str, over: threading.Event, *, is_new: bool) -> None:
    """Claim a call, and show from now on that this container is at it.

    A call that is delivered again while another container is at it is left to that one: its end
    would be taken for the call's.

    Where it was withdrawn, a new container takes no other call either, so that it is not paid for
    without work: it was had for that one. One that has served others stays for them.

    :param over: ends the showing. :param is_new: whether this container has had no call before.
    :raises RuntimeError: where another container has begun the call, and is gone; and where nobody
        wants it any more.
    """
    if claims.put(nonce, _name(), skip_if_exists=True):
        threading.Thread(target=_show, args=(claims, nonce, over), daemon=True).start()
        return
    if claims.get(nonce) == WITHDRAWN:
        with contextlib.suppress(Exception):  # then it stays for its window, as after any call
            from modal.experimental import stop_fetching_inputs  # noqa: PLC0415 -- as above

            if is_new:
                stop_fetching_inputs()
        raise RuntimeError(f"pytest-remotegpu: nobody wants this call any more ({_name()})")
    seen, shown = "", claims.get(f"{nonce}-alive")
    while shown != seen:
        seen = shown
        time.sleep(GONE)
        shown = claims.get(f"{nonce}-alive")
    how = PREEMPTED if claims.contains(_preempted(nonce)) else ""
    raise RuntimeError(f"{CLAIMED}: {claims.get(nonce)}{how}{IDLES}{_name()}")


def _preempted(nonce: str) -> str:
    """Name the entry of an app's dict that is there where a call's container had notice."""
    return f"{nonce}-preempted"


def note_of(seconds: float) -> str:
    """Name the entry of an app's dict that is there where a container was at work in a week.

    A name and no value, since no value from a container is ever read.

    :param seconds: a moment of that week, since the epoch.
    """
    return f"used-in-week-{int(seconds // WEEK)}"


def _show(claims: Any, nonce: str, over: threading.Event) -> None:
    number = 0
    while not over.wait(SHOWN if number else FIRST):
        with contextlib.suppress(Exception):  # the next time, then
            if number % NOTED == 0:
                claims.put(note_of(time.time()), number)
            claims.put(f"{nonce}-alive", number)
        number += 1


def _age() -> float:
    """Give the seconds since this process began, which is about when its container did."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        began = ticks / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED


def _name() -> str:
    return os.environ.get("MODAL_TASK_ID", "") or str(os.getpid())


class _Work:
    """A worker, and the thread that hands it what comes from the user's side.

    :param inbox: where that comes from.
    """

    def __init__(self, inbox: Any, asked: dict[str, Any], first: bytes) -> None:
        self._inbox, self._joiner = inbox, Joiner()
        self._partition = asked["nonce"]
        self._seconds = float(asked["seconds"]) or float("inf")
        self._ending = threading.Event()
        self._why = ""
        self._leaves_at = float("inf")
        self._pieces: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._began = self._heard = time.monotonic()
        self._kind = _Kind(tuple(asked["preload"]), tuple(sorted(asked["env"].items())))
        self._fresh = bool(asked["fresh"])
        if self._fresh:
            _end_waiting()
        ready = _WAITING.pop(self._kind) if self._kind in _WAITING else None
        self.channel = ready or self._kind.start()
        self.channel.send(first)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def said(self) -> Iterator[bytes]:
        """Yield what the worker writes; nothing, now and then, so that a lost piece is missed."""
        pieces = self._pieces

        def read() -> None:
            for data in self.channel.frames():
                pieces.put(data)
            pieces.put(None)

        threading.Thread(target=read, daemon=True).start()
        yield from gathered(lambda wait: pieces.get(timeout=wait), time.monotonic, EVERY)

    def _listen(self) -> None:
        """Hand on what comes, until there is a reason to end."""
        while not self._ending.is_set() and not self._why:
            try:
                self._take(self._next())
            except GapError as error:
                self._why = f"what the session sent has a gap: {error}"
            except Exception as error:  # noqa: BLE001 -- the border: whatever the service does
                sys.stderr.write(f"pytest-remotegpu: no messages: {error!r}\n")
                self._ending.wait(1.0)
            now = time.monotonic()
            if now - self._heard > LEASE:
                self._why = f"nobody has asked for this work for {LEASE:g} s"
            elif now - self._began > self._seconds:
                self._why = "the run limit is reached"
            elif now > self._leaves_at:
                self._why = "its container is taken away"
        if self._why and not self._ending.is_set():
            self.channel.stop()

    def _next(self) -> list[Any]:
        left = self._seconds - (time.monotonic() - self._began)
        timeout = max(min(POLL, left), 0.1)
        try:
            found: list[Any] = self._inbox.get_many(
                TOGETHER, partition=self._partition, block=True, timeout=timeout
            )
        except queue.Empty:
            return []
        return found

    def _take(self, messages: list[Any]) -> None:
        for message in messages:
            self._heard = time.monotonic()
            if message == "stop":
                self._why = "it was told to stop"
            elif isinstance(message, bytes) and (data := self._joiner.take(message)):
                self.channel.send(data)

    def leave(self) -> None:
        """Give the worker a while to end, since the container is about to be taken away."""
        self._leaves_at = time.monotonic() + LEAVING
        self._pieces.put(b"")  # so that it is told at once

    def diagnosis(self) -> str:
        """Say how the worker ended."""
        return f"{self._why or self.channel.diagnosis()} (container {_name()})"

    def close(self, *, warms: bool = True) -> None:
        """End the worker with all that it started; another one warms up for the next call.

        :param warms: whether there may be one; not where nothing warm is to be left.
        """
        self._ending.set()
        self.channel.stop()
        _end_waiting()
        if warms and not self._fresh:
            _WAITING[self._kind] = self._kind.start()


@dataclass(frozen=True)
class _Kind:
    """In which surroundings a worker's first process is started: what is imported, variables."""

    preload: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]

    def start(self) -> StdioChannel:
        """Start a worker, which imports what is asked for, and waits."""
        command = [sys.executable, "-P", "-m", "pytest_remotegpu.worker"]
        return StdioChannel(
            [*command, f"--preload={','.join(self.preload)}"],
            {**os.environ, **dict(self.variables)},
        )


_WAITING: Final[dict[_Kind, StdioChannel]] = {}
"""The worker that waits for the next call; it ends with this process, which holds its stdin."""


def _end_waiting() -> None:
    while _WAITING:
        _WAITING.popitem()[1].stop()
