"""Tests that do something bad to the process that runs them, at each moment of a session.

Each stands between two innocent ones, whose verdicts show whether the rest went on. Knows how such
a project is written and what it must come to; knows no process.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .kinds import Draw, Expected, Kind, Verdicts

__all__ = [
    "ACTS",
    "AROUND",
    "DIES",
    "HANGS",
    "RAISES",
    "SURVIVES",
    "Act",
    "expected",
    "files",
    "kind",
]

DIES, HANGS, RAISES, SURVIVES = "dies", "hangs", "raises", "survives"

SETUPS: Final = ("setup", "module setup")
TEARDOWNS: Final = ("teardown", "module teardown", "session teardown")
AROUND: Final = ("call", *SETUPS, *TEARDOWNS)
LIMIT: Final = "--remote-timeout=1.5"
LAST_WORDS: Final = "last words of"

HEAD: Final = """
import atexit, ctypes, os, pathlib, resource, signal, subprocess, sys, tempfile, threading, time
import pytest

FAR = "REMOTEGPU_WORKER" in os.environ
MOMENT = {moment!r}

def hostile():
    print("{words} {name}")
    sys.stdout.flush()
    time.sleep({delay})
{code}

def at(moment):
    if FAR and moment == MOMENT:
        hostile()

if FAR:
    with open("imports.txt", "a") as file:
        print({name!r}, file=file)
"""

MODULE: Final = (
    HEAD
    + """
at("import")
pytestmark = pytest.mark.gpu

@pytest.fixture(scope="session")
def of_session():
    yield
    at("session teardown")

@pytest.fixture(scope="module")
def of_module():
    at("module setup")
    yield
    at("module teardown")

@pytest.fixture
def own(of_session, of_module):
    at("setup")
    yield
    at("teardown")

def test_before(): pass

@pytest.mark.gpu{mark}
def test_hostile(own):
    at("call")
    if MOMENT == "exit" and FAR:
        atexit.register(hostile)
    if MOMENT == "thread" and FAR:
        thread = threading.Thread(target=hostile)
        thread.start()
        thread.join(0.5)

def test_after(): pass
"""
)

CONFTEST: Final = (
    HEAD
    + """
def pytest_sessionfinish():
    at("finish")
"""
)


@dataclass(frozen=True)
class Act:
    """Something bad.

    :ivar end: what becomes of the process. :ivar code: what is done, in one or more forms; the line
        with ``# here`` is the one that a stack must show, where ``stack`` says so.
    :ivar says: regular expressions that the report must match. :ivar moments: when it is tried.
    :ivar words: whether the test's last words must be in the report. :ivar alone: whether the
        test that it strikes is tried again by itself. :ivar live: whether its output may be shown
        as it comes.
    """

    name: str
    end: str
    code: str | tuple[str, ...]
    says: tuple[str, ...] = ()
    stack: bool = True
    words: bool = True
    moments: tuple[str, ...] = (*AROUND, "finish")
    args: tuple[str, ...] = ()
    mark: str = ""
    alone: bool = False
    live: bool = True

    @property
    def codes(self) -> tuple[str, ...]:
        """What is done, in each form."""
        return (self.code,) if isinstance(self.code, str) else self.code


def file_of(act: Act, draw: Draw) -> str:
    """Name the file in which the act is done."""
    return "conftest.py" if draw.moment == "finish" else f"{module(act, draw)}.py"


def module(act: Act, draw: Draw) -> str:
    """Name the module of an act at a moment."""
    form = f"_{draw.variant}" if draw.variant else ""
    return f"test_{act.name}_{draw.moment}{form}".replace(" ", "_").replace("-", "_")


def files(act: Act, draw: Draw) -> Mapping[str, str]:
    """Write the project."""
    values = {
        "name": act.name,
        "words": LAST_WORDS,
        "moment": draw.moment,
        "delay": draw.delay,
        "code": textwrap.indent(textwrap.dedent(act.codes[draw.variant]).strip(), "    "),
        "mark": act.mark,
    }
    made = {f"{module(act, draw)}.py": MODULE.format(**values)}
    if draw.moment == "finish":
        made["conftest.py"] = CONFTEST.format(**values)
    return made


def _line(act: Act, draw: Draw) -> int:
    source = files(act, draw)[file_of(act, draw)]
    return next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# here"))


def _frame(act: Act, draw: Draw) -> str:
    """Give what shows the hostile line in a stack, or in a traceback of pytest's."""
    file, line = re.escape(file_of(act, draw)), _line(act, draw)
    return rf'{file}", line {line},? in hostile|{file}:{line}: '


def expected(act: Act, draw: Draw) -> Expected:
    """Say what must come of an act at a moment, in a session of its own."""
    name = module(act, draw)
    seen: dict[str, Verdicts] = {
        f"{name}.py::test_{part}": ("PASSED",) for part in ("before", "hostile", "after")
    }
    hostile, after = f"{name}.py::test_hostile", f"{name}.py::test_after"
    harmless = act.end == SURVIVES or draw.moment in ("exit", "thread")
    if harmless and not (draw.moment == "thread" and act.end == DIES):
        told = draw.moment == "exit" and act.end in (DIES, HANGS)
        died = draw.moment == "exit" and act.end == DIES
        return Expected((int(died),), seen, says=act.says if told else ())
    if draw.moment == "import":
        return _at_import(act, draw, seen)
    if act.alone and draw.moment in TEARDOWNS[1:]:
        return Expected((0,), seen)  # tried again without the test that had the fixture
    if draw.moment in SETUPS:
        seen[hostile] = ("ERROR",) if act.end == RAISES else ("FAILED",)
    elif draw.moment in ("call", "thread"):
        seen[hostile] = ("FAILED",)
    elif draw.moment == "teardown":
        seen[hostile] = ("PASSED ERROR",)
    elif draw.moment in TEARDOWNS:
        seen[after] = ("PASSED ERROR",)
    return Expected((1,), seen, says=_says(act, draw))


def _at_import(act: Act, draw: Draw, seen: dict[str, Verdicts]) -> Expected:
    wrong: dict[str, Verdicts] = dict.fromkeys(seen, ("ERROR",))
    says = tuple(words for words in _says(act, draw) if not words.startswith(LAST_WORDS))
    return Expected((1, 2), wrong, says, lines={"imports.txt": (1, 3)})


def _says(act: Act, draw: Draw) -> tuple[str, ...]:
    says = list(act.says)
    if act.stack:
        says.append(_frame(act, draw))
    if act.words and draw.moment != "finish":
        says.append(f"{LAST_WORDS} {act.name}")
    return tuple(says)


def kind(act: Act) -> Kind:
    """Make a kind of an act."""
    return Kind(
        act.name,
        act.moments,
        lambda draw: files(act, draw),
        lambda draw: expected(act, draw),
        args=act.args or ((LIMIT,) if act.end == HANGS else ()),
        variants=len(act.codes),
        live=act.live,
    )


CALM: Final = (*AROUND, "finish", "exit", "thread")

ACTS: Final = [
    # the process ends
    Act("segv", DIES, "ctypes.string_at(0)  # here", ("killed by SIGSEGV",),
        moments=(*AROUND, "finish", "exit", "thread", "import")),
    Act("abort", DIES, "os.abort()  # here", ("killed by SIGABRT",),
        moments=(*AROUND, "finish", "exit", "thread", "import")),
    Act("kill", DIES, "os.kill(os.getpid(), signal.SIGKILL)", ("killed by SIGKILL.*memory",),
        stack=False, moments=(*AROUND, "finish", "exit", "thread", "import")),
    Act("term", DIES, "os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
        ("killed by SIGTERM",), stack=False),
    Act("exit-0", DIES, "os._exit(0)", ("exit status 0",), stack=False,
        moments=(*AROUND, "finish", "import", "thread")),
    Act("close-all", DIES, "os.closerange(0, 4096)", ("closed the socket",), stack=False,
        moments=(*AROUND,)),
    Act("kill-parent", DIES, "os.kill(os.getppid(), signal.SIGKILL); time.sleep(9)",
        ("lost twice while this test ran",), stack=False, words=False, moments=AROUND,
        alone=True),
    # it raises
    Act("sys-exit", RAISES, "sys.exit(0)  # here", ("SystemExit: 0",),
        moments=(*AROUND, "finish", "exit", "thread", "import")),
    Act("base-exception", RAISES, "raise type('Odd', (BaseException,), {})('oddly')  # here",
        ("Odd: oddly",), moments=(*AROUND, "finish", "exit", "import")),
    Act("memory", RAISES, """
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**29 + 2**25, hard))
        blocks = []
        while True:
            blocks.append(bytearray(2**26))  # here
        """, ("MemoryError",)),
    # it hangs
    Act("wait", HANGS, "threading.Event().wait()  # here", ("timed out",),
        moments=(*AROUND, "finish", "exit", "thread")),
    Act("gil", HANGS, "ctypes.PyDLL(None).sleep(1000)  # here", ("timed out",),
        moments=(*AROUND, "finish", "exit")),
    Act("stop", HANGS, "os.kill(os.getpid(), signal.SIGSTOP)  # here", ("timed out",)),
    Act("child", HANGS, "subprocess.run(['sleep', '987'])  # here",
        ("timed out", r"^ *\d+ sleep 987$")),
    Act("deaf", HANGS, """
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        threading.Event().wait()
        """, ("timed out", "stacks could not be had"), stack=False),
    Act("own-limit", HANGS, "threading.Event().wait()  # here",
        (r"longer than 1.2 s \(gpu\(timeout=1.2\)\)",), mark="(timeout=1.2)",
        args=("--remote-timeout=60",), moments=AROUND[:4]),
    Act("ini-limit", HANGS, "threading.Event().wait()  # here",
        (r"longer than 1.2 s \(--remote-timeout\)",), args=("-oremotegpu_timeout=1.2",)),
    # it goes on
    Act("close-some", SURVIVES, ("os.close(1)", "os.close(2)", "os.closerange(0, 3)"),
        moments=CALM),
    Act("much-output", SURVIVES, ("""
        for _ in range(25):
            print("x" * (2**20 - 1))
            os.write(1, b"y" * 2**20)
        """, """
        for start in range(0, 10**6, 10**5):
            print(*map(str, range(start, start + 9)), sep=chr(10))
            print(chr(10).join(map(str, range(start + 9, start + 10**5))))
        """), moments=CALM, live=False),
    Act("changes", SURVIVES, (
        "os.chdir('/')",
        "folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)",
        "[os.environ.pop(name) for name in set(os.environ) - {'PYTEST_CURRENT_TEST'}]",
        "os.umask(0o777)",
        """
        sys.setrecursionlimit(10**6)
        down = lambda n: n and down(n - 1)
        down(20_000)
        """), moments=CALM),
    Act("signals", SURVIVES, ("""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGRTMAX - 5):
                signal.signal(number, signal.SIG_IGN)
        """, "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"), moments=CALM),
    Act("stdin", SURVIVES, "assert os.read(0, 1) == b''", moments=CALM),
    Act("fork", SURVIVES, "os.fork()", moments=(*CALM, "import")),
    Act("daemon", SURVIVES, ("""
        if os.fork() == 0:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.pthread_sigmask(signal.SIG_BLOCK, {number})
            if os.fork() == 0:
                os.closerange(0, 4096)
                time.sleep(987)
            os._exit(0)
        os.wait()
        """, "subprocess.Popen(['setsid', 'sleep', '987'], start_new_session=True)"),
        moments=(*CALM, "import")),
    Act("children", SURVIVES, """
        for _ in range(50):
            if os.fork() == 0:
                time.sleep(987)
                os._exit(0)
        """, moments=(*CALM, "import")),
    Act("thread", SURVIVES, "threading.Thread(target=threading.Event().wait).start()",
        moments=(*CALM[:-2], "thread", "import")),
]  # fmt: skip
