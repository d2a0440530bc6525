"""The process that runners are forked from: pytest and its plugins imported, no project's code.

One thread, no open socket but its own, no CUDA. It opens no order and knows nothing of the wire;
who holds the other end of its socket tells it to fork and hands it the child's file descriptors.
A fork of it can serve one supervisor while the original stays warm for others.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import importlib.machinery
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, NoReturn

from pytest_remotegpu.worker import installed
from pytest_remotegpu.worker.process import (
    FORK,
    LENGTH,
    REPLY,
    ROOT,
    TWIN,
    adopt_orphans,
    end_tree,
    fork,
    fork_quietly,
)

__all__ = ["main"]

INSIDE: Final = "REMOTEGPU_WORKER"
"""Where this is set, this package's own plugin ships nothing."""


@contextlib.contextmanager
def _noted_reads(reads: set[str]) -> Iterator[None]:
    """Note the names of the environment variables that are read meanwhile."""
    kind = type(os.environ)
    original = kind.__getitem__

    def noting(self: os._Environ[str], name: str) -> str:
        if isinstance(name, str):
            reads.add(name)
        return original(self, name)

    kind.__getitem__ = noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.__getitem__ = original  # type: ignore[method-assign]


def load_plugins(without: list[str]) -> None:
    """Load pytest's plugins by a session over an empty folder.

    Later sessions in forked children then find them imported through pytest's own rewriting loader.

    :param without: names of plugins to leave alone.
    """
    import pytest  # noqa: PLC0415 -- the zygote pays for it, nobody else

    Path("pytest.ini").write_text("[pytest]\n")
    kept = dict(os.environb)  # which counts as reading none of them
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    os.environ[INSIDE] = "zygote"
    arguments = ["--collect-only", "-qq"]
    for name in ("xdist", "cacheprovider", "faulthandler", *without):
        arguments += ["-p", f"no:{name}"]
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        arguments += ["-p", "pytest_remotegpu.plugin"]  # its sessions name it likewise
    with _silence(), installed.kept():
        pytest.main([*arguments, "-c", "pytest.ini", "--rootdir", ".", "."])
    for name in [name for name in os.environ if os.fsencode(name) not in kept]:
        del os.environ[name]
    os.environb.update(kept)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with (
        Path(os.devnull).open("w") as null,
        contextlib.redirect_stdout(null),
        contextlib.redirect_stderr(null),
    ):
        yield


def preload(modules: list[str]) -> None:
    """Import modules that tests will want; one that can't be imported is the tests' to complain of.

    torch then looks for cards without a CUDA context, which no fork would survive.
    """
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    for name in modules:
        with _silence(), warnings.catch_warnings(), contextlib.suppress(BaseException):
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)


def _leave(folder: Path) -> None:
    if "--warm" in sys.argv:  # whoever started it may have been killed
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _ending_when_alone(control: socket.socket, folder: Path) -> Iterator[None]:
    """End this process at once if the other end of its socket goes, which imports never look at.

    What was asked for before that end went is still done, afterwards.
    """

    def look(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            if not control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                _leave(folder)
                os._exit(0)

    number = control.fileno()
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    before = signal.signal(signal.SIGIO, look)
    fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        look()  # it may have gone already
        yield
    finally:
        fcntl.fcntl(number, fcntl.F_SETFL, flags)
        signal.signal(signal.SIGIO, before)


def impurities(root: str) -> list[str]:
    """List what a process that is about to fork for a project must not have.

    :param root: the project's folder; modules in it are for the runner to import, each time anew.
    """
    found = [f"thread {thread.name}" for thread in threading.enumerate()[1:]]
    inside = f"{os.path.normpath(root).rstrip('/')}/" if root else ""
    found += sorted(name for name, module in sys.modules.items() if _is_inside(module, inside))
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("/dev/nvidia"):
                    found.append(target)
    return found


def _is_inside(module: object, inside: str) -> bool:
    """Say whether a module's file lies in a folder, whose name ends with a slash."""
    file = getattr(module, "__file__", None)
    if not inside or not isinstance(file, str):
        return False
    plain = file if is_plain(file) else os.path.normpath(file)
    if not plain.startswith(inside):
        return False
    name = getattr(module, "__name__", "")
    return name.partition(".")[0] != "pytest_remotegpu" and "site-packages" not in Path(file).parts


def _stay_pure(control: socket.socket, root: str) -> None:
    """Begin anew without pytest's plugins, where one of them brought in what must not be here."""
    if "--bare" in sys.argv or not impurities(root):
        return
    os.set_inheritable(control.fileno(), True)
    os.chdir("/")  # the folder may be gone
    module = "pytest_remotegpu.worker.zygote"
    words = [str(control.fileno()), str(os.getppid()), "--bare"]
    os.execv(sys.executable, [sys.executable, "-m", module, *words])  # noqa: S606 -- ourselves


def is_plain(path: str) -> bool:
    """Say whether a path has no part that could be left out; thousands are asked about at once."""
    return path[:1] == "/" and not ("//" in path or "/./" in path or "/../" in path)


# what is in here, for whoever keeps it warm


def _inventory(reads: set[str]) -> dict[str, object]:
    """Describe what this process has imported and read, so that a change of it is noticed."""
    files: dict[str, list[int] | None] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not file.startswith(str(Path.cwd())):
            files[file] = stat_of(file)
    files |= {path: stat_of(path) for path in installed.files()}
    folders = {path: stat_of(path) for path in sys.path if path.endswith("-packages")}
    for folder in list(folders):
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208 -- a folder of thousands of names
                if name.endswith(".pth"):
                    files[f"{folder}/{name}"] = stat_of(f"{folder}/{name}")
    return {
        "files": files | folders,
        "modules": {
            file: module.__name__
            for module in list(sys.modules.values())
            if isinstance(file := getattr(module, "__file__", None), str)
        },
        "plugins": _plugin_files(),
        "reads": sorted(reads),
        "impure": impurities(""),
    }


def _plugin_files() -> dict[str, str]:
    found = {}
    for point in entry_points(group="pytest11"):
        file = getattr(sys.modules.get(point.module), "__file__", None)
        if file:
            found[point.name] = file
    return found


def stat_of(path: str) -> list[int] | None:
    """Give a file's time of change in nanoseconds and its size; ``None`` where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 -- thousands of them, at each start
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]


def _report(control: socket.socket, reads: set[str]) -> None:
    data = json.dumps(_inventory(reads)).encode()
    _say(control, REPLY.pack(b"M", len(data), 0, 0) + data)


def _say(control: socket.socket, data: bytes) -> None:
    """Say something to whoever holds the other end, which may be gone: the next look will tell."""
    with contextlib.suppress(OSError):
        control.sendall(data)


# forking


def _read_exactly(control: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length and (chunk := control.recv(length - len(data))):
        data += chunk
    return data


def _forked(control: socket.socket, fds: list[int]) -> NoReturn:
    """Become a runner in a fresh child process."""
    from pytest_remotegpu.worker import beginning  # noqa: PLC0415 -- imported before the fork

    control.close()
    channel, out, err, stacks, *leases = fds
    null = os.open(os.devnull, os.O_RDWR)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    for fd in (null, out, err):
        os.close(fd)
    os.setsid()
    beginning.main(channel, stacks, leases)


def _fork(control: socket.socket, fds: list[int]) -> int:
    pid = fork(lambda: _forked(control, fds))
    for fd in fds:
        os.close(fd)
    return pid


def _twin(control: socket.socket, fd: int) -> int:
    """Fork a process like this one, which serves the socket ``fd`` alone; give its process id."""
    pid = fork_quietly()
    if pid:
        os.close(fd)
        return pid
    try:
        control.close()
        os.setsid()
        own = socket.socket(fileno=fd)
        own.sendall(REPLY.pack(b"P", os.getpid(), 0, 0) + REPLY.pack(b"R", 0, 0, 0))
        Server(own).serve()
        end_tree()
    finally:
        os._exit(0)


class Server:
    """Forks on demand and tells of each child's end, until the other end of its socket is gone."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._runners: dict[int, int] = {}
        self._twins: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve."""
        adopt_orphans()
        while True:
            for key, _ in self._selector.select(1.0):
                if key.fileobj is self._control and not self._take():
                    return
            self._reap()

    def _take(self) -> bool:
        """Do what one word asks for; say whether there was one."""
        try:
            word, fds, _flags, _address = socket.recv_fds(self._control, 1, 64)
        except ConnectionResetError:  # the other end is gone, and has not read all that was said
            return False
        if word == FORK:
            pid = _fork(self._control, fds)
            pidfd = self._runners[pid] = os.pidfd_open(pid)
            self._selector.register(pidfd, selectors.EVENT_READ)
            self._say(b"S", pid)
        elif word == TWIN:
            self._twins.add(_twin(self._control, fds[0]))
        elif word == ROOT:
            (length,) = LENGTH.unpack(_read_exactly(self._control, LENGTH.size))
            _stay_pure(self._control, os.fsdecode(_read_exactly(self._control, length)))
        else:
            return False
        return True

    def _say(self, word: bytes, *numbers: int) -> None:
        _say(self._control, REPLY.pack(word, *(*numbers, 0, 0, 0)[:3]))

    def _reap(self) -> None:
        """Bury runners, and what tests left behind that came here as an orphan."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                pidfd = self._runners.pop(pid, None)
                if pidfd is not None:
                    self._selector.unregister(pidfd)
                    os.close(pidfd)
                    self._say(b"X", pid, status, usage.ru_maxrss)
                elif pid in self._twins:
                    self._twins.discard(pid)
                    self._end_strays()

    def _end_strays(self) -> None:
        """End what a fork of this process has left here, if it was killed before it could."""
        end_tree(keep=(*self._twins, *self._runners))

    def end(self) -> None:
        """End the runners; forks that serve others go on until those let them go."""
        end_tree(keep=(*self._twins,))


def _words(option: str) -> list[str]:
    """Read the comma-separated words of an option ``--name=a,b`` of this process."""
    prefix = f"--{option}="
    given = [word.removeprefix(prefix) for word in sys.argv if word.startswith(prefix)]
    return [word for text in given for word in text.split(",") if word]


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def main(fd: int) -> None:
    """Run a zygote in the current, empty folder, until the other end of its socket is gone.

    :param fd: the socket to whom it serves.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # an agent ignores it
    folder = Path("/proc/self/cwd").readlink()  # it may be gone already
    try:
        _serve(socket.socket(fileno=fd), folder)
    finally:
        _leave(folder)


def _serve(control: socket.socket, folder: Path) -> None:
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(folder))]
    reads: set[str] = set()
    with _ending_when_alone(control, folder), _noted_reads(reads):
        if "--bare" not in sys.argv:
            load_plugins(_words("without"))
        from pytest_remotegpu.worker import beginning  # noqa: F401, PLC0415 -- for the children

        preload(_words("preload"))
    _freeze()
    if "--warm" in sys.argv:
        _report(control, reads)
    _say(control, REPLY.pack(b"R", 0, 0, 0))
    server = Server(control)
    server.serve()
    server.end()


if __name__ == "__main__":
    # The name of a module that runs as a script differs from its import: children need the latter.
    from pytest_remotegpu.worker import zygote  # noqa: PLW0406 -- for that very reason

    zygote.main(int(sys.argv[1]))
    from pytest_remotegpu.worker import ending

    ending.run_exit_functions()  # as a runner does: os._exit would skip them
    os._exit(0)  # somebody waits, and with torch an interpreter takes half a second to go
