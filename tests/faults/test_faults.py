"""Each kind of fault once: one outcome for each id, the rest goes on, nothing is left.

Most of their time is spent waiting, so that several sessions run at once, each with surroundings of
its own.
"""

from __future__ import annotations

import contextlib
import queue
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from . import ends, sessions
from .groups import acts, group
from .hostile import ACTS, AROUND, DIES, HANGS, RAISES, SURVIVES, kind
from .kinds import Draw, Kind
from .running import Home, home, meet

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

AT_ONCE = 3
BY_NAME = {act.name: act for act in ACTS}
PLACES = AROUND[1:-1]
"""Where a fixture is that other tests of the session do without."""
APART = [BY_NAME["memory"], BY_NAME["term"]]
"""What others leave behind in the process, or these leave for others, would change the outcome."""
LIMITED = BY_NAME["ini-limit"].args
GROUPS = [
    group("hangs", [(act, "call") for act in acts(HANGS)], *LIMITED),
    group("hanging fixtures", [(BY_NAME["wait"], place) for place in PLACES], *LIMITED),
    group("calls", [(act, "call") for act in acts(DIES, RAISES, SURVIVES) if act not in APART]),
    group(
        "places",
        [
            *((act, "call") for act in APART),
            *((BY_NAME[name], "import") for name in ("kill", "sys-exit", "fork")),
            *((BY_NAME[name], place) for name in ("segv", "sys-exit", "fork") for place in PLACES),
            *((BY_NAME[name], "thread") for name in ("sys-exit", "wait", "segv")),
        ],
    ),
]
AT_THE_END = [
    ("wait", "exit"),
    ("wait", "session teardown"),
    ("gil", "finish"),
    ("segv", "session teardown"),
    ("abort", "finish"),
    ("sys-exit", "finish"),
    ("kill", "exit"),
    ("daemon", "exit"),
]
STRUCK = {
    "ctrl-c": "between",
    "ctrl-c-twice": "import",
    "sigterm": "idle",
    "terminal-closed": "between",
    "kill-controller": "import",
    "kill-supervisor": "idle",
    "kill-twin": "end",
    "kill-zygote": "loading",
    "kill-agent": "idle",
    "kill-runner": "import",
}
"""When a process is struck here; other tests strike while a test runs."""

FAULTS: dict[str, tuple[Kind, Draw]] = {
    **{made.name: (made, made.plainly()) for made in GROUPS},
    **{made.name: (made, made.plainly()) for made in sessions.KINDS},
    **{
        f"{name} at {moment}": (kind(BY_NAME[name]), kind(BY_NAME[name]).plainly(moment))
        for name, moment in AT_THE_END
    },
    **{made.name: (made, made.plainly(STRUCK[made.name])) for made in ends.KINDS},
}
Outcome = tuple[list[str], str]
"""What is wrong, and what the session has written."""


@pytest.fixture(scope="module")
def met(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Outcome]]]:
    """Meet with all faults that are asked for."""
    ours = [item for item in request.session.items if item.path == request.path]
    names = [name for name in FAULTS if any(f"[{name}]" in item.nodeid for item in ours)]
    homes: queue.Queue[Home] = queue.Queue()

    def one(name: str) -> Outcome:
        mine = homes.get()
        try:
            running, found = meet(mine, *FAULTS[name])
        finally:
            homes.put(mine)
        if FAULTS[name][0].strike is not None and not running.struck:
            found.append("nothing was struck")
        return found, running.text

    with contextlib.ExitStack() as stack:
        for _ in range(AT_ONCE):
            homes.put(stack.enter_context(home(tmp_path_factory.mktemp("home"))))
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        yield {name: pool.submit(one, name) for name in names}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, met: dict[str, Future[Outcome]]) -> None:
    found, text = met[name].result()
    assert not found, "\n".join([*found, text[-5000:]])
