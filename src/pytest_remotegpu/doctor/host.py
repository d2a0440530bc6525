"""Checks of the host: locks of cards, the warm process, space, limits.

Knows files, limits and the warm process's answer; no card and no torch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pytest_remotegpu import agents, locks
from pytest_remotegpu.agents import Agent
from pytest_remotegpu.backends import warm
from pytest_remotegpu.doctor.check import Check, fail, ok, warn
from pytest_remotegpu.errors import FarSideError

if sys.platform != "win32":
    import resource

__all__ = [
    "check_agent", "check_leases", "check_limits", "check_shared_memory", "check_socket",
    "check_space", "examine",
]  # fmt: skip

GIB: Final = 2**30
MIB: Final = 2**20
LEAST_SPACE: Final = 200 * MIB
LITTLE_SPACE: Final = 2 * GIB
LITTLE_SHARED: Final = GIB
"""Below it, several processes with data loaders or NCCL run out; Docker gives 64 MiB."""
FEW_FILES: Final = 1024
FEW_PROCESSES: Final = 1024
LITTLE_ADDRESS_SPACE: Final = 256 * GIB
"""CUDA reserves addresses for the memory of all cards and the host's."""
STOP: Final = f"{sys.executable} -m pytest_remotegpu stop"


def check_leases(folder: Path = locks.FOLDER) -> Check:
    """Check the folder in which all users of the host lock cards."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        if os.access(folder.parent, os.W_OK | os.X_OK):
            return ok("leases", f"{folder} is made when the first card is leased")
        return fail("leases", f"{folder} is not there and can't be made", f"mkdir -m 1777 {folder}")
    except OSError as error:
        return fail("leases", f"{folder} can't be looked at: {error}", f"ls -ld {folder}")
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if not sticky or not os.access(folder, os.W_OK | os.X_OK):
        return fail(
            "leases",
            f"{folder} is no folder that all may add to and nobody else may take from",
            f"remove it, or: chmod 1777 {folder}",
        )
    wrong = [path.name for path in folder.iterdir() if not path.is_file() or path.is_symlink()]
    if wrong:
        return fail("leases", f"{folder} has {wrong[0]!r}, which is no lock", "remove that")
    return ok("leases", f"{folder}")


# the warm process


def check_socket(environ: Mapping[str, str]) -> Check:
    """Check whether a warm process could listen, and be found."""
    try:
        top = warm.folder(environ)
    except FarSideError as error:
        return warn("socket", str(error), "until then each session starts its own processes")
    try:
        _try_socket(top / f"{'x' * 12}.try")
    except OSError as error:
        return warn(
            "socket",
            f"{top} takes no socket: {error}",
            "set XDG_RUNTIME_DIR to a folder of yours with a short name, on a local disk",
        )
    return ok("socket", f"{top}")


def _try_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as probe:
        path.unlink(missing_ok=True)
        try:
            probe.bind(str(path))
        finally:
            path.unlink(missing_ok=True)


def check_agent(agent: Agent, now: float) -> Check:
    """Check one warm process.

    :param now: seconds since the epoch.
    """
    if agent.state == agents.DEAD:
        return ok("agent", f"{agent.socket} is left of one that was killed; the next replaces it")
    if agent.state == agents.SILENT:
        text = f"process {agent.pid} does not answer at {agent.socket}; sessions do without it"
        return fail("agent", text, STOP)
    python, since = agent.said.get("python", "?"), float(agent.said.get("since", now))
    text = f"process {agent.pid} of {python} for {now - since:.0f} s, {len(agent.workers)} workers"
    if agent.said.get("stale"):
        return warn("agent", f"{text}; this package has changed since", "nothing, the next session"
                    f" starts a new one; at once: {STOP}")  # fmt: skip
    return ok("agent", text)


def _agents(environ: Mapping[str, str]) -> Iterator[Check]:
    yield check_socket(environ)
    found: list[Agent] = []
    with contextlib.suppress(FarSideError):  # that is the finding above
        found = agents.find(environ)
    for agent in found:
        yield check_agent(agent, time.time())
    if environ.get("CI"):
        yield ok("agent", "CI is set: sessions neither use nor leave one")
    elif not found:
        yield ok("agent", "none runs; the next session of --remote=local starts one")


# space and limits


def check_space(name: str, folder: Path, free: int, *, writable: bool) -> Check:
    """Check a folder that files are written to.

    :param name: of what it is for. :param free: bytes.
    """
    text = f"{name}: {free / GIB:.1f} GiB free in {folder}"
    if not writable:
        return fail("space", f"{name}: {folder} can't be written", "let this user write there")
    if free < LEAST_SPACE:
        return fail("space", text, "make room")
    return warn("space", text, "make room") if free < LITTLE_SPACE else ok("space", text)


def _space(name: str, folder: Path) -> Check:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return check_space(name, folder, free, writable=os.access(folder, os.W_OK))


def check_limits(limits: Mapping[str, int], *, root: bool) -> Iterator[Check]:
    """Check this process's limits.

    :param limits: the soft ones by name; -1 for none. :param root: whether the user is root, whose
        processes are not counted.
    """
    wanted = {
        "NOFILE": (FEW_FILES, "open files", "n"),
        "NPROC": (0 if root else FEW_PROCESSES, "processes", "u"),
        "AS": (LITTLE_ADDRESS_SPACE, "bytes of addresses, which CUDA reserves lavishly", "v"),
    }
    low = {name: limits[name] for name in wanted if 0 <= limits.get(name, -1) < wanted[name][0]}
    for name, value in low.items():
        least, words, letter = wanted[name]
        enough = least if letter != "v" else "unlimited"
        yield warn("limits", f"{value} {words}", f"ulimit -{letter} {enough}")
    if not low:
        yield ok("limits", "files, processes and addresses suffice")


def check_shared_memory(size: int | None) -> Check:
    """Check ``/dev/shm``.

    :param size: bytes; ``None`` where it is not there.
    """
    fix = "in a container: --shm-size=8g or --ipc=host; else: mount -o remount,size=8g /dev/shm"
    if size is None:
        return warn("shm", "there is no /dev/shm, which NCCL and data loaders need", fix)
    text = f"{size / GIB:.1f} GiB of shared memory"
    return ok("shm", text) if size >= LITTLE_SHARED else warn("shm", text, fix)


def _limits() -> dict[str, int]:
    names = ("NOFILE", "NPROC", "AS")
    soft = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in names}
    return {name: -1 if value == resource.RLIM_INFINITY else value for name, value in soft.items()}


def _size_of_shared() -> int | None:
    try:
        return shutil.disk_usage("/dev/shm").total  # noqa: S108 -- this very place
    except OSError:
        return None


def examine(environ: Mapping[str, str]) -> Iterator[Check]:
    """Make all checks of this module; elsewhere than on Linux, there is little to check."""
    caches = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pytest-remotegpu")
    linux = sys.platform == "linux"
    if linux:
        yield check_leases()
        yield from _agents(environ)
    yield _space("temporary files", Path(tempfile.gettempdir()))
    yield _space("compiled kernels", caches)
    if linux:
        yield from check_limits(_limits(), root=os.geteuid() == 0)
        yield check_shared_memory(_size_of_shared())
