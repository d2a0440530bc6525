"""A user's home of warm processes, for tests: its agents, known, and ended with the test.

Knows the agents' sockets and the system's processes, nothing of an agent's inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Warmth", "alive", "descendants", "warmth"]


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and is not buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """List the living descendants of a process."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return [child for child in found if alive(child)]


class Warmth:
    """One user's folder of sockets.

    :ivar runtime: what ``XDG_RUNTIME_DIR`` must be.
    """

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime

    @property
    def sockets(self) -> list[Path]:
        """The sockets that lie there."""
        return sorted(self.runtime.glob("pytest-remotegpu/*.sock"))

    def ask(self, word: str, path: Path | None = None) -> dict[str, Any]:
        """Ask the agent something; where there are several, the one behind a socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(path or self.sockets[0]))
            connection.sendall(json.dumps({"word": word}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and (chunk := connection.recv(2**16)):
                answer += chunk
        found: dict[str, Any] = json.loads(answer)
        return found

    @property
    def agent(self) -> int:
        """The agent's process id."""
        return int(self.ask("ps")["agent"])

    def zygotes(self) -> list[int]:
        """List the process ids of the zygotes."""
        return [int(zygote["pid"]) for zygote in self.ask("ps")["zygotes"]]

    def log(self) -> str:
        """Read the agent's log."""
        return "".join(p.read_text() for p in self.runtime.glob("pytest-remotegpu/*.log"))

    def is_tidy(self, within: float = 5.0) -> bool:
        """Say whether nothing but the agent and its zygotes is left, in time."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            found = self.ask("ps")
            known = {int(zygote["pid"]) for zygote in found["zygotes"]}
            if not found["workers"] and set(descendants(int(found["agent"]))) <= known:
                return True
            time.sleep(0.05)
        return False

    def close(self) -> None:
        """End the agent, however it is."""
        for path in self.sockets:
            agent = _holder(path)
            if agent:
                for pid in [agent, *descendants(agent)]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.runtime, ignore_errors=True)


def _holder(path: Path) -> int:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect(str(path))
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(raw[:4], "little")
    return 0


@contextlib.contextmanager
def warmth() -> Iterator[Warmth]:
    """Make a folder that is short enough for a socket's name."""
    home = Warmth(Path(tempfile.mkdtemp(prefix="rt-")))
    try:
        yield home
    finally:
        home.close()
