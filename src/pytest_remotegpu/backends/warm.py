"""Workers of an agent that stays warm between sessions: found, started, spoken to.

Knows the agent's socket and its few words; what a worker is asked, and answers, passes unseen.
Linux only: elsewhere nobody knows who is at the other end of a socket.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.errors import FarSideError

if sys.platform != "win32":
    import fcntl

__all__ = [
    "Begun", "WarmChannel", "Wish", "ask", "begin", "folder", "log_of", "open_worker", "server",
    "sockets",
]  # fmt: skip

CHUNK: Final = 2**18
STARTING: Final = 20.0
"""Seconds in which an agent must listen."""
ANSWER: Final = 10.0
"""Seconds in which it must answer."""
AHEAD: Final = 0.2
"""Seconds in which it must take a request in that is made ahead."""
LETTING_GO: Final = 1.0
"""Seconds to wait for the end of a worker that was asked for ahead and is not needed."""
GRACE: Final = 4.0
"""Seconds that a worker has to clean up once its input is closed."""
LOG_LIMIT: Final = 2**20
CREDENTIALS: Final = struct.Struct("3i")
LIMITS: Final = (
    "RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_MEMLOCK",
    "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_STACK",
)  # fmt: skip
_Limits = Mapping[str, tuple[int, int]]
"""Soft and hard ones, by their names."""


def folder(environ: Mapping[str, str]) -> Path:
    """Give the folder for this user's sockets, which nobody else can enter; make it if need be.

    :raises FarSideError: where it can't be had, or is open to others.
    """
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    usable = bool(runtime) and Path(runtime).is_dir() and os.access(runtime, os.W_OK)
    top = Path(runtime, "pytest-remotegpu") if usable else _of_user()
    try:
        with contextlib.suppress(FileExistsError):
            top.mkdir(mode=0o700)
        found = top.lstat()
    except OSError as error:
        raise FarSideError(f"no folder for the warm process: {error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise FarSideError(
            f"{str(top)!r} must be a folder of this user's alone for the warm process; "
            f"remove it, or: chmod 700 {top}"
        )
    return top


def _of_user() -> Path:
    return Path(f"/tmp/pytest-remotegpu-{os.getuid()}")  # noqa: S108 -- checked to be this user's


def sockets(environ: Mapping[str, str]) -> list[Path]:
    """List the sockets of this user's agents, living or not."""
    return sorted(folder(environ).glob("*.sock"))


def _path(top: Path, python: str, limits: _Limits) -> Path:
    """Name the socket of an interpreter, by whichever of its names it was called.

    That is a binary and the folder in which it, or a link to it, lies: a virtual environment's.
    Hard limits are part of the name: an agent that has lower ones than a session can't raise them.
    """
    hard = [limit for _soft, limit in limits.values()]
    identity = f"{Path(python).parent.resolve()}\n{Path(python).resolve()}\n{hard}"
    name = hashlib.sha256(os.fsencode(identity)).hexdigest()[:12]
    return top / f"{name}.sock"


def server(path: Path) -> int:
    """Give the process that listens at a socket, whether or not it answers; 0 where none does."""
    connection = _connect(path)
    if connection is None:
        return 0
    with connection:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, _user, _group = CREDENTIALS.unpack(raw)
    return int(pid)


def _connect(path: Path, within: float = ANSWER) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(within)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def ask(path: Path, request: dict[str, Any], within: float = ANSWER) -> dict[str, Any]:
    """Ask the agent behind a socket something that one line answers.

    :param within: seconds that it has to answer.
    :raises FarSideError: where none answers.
    """
    connection = _connect(path, within)
    if connection is None:
        raise FarSideError(f"no agent answers at {str(path)!r}")
    with connection:
        answer, _rest = _exchange(connection, request)
    return answer


def _exchange(connection: socket.socket, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Send one line and read one.

    :return: the answer, and what came after it.
    :raises FarSideError: where none comes.
    """
    try:
        _ask(connection, request)
    except OSError as error:
        raise FarSideError(f"the agent hears nothing: {type(error).__name__}: {error}") from None
    return _answer(connection)


def _ask(connection: socket.socket, request: dict[str, Any]) -> None:
    connection.sendall(json.dumps(request).encode() + b"\n")


def _answer(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Read one line.

    :return: the answer, and what came after it.
    :raises FarSideError: where none comes.
    """
    said = b""
    try:
        while b"\n" not in said and (chunk := connection.recv(CHUNK)):
            said += chunk
        line, _, rest = said.partition(b"\n")
        answer = json.loads(line)
    except (OSError, ValueError) as error:
        raise FarSideError(f"the agent gives no answer: {type(error).__name__}: {error}") from None
    return answer, rest


def _started(path: Path, python: str, environ: Mapping[str, str]) -> socket.socket:
    """Start an agent, unless another session does so meanwhile; connect to it.

    :raises FarSideError: where none comes up.
    """
    deadline = time.monotonic() + STARTING
    try:
        lock = os.open(f"{path}.starting", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FarSideError(f"the agent can't be started: {error}") from None
    try:
        while not _locked(lock):
            if time.monotonic() > deadline:
                raise FarSideError("another session is starting the agent, and does not end")
            time.sleep(0.02)
        connection = _connect(path)
        return connection if connection is not None else _spawn(path, python, environ, deadline)
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def log_of(path: Path) -> Path:
    """Name the file that the agent behind a socket writes its log to."""
    return path.with_suffix(".log")


def _spawn(path: Path, python: str, environ: Mapping[str, str], deadline: float) -> socket.socket:
    log = log_of(path)
    try:
        if log.exists() and log.stat().st_size > LOG_LIMIT:
            log.unlink()
        with log.open("ab") as out:
            done = subprocess.run(
                [python, "-P", "-m", "pytest_remotegpu.worker.agent", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(environ),
                cwd="/",
                start_new_session=True,
                timeout=max(deadline - time.monotonic(), 1.0),
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FarSideError(f"the agent can't be started: {error}") from None
    connection = _connect(path)
    if connection is None:
        tail = "".join(log.read_text(errors="replace").strip().splitlines()[-1:])
        raise FarSideError(
            f"the agent can't be started (exit status {done.returncode}): {tail or log}"
        )
    return connection


@dataclass(frozen=True)
class Wish:
    """What a session wants of an agent.

    :ivar python: the interpreter. :ivar environ: the session's variables.
    :ivar root: the project's folder, no module of which may be warm.
    :ivar preload: modules to import ahead. :ivar idle: seconds after which the agent may go.
    """

    python: str
    environ: dict[str, str]
    root: str
    preload: tuple[str, ...]
    idle: float

    def request(self) -> tuple[Path, dict[str, Any]]:
        """Give the socket of the agent, and what to ask it.

        :raises FarSideError: where no agent can be had.
        """
        import resource  # noqa: PLC0415 -- not there on Windows, where this module is imported too

        limits = {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS}
        return _path(folder(self.environ), self.python, limits), {
            "word": "open",
            "environ": self.environ,
            "root": self.root,
            "preload": list(self.preload),
            "idle": self.idle,
            "limits": limits,
            "cpus": sorted(os.sched_getaffinity(0)),
        }


class Begun:
    """A worker that an agent was asked for before anybody knew whether one would be needed.

    :param connection: on which it was asked. :param path: of the agent's socket.
    :param request: what was asked. :param logged: the size of the agent's log before that.
    """

    def __init__(
        self, connection: socket.socket, path: Path, request: dict[str, Any], logged: int
    ) -> None:
        self._connection: socket.socket | None = connection
        self._asked = path, request
        self._logged = logged

    def take(self, path: Path, request: dict[str, Any]) -> WarmChannel | None:
        """Give the worker, once, if this very thing was asked for and the agent had one ready.

        :raises FarSideError: where the agent does not answer.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return None
        if self._asked == (path, request):
            try:
                answer, rest = _answer(connection)
            except FarSideError:
                connection.close()
                raise
            if "pid" in answer:
                return WarmChannel(connection, rest, answer, log_of(path), self._logged)
        _let_go(connection)
        return None

    def close(self) -> None:
        """End a worker that nobody has taken; it and all of its own is gone then."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _let_go(connection)


def _let_go(connection: socket.socket) -> None:
    """Say that nothing comes, and wait until the other end has gone, which it does at once."""
    connection.settimeout(LETTING_GO)
    with connection, contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(CHUNK):
            pass


def begin(wish: Wish, about: str) -> Begun | None:
    """Ask for a worker without waiting for it.

    :param about: what people see of it.
    :return: ``None`` where no agent is there at once.
    """
    try:
        path, request = wish.request()
    except FarSideError:
        return None
    logged = _size(log_of(path))
    connection = _connect(path, AHEAD)
    if connection is None:
        return None
    try:
        _ask(connection, {**request, "about": about, "ahead": True})
    except OSError:
        connection.close()
        return None
    connection.settimeout(ANSWER)
    return Begun(connection, path, request, logged)


def open_worker(wish: Wish, about: str, begun: Begun | None = None) -> WarmChannel:
    """Have the agent start a worker.

    :param about: what people see of it. :param begun: one that was asked for already.
    :raises FarSideError: where that can't be done.
    """
    path, request = wish.request()
    taken = begun.take(path, request) if begun is not None else None
    if taken is not None:
        return taken
    for _attempt in range(3):
        connection = _connect(path) or _started(path, wish.python, wish.environ)
        logged = _size(log_of(path))
        try:
            answer, rest = _exchange(connection, {**request, "about": about})
        except FarSideError:
            connection.close()
            raise
        if "pid" in answer:
            return WarmChannel(connection, rest, answer, log_of(path), logged)
        connection.close()
        if not answer.get("stale"):
            raise FarSideError(f"the agent refuses: {answer.get('error')}")
    raise FarSideError("the agent is out of date, and no other one comes up")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class WarmChannel:
    """The connection to a worker of the agent.

    :param rest: what it has sent already. :param answer: the agent's, with the process ids.
    :param log: the agent's log. :param logged: its size when the worker was started.
    """

    def __init__(
        self, connection: socket.socket, rest: bytes, answer: dict[str, Any], log: Path, logged: int
    ) -> None:
        self._connection = connection
        self._rest = rest
        self._log, self._logged = log, logged
        self.pid = int(answer["pid"])
        self.departs = True
        self.passing = True  # the agent has started it, so another one can be
        self.command = [f"the agent, process {answer['agent']}"]
        connection.settimeout(None)
        try:
            self._process = os.pidfd_open(self.pid)
        except OSError:
            self._process = -1

    def send(self, data: bytes) -> None:
        """Write to the worker.

        :raises FarSideError: where it has gone.
        """
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise FarSideError(f"the worker takes no input any more: {error}") from error

    def frames(self) -> Iterator[bytes]:
        """Yield what the worker writes until it closes the connection."""
        if self._rest:
            yield self._rest
        with contextlib.suppress(OSError):
            while chunk := self._connection.recv(CHUNK):
                yield chunk

    def stop(self) -> None:
        """Close the worker's input, which ends it and all it started; then make sure."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._signal(number)
            if self._has_ended(GRACE):
                break
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            if self._process >= 0:
                signal.pidfd_send_signal(self._process, number)

    def _has_ended(self, within: float) -> bool:
        return self._process < 0 or bool(select.select([self._process], [], [], within)[0])

    def diagnosis(self) -> str:
        """Say how the worker ended, with what the agent's log has of it."""
        said = b""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(self._logged)
            said = log.read(2**14)
        state = "has ended" if self._has_ended(GRACE) else "still runs"
        text = said.decode("utf-8", "replace").strip()
        return f"the worker, process {self.pid}, {state}" + (f"\n{text}" if text else "")

    def __del__(self) -> None:
        if self._process >= 0:
            with contextlib.suppress(OSError):
                os.close(self._process)
        self._connection.close()
