"""Faults that concern a session as a whole: what can't be loaded there, limits, cards, a full disk.

Each has a project of its own. Knows what it must come to, and of processes only which locks a card
has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from session.running import until

from .kinds import CARDS, CPU, Draw, Expected, Kind, Verdicts

__all__ = ["KINDS"]

HEAD: Final = """
import ctypes, os, pathlib, signal, tempfile, threading, time
import pytest

FAR = "REMOTEGPU_WORKER" in os.environ
pytestmark = pytest.mark.gpu
if FAR:
    with open("imports.txt", "a") as file:
        print(__name__, file=file)
"""

BROKEN: Final = """
import os, time

def helper():
    time.sleep({delay})
    raise RuntimeError("breaks only there")

if "REMOTEGPU_WORKER" in os.environ:
    helper()
"""

GOOD: Final = (
    HEAD
    + """
@pytest.mark.parametrize("n", range(2))
def test_good(n): pass
"""
)
HERE: Final = "def test_here(): pass\n"

PASSED: Final = ("PASSED",)
FAILED: Final = ("FAILED",)
ERROR: Final = ("ERROR",)
NOTHING: Final = ("",)
PLACES: Final = ("call", "setup", "teardown")
"""Where a project of :func:`_acts` does what it does."""
GOOD_ONES: Final[Mapping[str, Verdicts]] = {f"test_good.py::test_good[{n}]": PASSED for n in (0, 1)}
HERE_ONE: Final[Mapping[str, Verdicts]] = {"test_here.py::test_here": PASSED}


def _project(files: Mapping[str, str]) -> Callable[[Draw], Mapping[str, str]]:
    """Write a project in which ``DELAY`` stands for what is drawn."""
    return lambda draw: {
        name: text.replace("DELAY", str(draw.delay)) for name, text in files.items()
    }


def _always(expected: Expected) -> Callable[[Draw], Expected]:
    return lambda _draw: expected


def _bad(source: str) -> str:
    return HEAD + textwrap.dedent(source)


def _around(act: str, draw: Draw) -> str:
    """Write a fixture of which one side does *act*, or a test that does, by the draw's moment."""
    setup, call, teardown = (
        act if draw.moment == moment else "pass" for moment in ("setup", "call", "teardown")
    )
    return f"""
@pytest.fixture
def own(artifacts_dir):
    {setup}
    yield
    {teardown}

def test_before(): pass

def test_acts(own):
    {call}

def test_after(): pass
"""


def _acts(source: str, act: str) -> Callable[[Draw], Mapping[str, str]]:
    """Write a project whose fixture or test does *act*, which *source* defines."""
    return lambda draw: {
        "test_far.py": HEAD + source.replace("DELAY", str(draw.delay)) + _around(act, draw)
    }


# ---------------------------------------------------------------- what can't be loaded there


def _unloadable(name: str, file: str, where: str, *args: str) -> Kind:
    """Make a kind in which a file can't be loaded there; *where* must be in the traceback."""
    return Kind(
        name,
        ("loading",),
        lambda draw: {file: BROKEN.format(delay=draw.delay), "test_good.py": GOOD},
        _always(
            Expected(
                (4,),
                dict.fromkeys(GOOD_ONES, NOTHING),
                ("RuntimeError: breaks only there", where),
            )
        ),
        args=args,
    )


FAR_CONFTEST = _unloadable("far-conftest", "conftest.py", r"conftest\.py:6: in helper")
FAR_PLUGIN = _unloadable("far-plugin", "a_plugin.py", r"a_plugin\.py", "-p", "a_plugin")

# ---------------------------------------------------------------- bounded restarts

CRASHING_IMPORT = Kind(
    "crashing-import",
    ("import",),
    _project(
        {
            "test_bad.py": _bad("""
                if FAR:
                    time.sleep(DELAY)
                    ctypes.string_at(0)

                @pytest.mark.parametrize("n", range(3))
                def test_bad(n): pass
                """),
            "test_good.py": GOOD,
            "test_here.py": HERE,
        }
    ),
    _always(
        Expected(
            (1, 2),
            {**{f"test_bad.py::test_bad[{n}]": ERROR for n in range(3)}, **GOOD_ONES, **HERE_ONE},
            ("SIGSEGV", r'test_bad\.py", line 13,? in <module>'),
            lines={"imports.txt": (3, 5)},
        )
    ),
)

ALL_CRASH = Kind(
    "all-crash",
    ("call",),
    _project(
        {
            "test_bad.py": _bad("""
                @pytest.mark.parametrize("n", range(5))
                def test_bad(n):
                    with open("ran.txt", "a") as file:
                        print(n, file=file)
                    time.sleep(DELAY)
                    os.kill(os.getpid(), (signal.SIGKILL, signal.SIGSEGV)[n % 2])
                """),
            "test_good.py": GOOD,
        }
    ),
    _always(
        Expected(
            (1,),
            {**{f"test_bad.py::test_bad[{n}]": FAILED for n in range(5)}, **GOOD_ONES},
            ("SIGSEGV", "SIGKILL", "5 failed, 2 passed"),
            lines={"ran.txt": (5, 5)},
        )
    ),
)

# ---------------------------------------------------------------- limits of the run

LIMIT: Final = r"the run limit of 4 s \(--remote-run-timeout\) is reached"

HANG: Final = """
def hang():
    print("last words")
    time.sleep(DELAY)
    threading.Event().wait()
"""

RUN_LIMIT = Kind(
    "run-limit",
    PLACES,
    _acts(HANG, "hang()"),
    lambda draw: Expected(
        (1,),
        {
            "test_far.py::test_before": PASSED,
            "test_far.py::test_acts": ("PASSED ERROR",) if draw.moment == "teardown" else FAILED,
            "test_far.py::test_after": ERROR,
        },
        (f"^timed out: {LIMIT}", "last words", "in hang", f"not run: {LIMIT}"),
    ),
    args=("--remote-run-timeout=4",),
)

RUN_LIMIT_IN_COLLECTION = Kind(
    "run-limit-import",
    ("import",),
    _project(
        {
            "test_far.py": _bad("""
                if FAR:
                    time.sleep(DELAY)
                    threading.Event().wait()

                def test_never(): pass
                """),
            "test_good.py": GOOD,
        }
    ),
    _always(
        Expected(
            (1,),
            dict.fromkeys(["test_far.py::test_never", *GOOD_ONES], ERROR),
            (f"not run: {LIMIT}", f"cause: {LIMIT}"),
        )
    ),
    args=("--remote-run-timeout=4",),
)

# ---------------------------------------------------------------- cards that somebody else has


@contextlib.contextmanager
def _held(uuids: list[str], folder: Path) -> Iterator[None]:
    """Hold cards as a process of another session would."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)
    with contextlib.ExitStack() as stack:
        for name in uuids:
            (folder / name).touch(0o644)
            file = stack.enter_context((folder / name).open())
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
        for name in uuids:
            (folder / name).unlink()


def _hold_cards(running: Any, draw: Draw) -> None:
    with _held(running.home.uuids, running.home.leases):
        time.sleep(draw.delay)
        running.struck = True
        running.end()


RUN_LIMIT_IN_WAIT = Kind(
    "run-limit-cards",
    ("waiting",),
    _project({"test_good.py": GOOD}),
    _always(
        Expected(
            (1,),
            dict.fromkeys(GOOD_ONES, ERROR),
            (f"not run: {LIMIT}", r"waiting for 1 GPU: .* is held by process \d+"),
        )
    ),
    args=("--remote-run-timeout=4",),
    strike=_hold_cards,
    backends=(CARDS,),
)

WAIT_OVER = Kind(
    "wait-over",
    ("waiting",),
    _project({"test_good.py": GOOD}),
    _always(
        Expected(
            (1,),
            dict.fromkeys(GOOD_ONES, ERROR),
            (r"not to be had within 1 s \(--remote-wait\): .* is held by process \d+",),
        )
    ),
    args=("--remote-wait=1",),
    strike=_hold_cards,
    backends=(CARDS,),
)

# ---------------------------------------------------------------- a full disk


def _small_disk() -> list[str]:
    """Give words that run a command with a disk of its own for temporary files; only root can."""
    own = ["unshare", "-m", "sh", "-c"]
    mount = 'mount -t tmpfs -o size=16m none "$TMPDIR"'
    probe = [*own, mount]
    variables = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    with contextlib.suppress(OSError):
        if subprocess.run(probe, env=variables, capture_output=True, check=False).returncode == 0:
            return [*own, f'{mount} && exec "$0" "$@"']
    return _small_files()


def _small_files() -> list[str]:
    """Give words that run a command in which no file may grow large."""
    return ["sh", "-c", 'ulimit -f 16384 && exec "$0" "$@"']


FILL: Final = """
import contextlib

def fill():
    time.sleep(DELAY)
    with open(pathlib.Path(tempfile.gettempdir(), "much"), "wb", buffering=0) as file:
        try:
            for size in (2**20, 2**10, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size):
                        pass
        finally:
            pathlib.Path("filled.txt").write_text("yes")
"""

FILLED: Final = Expected(
    (0,),
    {f"test_far.py::test_{name}": PASSED for name in ("before", "acts", "after")},
    lines={"filled.txt": (1, 1)},
)
FULL_DISK = Kind(
    "full-disk",
    PLACES,
    _acts(FILL, "fill()"),
    _always(FILLED),
    backends=(CPU,),
    fresh=True,
    wrapper=_small_disk,
)
FILE_LIMIT = Kind(
    "file-limit", PLACES, _acts(FILL, "fill()"), _always(FILLED), wrapper=_small_files
)

# ---------------------------------------------------------------- while nothing runs

LATE: Final = """
def late():
    time.sleep(0.3 + DELAY)
    ctypes.string_at(0)

def test_starts():
    threading.Thread(target=late, daemon=True).start()
"""
WAITS: Final = "import time\ndef test_here(): time.sleep(1.5)\n"

IDLE_CRASH = Kind(
    "idle-crash",
    ("idle",),
    _project({"test_a.py": HEAD + LATE, "test_b.py": WAITS, "test_good.py": GOOD}),
    _always(
        Expected(
            (1,),
            {"test_a.py::test_starts": PASSED, "test_b.py::test_here": PASSED, **GOOD_ONES},
            ("SIGSEGV",),
        )
    ),
    args=("--maxfail=99",),
)


def _interrupt_wait(running: Any, draw: Draw) -> None:
    """Press Ctrl-C while the session waits for cards."""
    with _held(running.home.uuids, running.home.leases):
        until(lambda: "waiting for 1 GPU" in running.text, 20)
        time.sleep(draw.delay)
        running.process.send_signal(signal.SIGINT)
        running.struck = True
        if running.end(5) is None:
            running.notes.append("it still waits for cards")


CTRL_C_IN_WAIT = Kind(
    "ctrl-c-cards",
    ("waiting",),
    _project({"test_good.py": GOOD}),
    _always(Expected((2,), dict.fromkeys(GOOD_ONES, NOTHING), ("KeyboardInterrupt",))),
    strike=_interrupt_wait,
    backends=(CARDS,),
)

KINDS: Final = [
    FAR_CONFTEST,
    FAR_PLUGIN,
    CRASHING_IMPORT,
    ALL_CRASH,
    RUN_LIMIT,
    RUN_LIMIT_IN_COLLECTION,
    RUN_LIMIT_IN_WAIT,
    WAIT_OVER,
    FULL_DISK,
    FILE_LIMIT,
    IDLE_CRASH,
    CTRL_C_IN_WAIT,
]
