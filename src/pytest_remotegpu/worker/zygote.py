"""The process that runners are forked from: pytest and its plugins imported, no project's code.

One thread, no open socket but its own, no CUDA. It opens no order and knows nothing of the wire;
the supervisor tells it to fork and hands it the child's file descriptors.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import threading
import warnings
from pathlib import Path
from typing import NoReturn

from pytest_remotegpu.worker.process import FORK, LENGTH, REPLY, ROOT, die_with_parent

__all__ = ["main"]


def load_plugins() -> None:
    """Load pytest's plugins by a session over an empty folder.

    Later sessions in forked children then find them imported through pytest's own rewriting loader.
    """
    import pytest  # noqa: PLC0415 -- the zygote pays for it, nobody else

    Path("pytest.ini").write_text("[pytest]\n")
    kept = dict(os.environ)
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    arguments = [
        "--collect-only",
        "-qq",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
    ]
    with (
        Path(os.devnull).open("w") as null,
        contextlib.redirect_stdout(null),
        contextlib.redirect_stderr(null),
    ):
        pytest.main([*arguments, "-c", "pytest.ini", "--rootdir", ".", "."])
    os.environ.clear()
    os.environ.update(kept)


def impurities(root: str) -> list[str]:
    """List what a process that is about to fork for a project must not have.

    :param root: the project's folder; modules in it are for the runner to import, each time anew.
    """
    found = [f"thread {thread.name}" for thread in threading.enumerate()[1:]]
    found += [name for name, module in sorted(sys.modules.items()) if _is_inside(module, root)]
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("/dev/nvidia"):
                    found.append(target)
    return found


def _is_inside(module: object, root: str) -> bool:
    file = getattr(module, "__file__", None)
    name = getattr(module, "__name__", "")
    if not file or not root or name.partition(".")[0] == "pytest_remotegpu":
        return False
    return Path(file).is_relative_to(root) and "site-packages" not in Path(file).parts


def _stay_pure(control: socket.socket, root: str) -> None:
    """Begin anew without pytest's plugins, where one of them brought in what must not be here."""
    if "--bare" in sys.argv or not impurities(root):
        return
    os.set_inheritable(control.fileno(), True)
    module = "pytest_remotegpu.worker.zygote"
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *sys.argv[1:], "--bare"])  # noqa: S606 -- ourselves


def _read_exactly(control: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length and (chunk := control.recv(length - len(data))):
        data += chunk
    return data


def _forked(control: socket.socket, fds: list[int]) -> NoReturn:
    """Become a runner in a fresh child process."""
    from pytest_remotegpu.worker import runner  # noqa: PLC0415 -- imported before the fork

    control.close()
    channel, out, err = fds
    null = os.open(os.devnull, os.O_RDWR)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    for fd in (null, out, err):
        os.close(fd)
    os.setsid()
    runner.main(channel)


def _fork(control: socket.socket, fds: list[int]) -> int:
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns where other threads exist; BLAS keeps fork-safe ones after its import.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(parent)
            _forked(control, fds)
        finally:
            os._exit(70)
    for fd in fds:
        os.close(fd)
    return pid


def serve(control: socket.socket) -> None:
    """Fork on demand and tell of each child's end, until the supervisor is gone."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                word, fds, _flags, _address = socket.recv_fds(control, 1, 3)
                if word == ROOT:
                    (length,) = LENGTH.unpack(_read_exactly(control, LENGTH.size))
                    _stay_pure(control, os.fsdecode(_read_exactly(control, length)))
                    continue
                if word != FORK:
                    return
                pid = _fork(control, fds)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
                control.sendall(REPLY.pack(b"S", pid, 0, 0))
            else:
                _, status, usage = os.wait4(key.data, 0)
                selector.unregister(key.fd)
                os.close(key.fd)
                control.sendall(REPLY.pack(b"X", key.data, status, usage.ru_maxrss))


def main(fd: int, parent: int) -> None:
    """Run a zygote in the current, empty folder.

    :param fd: the socket to the supervisor.
    :param parent: the supervisor's process id; the zygote ends with it.
    """
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=fd)
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(Path.cwd()))]
    if "--bare" not in sys.argv:
        load_plugins()
    from pytest_remotegpu.worker import runner  # noqa: F401, PLC0415 -- for the children

    gc.collect()
    gc.freeze()
    control.sendall(REPLY.pack(b"R", 0, 0, 0))
    serve(control)


if __name__ == "__main__":
    # The name of a module that runs as a script differs from its import: children need the latter.
    from pytest_remotegpu.worker import zygote  # noqa: PLW0406 -- for that very reason

    zygote.main(int(sys.argv[1]), int(sys.argv[2]))
