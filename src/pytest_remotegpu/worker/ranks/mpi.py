"""What Open MPI's ``mpirun`` gives its processes, for ranks that are forked from a warm one.

``mpirun`` starts a stand-in for each rank, which tells its variables and waits; the rank itself has
these variables, and is to MPI what it would be there. Knows no rank's inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from pytest_remotegpu import leftovers
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.worker.process import nameless_file
from pytest_remotegpu.worker.ranks.variables import cleaned

__all__ = ["Mpirun"]

PATIENCE: Final = 30.0
"""Seconds in which all stand-ins must have come."""
END: Final = 3.0
"""Seconds in which mpirun ends by itself once all ranks have."""
OF_MPI: Final = re.compile(r"(OMPI|OPAL|ORTE|PMIX|PRTE|MPI)_.*")
STAND_IN: Final = """
import json, os, socket, sys
channel = socket.socket(socket.AF_UNIX)
channel.connect("\\0" + sys.argv[1])
channel.sendall(json.dumps(dict(os.environ)).encode())
channel.shutdown(socket.SHUT_WR)
raise SystemExit(0 if channel.recv(1) else 1)
"""
LACKS: Final = (
    "launcher='mpirun' needs Open MPI's mpirun on that host, and {}; "
    "on Debian and Ubuntu: apt-get install openmpi-bin"
)


class Mpirun:
    """One ``mpirun`` and its stand-ins.

    :param world: how many ranks there are. :param environ: the variables of the user's session.
    :param folder: the worker's, for what mpirun keeps in files, and for a note of its job.
    :ivar listener: a socket that ranks must not have.
    :raises FarSideError: where there is no mpirun that will do.
    """

    def __init__(self, world: int, environ: Mapping[str, str], folder: str) -> None:
        self._world = world
        self._folder = folder
        self._channels: list[socket.socket] = []
        environ = cleaned(environ)
        command = shutil.which("mpirun", path=environ.get("PATH"))
        if command is None:
            raise FarSideError(LACKS.format(f"there is none in PATH={environ.get('PATH', '')!r}"))
        said = subprocess.run(
            [command, "--version"], capture_output=True, text=True, check=False, env=environ
        ).stdout
        if "Open MPI" not in said and "OpenRTE" not in said:
            first = said.strip().partition("\n")[0]
            raise FarSideError(LACKS.format(f"{command} says it is {first!r}"))
        name = f"pytest-remotegpu-mpi-{os.getpid()}"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"\0{name}")
        self.listener.listen(world)
        self._said = nameless_file("what mpirun says")
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        words = ["--oversubscribe", "--bind-to", "none", "-np", str(world)]
        stand_in = [sys.executable, "-I", "-S", "-c", STAND_IN, name]
        self._process = subprocess.Popen(
            [command, *root, *words, *stand_in],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env={**environ, "TMPDIR": folder},  # if it is killed, its files go with the folder
            start_new_session=True,
        )

    def variables(self) -> list[dict[str, str]]:
        """Wait for the stand-ins; give what MPI tells each rank.

        :raises FarSideError: where they do not come.
        """
        found: dict[int, dict[str, str]] = {}
        self.listener.settimeout(PATIENCE)
        try:
            while len(found) < self._world:
                channel, _ = self.listener.accept()
                self._channels.append(channel)
                with channel.makefile("rb") as file:
                    told = json.loads(file.read())
                given = {name: text for name, text in told.items() if OF_MPI.fullmatch(name)}
                found[int(given["OMPI_COMM_WORLD_RANK"])] = given
                if (job := given.get("PMIX_NAMESPACE", "")).isdecimal() and job.isascii():
                    leftovers.note_shared(self._folder, int(job))
        except (OSError, ValueError, KeyError):
            text = os.pread(self._said, 2**16, 0).decode("utf-8", "replace").strip()
            self.close()
            raise FarSideError(
                f"mpirun has not started {self._world} ranks within {PATIENCE:g} s: "
                f"{text or 'it said nothing'}"
            ) from None
        return [found[rank] for rank in range(self._world)]

    def close(self, *, well: bool = False) -> None:
        """End it, and remove what killed ranks have left in shared memory.

        :param well: whether all ranks have come to their end by themselves.
        """
        for channel in self._channels:
            with contextlib.suppress(OSError):
                channel.sendall(b"." if well else b"")
            channel.close()
        self.listener.close()
        try:
            self._process.wait(END if well else 0.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        leftovers.free_shared(self._folder)
