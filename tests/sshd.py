"""A real SSH server on loopback, an ordinary process of this user, and an ``ssh`` that knows it.

All that belongs to it lies in one folder. Of its hosts ``gpubox`` works and pretends two GPUs,
``closedbox`` refuses the connection, and ``strangebox`` refuses the key. Knows OpenSSH and /proc,
nothing of the package.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

__all__ = ["HOST", "Sshd", "gpubox", "server", "serving", "why_not"]

HOST: Final = "gpubox"
PATIENCE: Final = 20.0
"""Seconds that the server may take to listen, or to end."""
PROGRAMS: Final = {
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
}
_SBIN: Final = ("/usr/sbin", "/usr/local/sbin", "/sbin")

SERVER: Final = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/sshd.pid
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PermitUserRC no
StrictModes no
UsePAM no
UseDNS no
PrintMotd no
LogLevel VERBOSE
SetEnv {variables}
"""

CLIENT: Final = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  HostKeyAlias {name}
  User {user}
  IdentityFile {folder}/{key}
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
  SendEnv {sent}
"""

WRAPPER: Final = """\
#!/bin/sh
printf '%s\\n' "$*" >> {folder}/calls
exec {ssh} -F {folder}/ssh_config "$@"
"""

PYTHON: Final = """\
#!/bin/sh
exec {python} "$@"
"""


def program(name: str) -> str | None:
    """Find a program of OpenSSH; the server often lies where only root's PATH leads."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *_SBIN)))


def why_not() -> str:
    """Say why no server can be started here, and the way out; nothing where one can."""
    if sys.platform != "linux":
        return "the far side is a Linux host, and this is none"
    missing = sorted({package for name, package in PROGRAMS.items() if program(name) is None})
    return f"OpenSSH is incomplete here: apt-get install {' '.join(missing)}" if missing else ""


def _found(name: str) -> str:
    path = program(name)
    assert path is not None, why_not()
    return path


class Sshd:
    """Makes keys and configuration in a folder, and starts the server.

    :param folder: an existing folder for everything; its path is without blanks.
    :param accepted: names of variables, or patterns of them, that its clients may send along.
    :ivar home: ``HOME`` of those who log in. :ivar temp: their ``TMPDIR``.
    :ivar path: a ``PATH`` on which ``ssh`` knows the hosts.
    """

    def __init__(self, folder: Path, *, accepted: str = "FAR_*") -> None:
        self._folder = folder
        self._mark = f"SSHD_TRACE={uuid.uuid4().hex}"
        self.home, self.temp = folder / "home", folder / "tmp"
        for part in (self.home, self.home / "bin", self.temp, folder / "client"):
            part.mkdir()
        self._script(
            self.home / "bin" / "python3", PYTHON.format(python=shlex.quote(sys.executable))
        )
        self._script(folder / "client" / "ssh", WRAPPER.format(folder=folder, ssh=_found("ssh")))
        for key in ("host", "user", "stranger"):
            keygen = [
                _found("ssh-keygen"),
                *["-q", "-t", "ed25519", "-f"],
                str(folder / key),
                "-N",
                "",
            ]
            subprocess.run(keygen, check=True, timeout=PATIENCE)
        self.path = os.pathsep.join((str(folder / "client"), os.environ["PATH"]))
        self._closed = socket.socket()
        self._closed.bind(("127.0.0.1", 0))
        self._accepted = accepted
        self._process = self._start()

    def _script(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    # the server

    def _start(self) -> subprocess.Popen[bytes]:
        if os.getuid() == 0:  # where no service manager has started one yet
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for _ in range(5):  # somebody else may take the port before the server does
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            self._configure(port)
            with (self._folder / "log").open("wb") as log:
                command = [_found("sshd"), "-D", "-e", "-f", str(self._folder / "sshd_config")]
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
            if self._listens(process):
                return process
        raise AssertionError(f"sshd does not start:\n{self.log()}")

    def _configure(self, port: int) -> None:
        folder = self._folder
        variables = {
            "HOME": self.home,
            "TMPDIR": self.temp,
            "PATH": f"{self.home}/bin:/usr/local/bin:/usr/bin:/bin",
            "PYTEST_REMOTEGPU_PRETEND_GPUS": 2,
            **dict([self._mark.split("=")]),
        }
        quoted = " ".join(f'"{name}={value}"' for name, value in variables.items())
        server = SERVER.format(port=port, folder=folder, variables=quoted)
        server += f"AcceptEnv {self._accepted}\n"
        (folder / "sshd_config").write_text(server, encoding="utf-8")
        user, closed = pwd.getpwuid(os.getuid()).pw_name, self._closed.getsockname()[1]
        hosts = (
            (HOST, port, "user"),
            ("closedbox", closed, "user"),
            ("strangebox", port, "stranger"),
        )
        parts = [
            CLIENT.format(name=n, port=p, key=k, user=user, folder=folder, sent=self._accepted)
            for n, p, k in hosts
        ]
        (folder / "ssh_config").write_text("".join(parts), encoding="utf-8")
        key = (folder / "host.pub").read_text(encoding="utf-8")
        known = "".join(f"{name} {key}" for name, *_ in hosts)
        (folder / "known_hosts").write_text(known, encoding="utf-8")

    def _listens(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            if "Server listening on" in self.log():
                return True
            time.sleep(0.01)
        process.kill()
        process.wait()
        return False

    def close(self) -> None:
        """End the server, its connections, and whatever is left of what was started over them."""
        for pid in (*_descendants(self._process.pid), *self.living()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._closed.close()

    # what a test may look at

    def log(self) -> str:
        """Give what the server has logged."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def calls(self) -> list[str]:
        """Give the arguments of each call of ``ssh`` so far."""
        calls = self._folder / "calls"
        return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []

    def living(self) -> list[int]:
        """List the processes that somebody has started over a connection."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def leavings(self) -> list[str]:
        """List what is left in the far folder for temporary files, but for pytest's own."""
        return sorted(p.name for p in self.temp.iterdir() if not p.name.startswith("pytest-of-"))


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text(encoding="ascii").split():
            found += [int(child), *_descendants(int(child))]
    return found


@contextlib.contextmanager
def serving(folder: Path, *, accepted: str = "FAR_*") -> Iterator[Sshd]:
    """Have a server while the block runs."""
    server = Sshd(folder, accepted=accepted)
    try:
        yield server
    finally:
        server.close()


# fixtures, for the conftests of folders whose tests need a server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Have one server for all tests."""
    if reason := why_not():
        pytest.skip(reason)
    with serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def gpubox(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """Give the server, whose hosts ``ssh`` knows meanwhile; nothing may be left on it."""
    monkeypatch.setenv("PATH", server.path)
    yield server
    assert (server.living(), server.leavings()) == ([], [])
