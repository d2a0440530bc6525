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
import traceback
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from pytest_remotegpu.leftovers import PREFIX

__all__ = [
    "DUMP",
    "FORK",
    "LENGTH",
    "PREFIX",
    "REPLY",
    "ROOT",
    "TWIN",
    "adopt_orphans",
    "allow_look",
    "children",
    "describe_end",
    "die_with_parent",
    "end_tree",
    "fork",
    "fork_quietly",
    "is_own_doing",
    "memory_kills",
    "nameless_file",
    "take_over_streams",
]

DUMP: Final = (
    signal.SIGRTMAX - 5 if sys.platform == "linux" else getattr(signal, "SIGUSR2", signal.SIGTERM)
)
"""A runner answers it with every thread's stack, out of a native call too; hardly anybody else
uses it."""
FORK: Final = b"F"
"""The word for: fork a runner on the descriptors that come with this byte.

They are its socket, its stdout, its stderr, a file for stacks, and the locks on its cards.
"""
TWIN: Final = b"T"
"""The same for: fork a zygote like yourself that serves the socket that comes with this byte."""
ROOT: Final = b"P"
"""The same for: hold no module of the project in the folder that follows (``LENGTH`` first)."""
LENGTH: Final = struct.Struct("=I")
REPLY: Final = struct.Struct("=cqqq")
"""What the zygote says: ``R`` ready, ``P`` its own pid, ``S`` started (pid), ``X`` ended (pid,
status, peak KiB), ``M`` what it has imported (length of the JSON text that follows)."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_PTRACER: Final = 0x59616D61


def _prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def nameless_file(about: str) -> int:
    """Open a file that lies in no folder; on Linux it takes no room on a disk either.

    :param about: what people see of it in the list of open files.
    :return: its descriptor.
    """
    if sys.platform == "linux":
        return os.memfd_create(about)
    import tempfile  # noqa: PLC0415 -- where the system has no better

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def fork_quietly() -> int:
    """Fork, without what Python 3.12 warns of where there are other threads.

    Those are of BLAS, which keeps fork-safe ones after its import.

    :return: as ``os.fork`` does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def fork(child: Callable[[], object]) -> int:
    """Fork a process that dies with this one, and does nothing but ``child``.

    What that raises is written to this process's stderr; the child then ends with status 70.

    :return: its process id, in this process.
    """
    parent = os.getpid()
    pid = fork_quietly()
    if pid:
        return pid
    try:
        die_with_parent(parent)
        child()
    except BaseException:  # noqa: BLE001 -- the border of the process; who forked it reads this
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(70)


def adopt_orphans() -> None:
    """Make this process the new parent of descendants whose own parent ends (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when the process ``parent`` ends; end at once where it has ended (Linux)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def allow_look(parent: int) -> None:
    """Let what the process ``parent`` starts look into this one, where only its own may (Linux)."""
    _prctl(_PR_SET_PTRACER, parent)


def children(pid: int, without: Collection[int] = ()) -> list[int]:
    """List all living descendants of a process, nearest first (Linux; empty elsewhere).

    :param without: processes that are left out, and with each what descends from it.
    """
    found: list[int] = []
    todo = [pid]
    while todo:
        for task in _tasks(todo.pop()):
            new = [child for child in map(int, task.split()) if child not in without]
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


def end_tree(
    keep: tuple[int, ...] = (), within: float = 2.0, of: tuple[int, ...] = ()
) -> list[int]:
    """Kill every descendant of this process until none is left.

    :param keep: processes that stay, and all that descends from each: they may fork meanwhile.
    :param within: seconds after which to stop trying.
    :param of: other processes whose descendants end likewise.
    :return: those that are still there.
    """
    deadline = time.monotonic() + within
    while True:
        roots = (os.getpid(), *of)
        left = [pid for root in roots for pid in children(root, keep)]
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


def memory_kills() -> int:
    """Count the processes of this control group that the kernel has ended for want of memory.

    :return: 0 where that can't be read.
    """
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
        group = Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":", 2)[2]
        for file in (f"/sys/fs/cgroup{group}/memory.events", "/sys/fs/cgroup/memory.events"):
            with contextlib.suppress(OSError):
                lines = Path(file).read_text().splitlines()
                return int(dict(line.split() for line in lines)["oom_kill"])
    return 0


FAULTS: Final = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")
"""Signals that a process's own code brings about."""
OWN_ENDS: Final = {
    70: "the worker process broke down",
    71: "the test closed the socket by which its worker process is heard",
}
"""Exit statuses of our own processes, which say more than a number."""


def is_own_doing(status: int) -> bool:
    """Say whether a process has ended by what its own code did, and not by somebody's signal.

    :param status: as ``os.waitpid`` gives it.
    """
    code = os.waitstatus_to_exitcode(status)
    return code >= 0 or any(getattr(signal, name, None) == -code for name in FAULTS)


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
