"""The first process of a container: it starts the entrypoint and outlives nobody.

Run as a file without site-packages, so it knows nothing but the standard library. Its standard
input is its leash: lines `signal N` are passed on to the entrypoint, and at its end, which comes
too when the service is killed, everything that the container ever started is killed.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = stat.read_text(encoding="utf-8", errors="replace")
            if int(text.rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def _kill_all() -> None:
    """Kill every descendant; orphans come to this process, so a few rounds find them all."""
    deadline = time.monotonic() + 10
    while (pids := _children(os.getpid())) and time.monotonic() < deadline:
        pending = list(pids)
        while pending:
            pid = pending.pop()
            pending += _children(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def _hold_leash(entrypoint: int) -> None:
    for line in sys.stdin:
        word, _, number = line.partition(" ")
        if word == "signal":
            with contextlib.suppress(OSError):
                os.kill(entrypoint, int(number))
    _kill_all()
    os._exit(137)


def _become(libc: ctypes.CDLL) -> NoReturn:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 -- a list, no shell


def _main() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    entrypoint = os.fork()
    if not entrypoint:
        _become(libc)
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    threading.Thread(target=_hold_leash, args=[entrypoint], daemon=True).start()
    while True:  # reaps the orphans too, as the first process of a container has to
        try:
            pid, status = os.wait()
        except ChildProcessError:  # the other thread has killed and buried all, and ends this
            time.sleep(1)
            continue
        if pid == entrypoint:
            break
    _kill_all()
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    _main()
