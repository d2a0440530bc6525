"""``python -m pytest_remotegpu.worker.agent SOCKET``: keep zygotes warm for one user's sessions.

Answers one line of JSON for each connection. A session that asks for a worker goes on to speak to
it on the same connection: a supervisor that is forked from here, with runners that are forked from
a warm zygote. Opens no order; what runs goes on when this process is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from pytest_remotegpu.worker import process, serving, site
from pytest_remotegpu.worker.bounds import Bounds
from pytest_remotegpu.worker.pool import Pool, Warm, Wish
from pytest_remotegpu.worker.start import Zygote
from pytest_remotegpu.worker.zygote import stat_of

__all__ = ["Agent", "main"]

MOST_WORDS: Final = 2**24
"""Bytes of one request."""
HANDSHAKE: Final = 5.0
"""Seconds in which a request must have come."""
QUIET: Final = 1.0
"""Seconds without a session after which there is time to import ahead."""
TICK: Final = 5.0
"""Seconds between two looks at what nobody reports."""
GRACE: Final = 6.0
"""Seconds that supervisors have to clean up when the agent is told to stop."""
LOADED: Final = ("pytest_remotegpu", "pynvml")
"""Packages whose modules forks of this process take from it."""
CREDENTIALS: Final = struct.Struct("3i")


@dataclass
class Guest:
    """A connection that has not said yet what it wants."""

    connection: socket.socket
    pid: int
    deadline: float
    said: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Tenant:
    """A supervisor at work.

    :ivar pidfd: readable once it has ended. :ivar client: the session's process id.
    """

    pid: int
    pidfd: int
    client: int
    about: str
    since: float


class Agent:
    """Serves a socket until nobody has needed it for a while.

    :param path: of the socket; its folder is this user's alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = Pool(self._listen_to_zygote, self._forget_zygote)
        self._guests: dict[int, Guest] = {}
        self._tenants: dict[int, Tenant] = {}
        self._selector = selectors.DefaultSelector()
        self._idle = 600.0
        self._since = time.time()
        self._last_needed = time.monotonic()
        self._ending = False
        site.prepare()
        self._sources = _sources()
        self._listener = _listen(path)
        self._identity = stat_of(str(path))
        self._selector.register(self._listener, selectors.EVENT_READ, self._welcome)

    def serve(self) -> None:
        """Serve."""
        while not self._ending:
            for key, _ in self._selector.select(self._patience()):
                key.data()
            self._bury()
            now = time.monotonic()
            for guest in [guest for guest in self._guests.values() if now > guest.deadline]:
                self._dismiss(guest, {"error": "no request came in time"})
            if self._tenants or self._guests:
                self._last_needed = now
            elif now - self._last_needed > self._idle or not self._is_ours():
                self._ending = True
            elif now - self._last_needed > QUIET:
                self._warm_up()

    def _patience(self) -> float:
        if self._guests or self._ending:
            return 0.2
        return min(QUIET if self._pool.is_cold else TICK, max(self._idle, 0.1))

    def _is_ours(self) -> bool:
        """Say whether the socket in the folder is still this one."""
        return stat_of(str(self._path)) == self._identity

    # guests

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, uid, _gid = CREDENTIALS.unpack(raw)
        if uid != os.getuid():
            _log(f"turned away process {pid} of user {uid}")
            connection.close()
            return
        connection.setblocking(False)
        guest = Guest(connection, pid, time.monotonic() + HANDSHAKE)
        self._guests[connection.fileno()] = guest
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._listen_to(guest))

    def _listen_to(self, guest: Guest) -> None:
        try:
            chunk = guest.connection.recv(2**18)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        guest.said += chunk
        line, newline, rest = guest.said.partition(b"\n")
        if newline:
            self._answer(guest, bytes(line), too_much=bool(rest))
        elif not chunk:
            self._dismiss(guest)
        elif len(guest.said) > MOST_WORDS:
            self._dismiss(guest, {"error": f"a request of more than {MOST_WORDS} bytes"})

    def _dismiss(self, guest: Guest, answer: dict[str, Any] | None = None) -> None:
        self._forget(guest)
        with contextlib.suppress(OSError):
            guest.connection.setblocking(True)
            guest.connection.settimeout(1.0)
            if answer is not None:
                guest.connection.sendall(_line(answer))
        guest.connection.close()

    def _forget(self, guest: Guest) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(guest.connection)
        self._guests.pop(guest.connection.fileno(), None)

    def _answer(self, guest: Guest, line: bytes, *, too_much: bool) -> None:
        try:
            request = json.loads(line)
            word = request["word"]
        except (ValueError, TypeError, KeyError, RecursionError):
            _log(f"process {guest.pid} said {line[:60]!r}")
            self._dismiss(guest, {"error": "that is no request"})
            return
        if word == "ps":
            self._dismiss(guest, self._describe())
        elif word == "stop":
            self._ending = True
            self._dismiss(guest, self._describe())
        elif word != "open" or too_much:
            self._dismiss(guest, {"error": f"there is no such request: {str(word)[:60]!r}"})
        elif _sources() != self._sources:
            self._retire(guest)
        else:
            self._open(guest, request)

    def _describe(self) -> dict[str, Any]:
        workers = [
            {"pid": t.pid, "client": t.client, "about": t.about, "since": t.since}
            for t in self._tenants.values()
        ]
        zygotes = [
            {"pid": zygote.process.pid, "about": zygote.about()} for zygote in self._pool.zygotes
        ]
        return {
            "agent": os.getpid(),
            "python": sys.executable,
            "since": self._since,
            "idle": self._idle,
            "stale": _sources() != self._sources,
            "workers": workers,
            "zygotes": zygotes,
            "leaving": self._pool.leaving,
        }

    def _retire(self, guest: Guest) -> None:
        """Make room for a new agent: this one's own code has changed since it was started."""
        _log("the package has changed; what runs goes on, and then this process ends")
        with contextlib.suppress(OSError):
            if self._is_ours():
                self._path.unlink()
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._listener)
        self._listener.close()
        self._idle = 0.0
        self._dismiss(guest, {"stale": True})

    # workers

    def _open(self, guest: Guest, request: dict[str, Any]) -> None:
        try:
            wish = Wish(
                {str(name): str(value) for name, value in request["environ"].items()},
                str(request["root"]),
                tuple(map(str, request["preload"])),
            )
            bounds = Bounds.read(request)
            if request.get("ahead") and not self._pool.has(wish):
                self._dismiss(guest, {"error": "nothing is ready for that"})
                return
            self._idle = float(request["idle"])
            control, pure = self._twin(wish)
            pid = os.fork()
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            _log(traceback.format_exc())
            self._dismiss(guest, {"error": f"{type(error).__name__}: {error}"})
            return
        if pid == 0:
            self._become_supervisor(guest, _Twin(control, bounds, wish.root if pure else ""), wish)
        control.close()
        self._forget(guest)
        guest.connection.close()
        pidfd = os.pidfd_open(pid)
        about = str(request.get("about", ""))[:200]
        self._tenants[pid] = Tenant(pid, pidfd, guest.pid, about, time.time())
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: None)

    def _twin(self, wish: Wish) -> tuple[socket.socket, bool]:
        """Have a process for one worker forked from a fitting zygote.

        :return: a socket to it, and whether it is known to hold nothing of the project.
        :raises OSError: where that can't be done.
        """
        zygote = self._pool.find(wish)
        try:
            return self._pool.twin(zygote), zygote.is_pure()
        except OSError:
            self._pool.drop(zygote)
        zygote = self._pool.find(wish)
        return self._pool.twin(zygote), zygote.is_pure()

    def _listen_to_zygote(self, zygote: Warm) -> None:
        self._selector.register(
            zygote.control, selectors.EVENT_READ, lambda: self._read_zygote(zygote)
        )

    def _forget_zygote(self, zygote: Warm) -> None:
        self._selector.unregister(zygote.control)

    def _read_zygote(self, zygote: Warm) -> None:
        if zygote not in self._pool.zygotes:
            return
        if zygote.read():
            self._pool.settle()
        else:
            self._pool.drop(zygote)

    def _become_supervisor(self, guest: Guest, twin: _Twin, wish: Wish) -> NoReturn:
        """In a fresh child: serve the guest."""
        status = 70
        try:
            self._selector.close()
            self._listener.close()
            for other in self._guests.values():
                if other is not guest:
                    other.connection.close()
            for zygote in self._pool.zygotes:
                zygote.control.close()
            status = _supervise(guest.connection, twin, wish)
        except SystemExit as end:
            _log("the worker was told to end")
            status = end.code if isinstance(end.code, int) else status
        except BaseException:  # noqa: BLE001 -- the border of the process
            _log(traceback.format_exc())
        finally:
            os._exit(status)

    def _bury(self) -> None:
        """Take note of children that have ended, strangers among them."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                tenant = self._tenants.pop(pid, None)
                if tenant is not None:
                    self._selector.unregister(tenant.pidfd)
                    os.close(tenant.pidfd)
                self._pool.bury(pid, os.waitstatus_to_exitcode(status))
                if not self._tenants:
                    self._end_strays()

    def _warm_up(self) -> None:
        """Make ready for the next session, now that none has come for a while."""
        try:
            self._pool.warm_up()
        except OSError:
            _log(traceback.format_exc())

    def _end_strays(self) -> None:
        """End what came here as an orphan, now that it can be nobody's."""
        process.end_tree(keep=(*self._pool.processes(),))

    def close(self) -> None:
        """End everything."""
        with contextlib.suppress(OSError):
            if self._is_ours():
                self._path.unlink()
        self._listener.close()
        for pid in self._tenants:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while self._tenants and time.monotonic() < deadline:
            self._bury()
            time.sleep(0.02)
        for zygote in list(self._pool.zygotes):
            self._pool.drop(zygote)
        process.end_tree()
        self._pool.tidy()


def _supervise(connection: socket.socket, twin: _Twin, wish: Wish) -> int:
    """Be one worker's supervisor, in surroundings like the session's."""
    os.setsid()
    os.environ.clear()
    os.environ.update(wish.environ)
    tempfile.tempdir = None
    connection.setblocking(True)
    process.adopt_orphans()
    try:
        scratch = tempfile.mkdtemp(prefix=f"{process.PREFIX}{os.getpid()}-")
    except OSError as error:
        connection.sendall(_line({"error": f"{type(error).__name__}: {error}"}))
        return 1
    with contextlib.suppress(OSError):  # one that has gone is noticed where it is read
        connection.sendall(_line({"pid": os.getpid(), "agent": os.getppid()}))
    inward = connection.detach()
    return serving.serve(inward, os.dup(inward), twin, scratch)


class _Twin(Zygote):
    """A fork of a warm zygote, under the limits of the session that it is for.

    :param root: the project's folder, if it is known that nothing of it was imported; or empty.
    """

    def __init__(self, control: socket.socket, bounds: Bounds, root: str) -> None:
        super().__init__(control)
        self._bounds = bounds
        self._root = root

    def keep_out(self, root: str) -> None:
        """Have it look for modules of the project, unless that was looked at before the fork."""
        if not root or root != self._root:
            super().keep_out(root)

    def _began(self) -> None:
        try:
            self._bounds.apply(self.pid)
        except OSError as error:
            _log(f"the limits of the session could not be set: {error}")


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _log(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a full disk is no reason to end
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {os.getpid()}: {text.rstrip()}\n")
        sys.stderr.flush()


def _sources() -> dict[str, list[int] | None]:
    """Look at the files that this process has imported and that may be replaced meanwhile."""
    names = [name for name in sys.modules if name.partition(".")[0] in LOADED]
    files = [__file__, *(getattr(sys.modules[name], "__file__", None) for name in names)]
    return {file: stat_of(file) for file in files if file}


def _listen(path: Path) -> socket.socket:
    """Bind the socket; a dead one that lies there is removed.

    :raises OSError: where another process answers there, or it can't be bound.
    """
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise OSError(f"an agent serves {str(path)!r} already")
    umask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(umask)
    listener.listen(64)
    return listener


def main(path: Path) -> int:
    """Leave a process that serves until idle or told to stop, and return once it listens.

    :return: the exit status: 0 where it does.
    """
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        return 0 if os.read(told, 1) else 1
    os.close(told)
    os.setsid()
    return _serve(path, tell)


def _serve(path: Path, tell: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    process.adopt_orphans()
    os.chdir("/")
    lock = os.open(f"{path}.running", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone, not of its forks
        agent = Agent(path)
    except OSError as error:
        _log(f"not started: {error}")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.write(tell, b"L")
    os.close(tell)
    try:
        agent.serve()
    finally:
        agent.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
