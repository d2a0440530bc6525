"""Runs one session that meets with a fault, and finds what it leaves on the machine.

A home is one user's surroundings: warm processes, temporary files, cards. Knows the command line,
the system's processes and locks, nothing of the package's inside.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import cardfile
from session.running import until
from warmth import Warmth, alive, descendants

from .judging import Result, complaints
from .kinds import Draw, Kind

__all__ = ["Home", "Running", "home", "meet", "until"]

PATIENCE: Final = 60.0
"""Seconds that a session may take."""
CLEAN: Final = 5.0
"""Seconds after which nothing may be left of it."""
MARK: Final = "REMOTEGPU_FAULTS_HOME"
"""A variable that all processes of a home inherit."""
LEASES: Final = Path("/tmp/pytest-remotegpu-leases")  # noqa: S108 -- where the package has them
UNUSED: Final = ("cacheprovider", "hypothesispytest", "xdist")
"""Plugins that would only cost time."""
HERE: Final = ("-o", "remotegpu_collect=here")
"""All tests are known before anything goes wrong; ``tests/far`` has what can't be collected."""
NUMBERS = itertools.count(uuid.uuid4().int % 2**31)


class Home:
    """One user's surroundings.

    :param folder: an empty one. :ivar warm: the folder of sockets.
    """

    def __init__(self, folder: Path, warm: Warmth) -> None:
        self.folder = folder
        self.warm = warm
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.leases = LEASES
        self._mark = uuid.uuid4().hex
        cards = [cardfile.fake_card(next(NUMBERS)) for _ in range(2)]
        self.uuids = [str(card["uuid"]) for card in cards]
        cardfile.write_cards(folder / "cards.json", cards)
        self._projects = itertools.count(1)

    def project(self) -> Path:
        """Make an empty folder for a project."""
        made = self.folder / f"project-{next(self._projects)}" / "project"
        made.mkdir(parents=True)
        return made

    def environ(self) -> dict[str, str]:
        """Give a session's variables."""
        foreign = ("PYTEST_", "REMOTEGPU", "CUDA_VISIBLE", "CUDA_DEVICE", "TOX_ENV_DIR", "COV_CORE")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign) and k != "CI"}
        return {
            **kept,
            **cardfile.environment(self.folder / "cards.json"),
            "XDG_RUNTIME_DIR": str(self.warm.runtime),
            "TMPDIR": str(self.temporary),
            MARK: self._mark,
        }

    # what is left

    def living(self) -> list[int]:
        """List all processes of this home."""
        found = []
        mark = f"{MARK}={self._mark}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0") and alive(int(entry.name)):
                    found.append(int(entry.name))
        return found

    def states(self) -> list[dict[str, Any]]:
        """Ask each agent what it has: sessions under other limits have one of their own."""
        found = []
        for path in self.warm.sockets:
            with contextlib.suppress(OSError, ValueError):
                found.append(self.warm.ask("ps", path))
        return found

    def state(self) -> dict[str, Any]:
        """Ask the agent that serves a session what it has; nothing where none answers."""
        found = sorted(self.states(), key=lambda state: not state["workers"])
        return next(iter(found), {})

    def litter(self, *, folders: bool = True) -> list[str]:
        """Say what is there now and should not be once no session runs.

        :param folders: whether temporary ones count; who was killed leaves them to others.
        """
        states = self.states()
        agents = [int(state["agent"]) for state in states]
        warm = [int(zygote["pid"]) for state in states for zygote in state["zygotes"]]
        strangers = {*self.living(), *(pid for agent in agents for pid in descendants(agent))}
        found = [_about(pid) for pid in sorted(strangers - {*agents, *warm})]
        served = [worker for state in states for worker in state["workers"]]
        found += [f"an agent still serves {worker}" for worker in served]
        if folders:
            names = [path.name for path in self.temporary.glob("remotegpu-*")]
            owned = tuple(f"remotegpu-{agent}-" for agent in agents)
            found += [f"the folder {name}" for name in names if not name.startswith(owned)]
        return found + [f"the card {uuid} is leased" for uuid in self.uuids if _is_leased(uuid)]

    def left(self, *, folders: bool = True) -> list[str]:
        """Give :meth:`litter` once it is nothing, or after some seconds.

        Looked at once more it might be something: an agent replaces its zygotes when it likes.
        """
        found: list[str] = []

        def clean() -> bool:
            found[:] = self.litter(folders=folders)
            return not found

        until(clean, CLEAN)
        return [f"left: {text}" for text in found]

    def close(self) -> None:
        """End what is left."""
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in self.uuids:
            for path in self.leases.glob(f"{name}*"):
                path.unlink(missing_ok=True)


def _about(pid: int) -> str:
    words = b""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    return f"the process {pid}: {words.decode('utf-8', 'replace')[:120]}"


def _is_leased(uuid: str) -> bool:
    for kind in ("", ".wanted", ".next"):
        with contextlib.suppress(FileNotFoundError), (LEASES / (uuid + kind)).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


@contextlib.contextmanager
def home(folder: Path) -> Iterator[Home]:
    """Make a home below a folder."""
    warm = Warmth(Path(tempfile.mkdtemp(prefix="rt-")))
    made = Home(folder, warm)
    try:
        yield made
    finally:
        made.close()
        warm.close()


class Running:
    """A session at work.

    :ivar home: where it runs. :ivar path: its project. :ivar terminal: whether it has one of its
        own. :ivar notes: what a strike has to complain
        of. :ivar struck: whether it has found what it was to strike.
    """

    def __init__(self, home: Home, path: Path, command: list[str], *, terminal: bool) -> None:
        self.home = home
        self.path = path
        self.terminal = terminal
        self.command = command
        self.output = path.parent / "output.txt"
        self.errors = path.parent / "errors.txt"
        self.tty = -1
        self.notes: list[str] = []
        self.struck = False
        with self.output.open("wb") as out, self.errors.open("wb") as errors:
            theirs = -1
            if terminal:
                self.tty, theirs = os.openpty()
                # the first terminal that a session of processes opens can hang up on it
                words = shlex.join(command)
                command = ["/bin/sh", "-c", f"exec {words} <>{os.ttyname(theirs)} >&0 2>&0"]
            self.process = subprocess.Popen(
                command,
                cwd=path,
                env=home.environ(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        if terminal:
            os.close(theirs)
            threading.Thread(target=self._read_terminal, daemon=True).start()

    def _read_terminal(self) -> None:
        with contextlib.suppress(OSError), self.output.open("ab") as out:
            while self.tty >= 0:
                if select.select([self.tty], [], [], 0.02)[0]:
                    out.write(os.read(self.tty, 2**16))
                    out.flush()

    def hang_up(self) -> None:
        """Close its terminal."""
        tty, self.tty = self.tty, -1
        time.sleep(0.05)  # its reader looks now and then, and must not have it open
        os.close(tty)

    @property
    def text(self) -> str:
        """What it has written so far."""
        return self.output.read_text(errors="replace").replace("\r\n", "\n")

    def wrote(self) -> str:
        """Give what it has written on stderr."""
        return self.errors.read_text(errors="replace")

    @property
    def readable(self) -> bool:
        """Whether it writes each verdict on a line of its own, up to its end."""
        return not self.terminal and "-s" not in self.command

    def reached(self, *names: str) -> None:
        """Wait until its project has left one of these files, or it has ended."""
        paths = [self.path / name for name in names]
        until(
            lambda: any(path.exists() for path in paths) or self.process.poll() is not None,
            PATIENCE,
        )

    def go(self) -> None:
        """Let tests go on that wait."""
        (self.path / "go").touch()

    def end(self, within: float = PATIENCE) -> int | None:
        """Wait for its end, and give its exit status; ``None`` where it did not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(within)
        return None

    def close(self) -> None:
        """End it, however it is."""
        if self.tty >= 0:
            self.hang_up()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def command(draw: Draw, kind: Kind) -> list[str]:
    """Give the command line of a session."""
    words = [sys.executable, "-m", "pytest", "-v", "--color=no"]
    words += [word for name in UNUSED for word in ("-p", f"no:{name}")]
    words += [f"--remote={draw.backend}", "--junitxml=../j.xml", *HERE, *kind.args]
    words += ["--remote-fresh"] if draw.fresh else []
    words += ["-s"] if draw.live else []
    return [*kind.wrapper(), *words]


def meet(home: Home, kind: Kind, draw: Draw) -> tuple[Running, list[str]]:
    """Run a session that meets with a fault.

    :return: the session, which has ended, and in what it or the machine is not as it must be.
    """
    path = home.project()
    for name, source in kind.files(draw).items():
        (path / name).write_text(source)
    answering = len(home.states())
    with Running(home, path, command(draw, kind), terminal=kind.terminal) as running:
        if kind.strike is not None:
            kind.strike(running, draw)
        status = running.end()
        result = Result(status, running.text, running.wrote(), path, readable=running.readable)
        found = running.notes + complaints(result, kind.expected(draw))
        found += home.left(folders=not kind.kills)
    if kind.kills:
        found += _next_session(home, draw)
    elif not until(lambda: len(home.states()) >= answering, CLEAN):
        found.append("an agent does not answer any more")
    return running, found


def _next_session(home: Home, draw: Draw) -> list[str]:
    """Run one to which nothing happens; it takes away what nobody else could."""
    path = home.project()
    (path / "test_far.py").write_text("import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--remote={draw.backend}"]
    with Running(home, path, words, terminal=False) as running:
        status = running.end()
        said = running.text
    bad = [] if status == 0 else [f"the next session ends with {status}: {said[-2000:]}"]
    return bad + home.left()
