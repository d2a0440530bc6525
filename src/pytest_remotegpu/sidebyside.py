"""Several commands at once, each a process of its own: their lines under their names, their ends.

None of them takes another one along; Ctrl-C and SIGTERM are handed on to all, and where this
process is killed they hear of it by their stdin, if they :func:`follow`. Knows processes and
streams, and nothing of what they do.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Final

from pytest_remotegpu.commanding import FAILED, INTERRUPTED, UNREAD, USAGE, put

__all__ = ["follow", "label", "run", "worst"]

ORDER: Final = (INTERRUPTED, UNREAD, FAILED, USAGE, 1, 5)
"""Exit statuses, the one that says most first; others come before them all, 0 last."""
PATIENCE: Final = 60.0
"""Seconds that each command has to end in when it was told to: it may have machines to let go."""


FOLLOWS: Final = "_REMOTEGPU_SIDE_BY_SIDE"
"""A variable of our own, which says that stdin ends with the process which has started this one."""


def label(name: str) -> str:
    """Name a folder after something.

    >>> label("modal:A100-80GB,H100!")
    'modal-A100-80GB-H100'
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "it"


def run(calls: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Run commands side by side, begun in their order.

    :param calls: by name, the program and its arguments.
    :return: by name, the exit status; as shells have it where a signal has ended one.
    """
    width = max(map(len, calls))
    children: dict[str, subprocess.Popen[bytes]] = {}
    readers: list[threading.Thread] = []
    lock = threading.Lock()
    with _terminated():
        try:
            for name, words in calls.items():
                child = _start(words)
                children[name] = child
                head = f"[{name}]".ljust(width + 3).encode()
                for stream, pipe in ((1, child.stdout), (2, child.stderr)):
                    reader = threading.Thread(target=_copy, args=(pipe, stream, head, lock))
                    reader.start()
                    readers.append(reader)
            _wait(children.values())
        except KeyboardInterrupt:
            _end(children.values())
        finally:
            for child in children.values():
                if child.poll() is None:
                    child.kill()
                    child.wait()
            for reader in readers:
                reader.join()
    codes = {name: child.returncode for name, child in children.items()}
    statuses = {name: code if code >= 0 else 128 - code for name, code in codes.items()}
    return {name: statuses.get(name, INTERRUPTED) for name in calls}


def _start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start one in a session of its own: Ctrl-C reaches this process, which hands it on once."""
    return subprocess.Popen(
        list(words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, FOLLOWS: "1"},
    )


def follow() -> None:
    """End as by SIGTERM once the process is gone that has started this one beside others."""
    if os.environ.pop(FOLLOWS, "") != "1":
        return
    line = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(line, 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _copy(pipe: IO[bytes] | None, stream: int, head: bytes, lock: threading.Lock) -> None:
    """Show what comes, line by line, behind a head; who writes is told where nobody reads it."""
    if pipe is None:
        return
    with pipe, contextlib.suppress(OSError):
        for line in pipe:
            with lock:
                put(stream, head + line.rstrip(b"\r\n") + b"\n")


def _wait(children: Iterable[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.wait()


def _end(children: Iterable[subprocess.Popen[bytes]]) -> None:
    """Hand Ctrl-C on to all, and give them time to end, until it is pressed again."""
    living = [child for child in children if child.poll() is None]
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        for child in living:
            child.send_signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGINT)
        for child in living:
            child.wait(PATIENCE)


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Let SIGTERM, and the end of the terminal, do what Ctrl-C does."""

    def end(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM] + ([] if sys.platform == "win32" else [signal.SIGHUP])
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def worst(statuses: Iterable[int]) -> int:
    """Give the exit status of several: 0 only where all have it.

    >>> worst([0, 5, 1]), worst([0, 0]), worst([])
    (1, 0, 0)
    """
    found = set(statuses)
    others = sorted(found - {0, *ORDER})
    return next(iter([*others, *(status for status in ORDER if status in found)]), 0)
