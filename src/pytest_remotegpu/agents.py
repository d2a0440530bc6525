"""This user's warm processes as the command sees them: found by their sockets, asked, ended.

Knows what the agent answers, and a process by its number; must not know sessions or pytest.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends import warm
from pytest_remotegpu.errors import FarSideError

if sys.platform != "win32":
    import fcntl

__all__ = ["DEAD", "SERVES", "SILENT", "Agent", "end", "find", "logs", "old_logs"]

SERVES, SILENT, DEAD = "serves", "silent", "dead"
PATIENCE: Final = 3.0
"""Seconds that an agent has to answer; one that is well takes a thousandth of that."""
ENDING: Final = 15.0
"""Seconds that it has to end when it is told to; its workers' tear-downs are in there."""
KEPT: Final = 7 * 86400.0
"""Seconds for which the log of an agent that is gone may be of use."""
MODULE: Final = b"pytest_remotegpu.worker.agent"


@dataclass(frozen=True)
class Agent:
    """One socket, and who is behind it.

    :ivar state: :data:`SERVES`, :data:`SILENT` for a process that does not answer, :data:`DEAD` for
        a socket without a process.
    :ivar pid: 0 where it is dead. :ivar said: what it tells of itself, where it serves.
    :ivar workers: the workers that serve sessions now, as it tells; of a silent one their numbers.
    """

    socket: Path
    state: str
    pid: int = 0
    said: Mapping[str, Any] = field(default_factory=dict)
    workers: tuple[Mapping[str, Any], ...] = ()

    @property
    def log(self) -> Path:
        """The file of its log, which need not be there."""
        return warm.log_of(self.socket)

    @property
    def zygotes(self) -> list[Mapping[str, Any]]:
        """The processes that are kept warm."""
        return list(self.said.get("zygotes", ()))


def find(environ: Mapping[str, str], patience: float = PATIENCE) -> list[Agent]:
    """Find the agents of this user, one for each interpreter.

    :param environ: says where the sockets are. :param patience: seconds to wait for an answer.
    :raises FarSideError: where the folder of the sockets can't be had.
    """
    if sys.platform != "linux":
        return []
    return [_look(path, patience) for path in warm.sockets(environ)]


def logs(environ: Mapping[str, str]) -> list[Path]:
    """List the logs of this user's agents, also of those that have ended.

    :raises FarSideError: where their folder can't be had.
    """
    return sorted(warm.folder(environ).glob("*.log")) if sys.platform == "linux" else []


def old_logs(environ: Mapping[str, str], now: float, *, remove: bool) -> list[Path]:
    """List the logs of agents that are gone and have said nothing for a week.

    :param now: seconds since the epoch. :param remove: whether to take them away.
    :raises FarSideError: where their folder can't be had.
    """
    found = []
    served = {warm.log_of(path) for path in warm.sockets(environ)} if logs(environ) else set()
    for path in logs(environ):
        with contextlib.suppress(OSError):
            if path not in served and now - path.stat().st_mtime > KEPT:
                if remove:
                    path.unlink()
                found.append(path)
    return found


def _look(path: Path, patience: float) -> Agent:
    pid = warm.server(path)
    if not pid:
        return Agent(path, DEAD)
    try:
        said = warm.ask(path, {"word": "ps"}, patience)
    except FarSideError:
        if not _is_agent(pid):
            return Agent(path, DEAD)
        return Agent(path, SILENT, pid, workers=tuple({"pid": child} for child in _workers(pid)))
    return Agent(path, SERVES, pid, said, tuple(said.get("workers", ())))


def _workers(pid: int) -> list[int]:
    """List the workers of an agent: they are forks of it."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [child for child in map(int, task.read_text().split()) if _is_agent(child)]
    return found


def _is_agent(pid: int) -> bool:
    """Say whether a process is what it should be; a number can be another process's by now."""
    try:
        return MODULE in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def end(agent: Agent) -> bool:
    """End an agent and all that it runs; take away its socket.

    One that does not answer is killed, and each of its workers is told to end.

    :return: whether it is gone.
    """
    gone = agent.state == DEAD or _end_process(agent)
    if gone:
        _remove(agent.socket)
    return gone


def _end_process(agent: Agent) -> bool:
    try:
        process = os.pidfd_open(agent.pid)
    except OSError:
        return True
    try:
        if agent.state == SERVES:
            with contextlib.suppress(FarSideError):  # it may have ended meanwhile
                warm.ask(agent.socket, {"word": "stop"})
            if _has_ended(process, ENDING):
                return True
        return not _is_agent(agent.pid) or _kill(agent, process)
    finally:
        os.close(process)


def _kill(agent: Agent, process: int) -> bool:
    for worker in agent.workers:
        with contextlib.suppress(OSError):
            os.kill(int(worker["pid"]), signal.SIGTERM)
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(process, signal.SIGKILL)
    return _has_ended(process, ENDING)


def _has_ended(process: int, within: float) -> bool:
    return bool(select.select([process], [], [], within)[0])


def _remove(path: Path) -> None:
    """Take away a socket, unless an agent has begun to serve it; it holds this lock for life."""
    with contextlib.suppress(OSError), path.with_name(f"{path.name}.running").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
