"""Processes: adopt orphans, die with the parent, end whole trees; words between two of them.

Linux where it must be, POSIX elsewhere. Knows nothing of pytest, and opens no order.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Final

__all__ = [
    "FORK",
    "LENGTH",
    "PREFIX",
    "REPLY",
    "ROOT",
    "adopt_orphans",
    "children",
    "describe_end",
    "die_with_parent",
    "end_tree",
    "exists",
    "take_over_streams",
]

PREFIX: Final = "remotegpu-"
"""Of a worker's folder for temporary files; its process id follows."""
FORK: Final = b"F"
"""The supervisor's word for: fork a runner on the three descriptors that come with this byte."""
ROOT: Final = b"P"
"""The same for: hold no module of the project in the folder that follows (``LENGTH`` first)."""
LENGTH: Final = struct.Struct("=I")
REPLY: Final = struct.Struct("=cqqq")
"""What the zygote says: ``R`` ready, ``S`` started (pid), ``X`` ended (pid, status, peak KiB)."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def _prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the new parent of descendants whose own parent ends (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when the process ``parent`` ends; end at once where it has ended (Linux)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def children(pid: int) -> list[int]:
    """List all living descendants of a process, nearest first (Linux; empty elsewhere)."""
    found: list[int] = []
    todo = [pid]
    while todo:
        for task in _tasks(todo.pop()):
            new = [int(child) for child in task.split()]
            found += new
            todo += new
    return found


def _tasks(pid: int) -> list[str]:
    texts = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                texts.append((task / "children").read_text())
    return texts


def end_tree(keep: tuple[int, ...] = (), within: float = 2.0) -> list[int]:
    """Kill every descendant of this process until none is left.

    :param keep: processes that stay.
    :param within: seconds after which to stop trying.
    :return: those that are still there.
    """
    deadline = time.monotonic() + within
    while True:
        left = [pid for pid in children(os.getpid()) if pid not in keep]
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        left = [pid for pid in left if _alive(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def exists(pid: int) -> bool:
    """Say whether there is a process of this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def take_over_streams() -> tuple[int, int]:
    """Keep stdin and stdout for this process alone.

    :return: their descriptors; 0 is then empty, and what is written on 1 goes to stderr.
    """
    inward, outward = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return inward, outward


OWN_ENDS: Final = {
    70: "the worker process could not begin its session",
    71: "the test closed the socket by which its worker process is heard",
}
"""Exit statuses of our own processes, which say more than a number."""


def describe_end(status: int, peak_rss_kib: int = 0) -> str:
    """Say in words how a process ended.

    :param status: as ``os.waitpid`` gives it.
    :param peak_rss_kib: the largest resident size in KiB; shown where memory may be the cause.
    """
    code = os.waitstatus_to_exitcode(status)
    if code in OWN_ENDS:
        return OWN_ENDS[code]
    if code >= 0:
        return f"the worker process ended with exit status {code} while the test ran"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    text = f"the worker process was killed by {name}"
    if code == -signal.SIGKILL:
        text += (
            ", as the kernel does when memory runs out, and anybody may "
            f"(peak resident memory {peak_rss_kib / 2**20:.2f} GiB)"
        )
    return text
