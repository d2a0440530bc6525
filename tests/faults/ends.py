"""Sessions that are told to end, and processes that are killed, at each moment of a session.

A project waits at the moment that is drawn until it is told to go on; meanwhile something is done
to one of the processes. Knows which process is which, and what must come of its end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from warmth import alive, descendants

from .kinds import Draw, Expected, Kind, Verdicts
from .running import Running, until

__all__ = ["KINDS"]

STREAM: Final = 25
"""Short tests among which something strikes."""

CONFTEST: Final = """
import os, pathlib, time
import pytest

FAR = "REMOTEGPU_WORKER" in os.environ
ROOT = pathlib.Path(__file__).parent

def pause(moment):
    if moment == {moment!r}:
        (ROOT / "reached").touch()
        while not (ROOT / "go").exists():
            time.sleep(0.005)

def pytest_configure():
    if FAR:
        pause("loading")

def pytest_sessionfinish():
    if FAR:
        pause("end")
"""

FIRST: Final = """
import pathlib, time
import pytest
from conftest import FAR, ROOT, pause

pytestmark = pytest.mark.gpu
if FAR:
    pause("import")

@pytest.fixture(scope="module")
def thing():
    yield
    (ROOT / "torn-down").write_text("yes")

def test_before(thing): pass

{stream}

def test_long(thing):
    print("last words")
    pause("test")
"""

SHORT: Final = f"""
@pytest.mark.parametrize("n", range({STREAM}))
def test_short(n):
    if n == 0:  # the report of the test before is on its way
        (ROOT / "reached").touch()
    time.sleep(0.02)
"""

SECOND: Final = """
from conftest import pause

def test_here():
    pause("idle")
"""

LAST: Final = """
import pytest

@pytest.mark.gpu
def test_after(): pass
"""


def files(draw: Draw) -> Mapping[str, str]:
    """Write the project."""
    stream = SHORT if draw.moment == "between" else ""
    return {
        "conftest.py": CONFTEST.format(moment=draw.moment),
        "test_a.py": FIRST.format(stream=stream),
        "test_b.py": SECOND,
        "test_c.py": LAST,
        "pytest.ini": f"[pytest]\naddopts = {'--maxfail=99' if draw.moment == 'idle' else ''}\n",
    }


BEFORE, LONG, HERE, AFTER = (
    "test_a.py::test_before", "test_a.py::test_long", "test_b.py::test_here",
    "test_c.py::test_after",
)  # fmt: skip
PASSED: Final = ("PASSED",)
KEPT: Final = ("PASSED", "")


def ids(draw: Draw) -> list[str]:
    """List the tests."""
    short = [
        f"test_a.py::test_short[{n}]" for n in range(STREAM if draw.moment == "between" else 0)
    ]
    return [BEFORE, *short, LONG, HERE, AFTER]


def all_pass(draw: Draw, *status: int, **others: Verdicts) -> Expected:
    """Say that everything has passed, with exceptions by the names of their constants."""
    seen = dict.fromkeys(ids(draw), PASSED)
    seen |= {globals()[name]: verdicts for name, verdicts in others.items()}
    return Expected(status or (0,), seen)


# ---------------------------------------------------------------- who is who


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _children(pid: int) -> list[int]:
    return [child for child in descendants(pid) if _parent(child) == pid] if pid else []


def _first(pids: list[int]) -> int:
    return next(iter(pids), 0)


def _processes(running: Running) -> dict[str, int]:
    """Find the far processes of a session; 0 for one that is not there."""
    state = running.home.state()
    agent = int(state.get("agent", 0))
    if not state.get("workers"):
        supervisor = _first(_children(running.process.pid))
        twin = _first(_children(supervisor))
        warm = 0
    else:
        supervisor = int(state["workers"][0]["pid"])
        zygotes = [int(zygote["pid"]) for zygote in state["zygotes"]]
        zygotes += map(int, state["leaving"])
        warm, twin = next(((z, _first(_children(z))) for z in zygotes if _children(z)), (0, 0))
        if not twin:  # a zygote that was replaced meanwhile has left it to the agent
            orphans = [pid for pid in _children(agent) if pid not in (supervisor, *zygotes)]
            warm, twin = _first(zygotes), _first(orphans)
    return {
        "agent": agent,
        "zygote": warm,
        "supervisor": supervisor,
        "twin": twin,
        "runner": _first(_children(twin)),
    }


# ---------------------------------------------------------------- strikes


def _at_its_moment(running: Running, draw: Draw) -> None:
    if draw.moment == "start":
        time.sleep(draw.delay * 2)
    else:
        running.reached("reached")
        time.sleep(draw.delay)


POLITELY: Final = (signal.SIGKILL, signal.SIGTERM)


def killing(victim: str) -> Callable[[Running, Draw], None]:
    """Kill one of the far processes, or ask it to end."""

    def strike(running: Running, draw: Draw) -> None:
        def there() -> bool:
            return bool(_processes(running)[victim]) or running.process.poll() is not None

        _at_its_moment(running, draw)
        until(there, 10)
        found = _processes(running)[victim]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found, POLITELY[draw.variant])
            if not until(lambda: not alive(found), 8):
                running.notes.append(f"the {victim} does not die")
            running.struck = True
        running.go()

    return strike


def signalling(*numbers: int, within: float) -> Callable[[Running, Draw], None]:
    """Send signals to the session, which then has some seconds to end."""

    def strike(running: Running, draw: Draw) -> None:
        _at_its_moment(running, draw)
        for place, number in enumerate(numbers):
            time.sleep(0.05 + draw.delay if place else 0.0)
            running.process.send_signal(number)
        running.struck = True
        if running.end(within) is None:
            running.notes.append(f"it has not ended within {within:g} s of the last signal")

    return strike


def hanging_up(running: Running, draw: Draw) -> None:
    """Close the session's terminal."""
    _at_its_moment(running, draw)
    running.hang_up()
    running.struck = True


# ---------------------------------------------------------------- what must come of it

HUNG_UP: Final = ": SIGHUP"
MOMENTS: Final = ("test", "start", "loading", "import", "between", "idle", "end")
GRACEFUL: Final = 12.0
AT_ONCE: Final = 4.0


def interrupted(name: str) -> Callable[[Draw], Expected]:
    """Say what a session must come to that is told to end: what arrived is kept."""

    def expected(draw: Draw) -> Expected:
        seen: dict[str, Verdicts] = dict.fromkeys(ids(draw), KEPT)
        if draw.moment == "start":
            # Python itself may get it, or pytest with nothing to report; or it comes too late
            status = (0, 2, 1, 3, -signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, 130)
            return Expected(status, seen, reports=False)
        if draw.moment in ("test", "between", "idle", "end"):
            seen[BEFORE] = PASSED
        if draw.moment == "end":
            seen = dict.fromkeys(ids(draw), PASSED)
        torn = (1, 1) if draw.moment in ("test", "end") else (0, 1)
        told = (f"KeyboardInterrupt{name}", "remote summary")
        return Expected((2,), seen, told if name != HUNG_UP else (), lines={"torn-down": torn})

    return expected


TOO_LATE: Final = ((), (0,))
"""Exit statuses of a session that may have been over before anything struck."""


def at_once(draw: Draw) -> Expected:
    """Say what a session must come to that is told to end twice."""
    seen: dict[str, Verdicts] = dict.fromkeys(ids(draw), KEPT)
    status = (2, 1, -signal.SIGINT, 130, *TOO_LATE[draw.moment == "start"])
    return Expected(status, seen, reports=False)


def controller_gone(draw: Draw) -> Expected:
    """Say what a session must come to that is killed."""
    status = (-signal.SIGKILL, *TOO_LATE[draw.moment == "start"])
    return Expected(status, dict.fromkeys(ids(draw), KEPT), reports=False)


def unnoticed(draw: Draw) -> Expected:
    """Say what must come of the end of a process that the session can do without."""
    return all_pass(draw)


def agent_gone(draw: Draw) -> Expected:
    """Say what must come of the end of the agent: one that is told to end takes workers along."""
    told = POLITELY[draw.variant] == signal.SIGTERM
    return worker_gone(draw) if told else unnoticed(draw)


def worker_gone(draw: Draw) -> Expected:
    """Say what must come of the end of the worker: it is had anew; at its start it can't be had."""
    if draw.moment == "end":  # nobody knows how its session would have ended
        found = all_pass(draw, 1)
        lost = "was lost before it said how its session ended"
        return Expected((1,), found.verdicts, (lost,))
    if draw.moment != "start":
        return all_pass(draw)
    either = ("PASSED", "ERROR")
    return all_pass(draw, 0, 1, 4, BEFORE=either, LONG=either, AFTER=either, HERE=KEPT)


def runner_gone(draw: Draw) -> Expected:
    """Say what must come of the end of the process that runs the tests."""
    name = POLITELY[draw.variant].name
    match draw.moment:
        case "test":
            found = all_pass(draw, 1, LONG=("FAILED",))
            return Expected(found.status, found.verdicts, (f"killed by {name}", "last words"))
        case "between" | "start":
            perhaps = ("PASSED", "FAILED", "PASSED ERROR")
            return Expected((0, 1), dict.fromkeys(ids(draw), perhaps))
        case "end":
            found = all_pass(draw, 1)
            return Expected((1,), found.verdicts, (f"it did not come to its end: .* {name}",))
    return all_pass(draw)


KINDS: Final = [
    Kind("ctrl-c", MOMENTS, files, interrupted(""),
         strike=signalling(signal.SIGINT, within=GRACEFUL)),
    Kind("ctrl-c-twice", MOMENTS, files, at_once,
         strike=signalling(signal.SIGINT, signal.SIGINT, within=AT_ONCE)),
    Kind("sigterm", MOMENTS, files, interrupted(": SIGTERM"),
         strike=signalling(signal.SIGTERM, within=GRACEFUL)),
    Kind("terminal-closed", MOMENTS, files, interrupted(HUNG_UP), strike=hanging_up,
         terminal=True),
    Kind("kill-controller", MOMENTS, files, controller_gone,
         strike=signalling(signal.SIGKILL, within=AT_ONCE)),
    Kind("kill-supervisor", MOMENTS, files, worker_gone, strike=killing("supervisor"), variants=2,
         kills=True),
    Kind("kill-twin", MOMENTS, files, worker_gone, strike=killing("twin"), variants=2),
    Kind("kill-zygote", MOMENTS, files, unnoticed, strike=killing("zygote"), variants=2, warm=True),
    Kind("kill-agent", MOMENTS, files, agent_gone, strike=killing("agent"), variants=2, warm=True,
         kills=True),
    Kind("kill-runner", MOMENTS, files, runner_gone, strike=killing("runner"), variants=2),
]  # fmt: skip
