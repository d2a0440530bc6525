"""The ways to run the corpus that must give a plain run's results.

A further backend is one more entry; the rest of the suite takes them from here.
"""

from __future__ import annotations

import importlib.util
import os
import sys

from pytest_remotegpu import cards

from .projects import PROJECTS
from .running import Leg

LOCAL = Leg("local:cpu", ("--remote=local:cpu",))

ALL = Leg("local:cpu all", ("--remote=local:cpu", "--remote-all"), ships_all=True)

# The worker finds no project beside it: the tree is sent, and lies in a temporary folder there.
SENT = (r"/[^\s'\"]*/pytest-remotegpu/trees/[\w-]+/tree",)

COMMAND = Leg(
    "command",
    ("--remote=command:env", "-o", f"remotegpu_python={sys.executable}"),
    environment=(("PYTEST_REMOTEGPU_PRETEND_GPUS", "2"),),
    far_roots=SENT,
)

# The laboratory starts the server, and says where the `ssh` is that knows its host.
SSH = Leg("ssh", ("--remote=ssh:gpubox",), far_roots=SENT)

HAS_MODAL = importlib.util.find_spec("modal") is not None

# The laboratory starts the service, and says where it is.
# Its containers get no variable that is not named.
TOLD = "PARITY_FOLDER\nBREAK"
MODAL = Leg("modal", ("--remote=modal:T4", "-o", f"remotegpu_env={TOLD}"), far_roots=SENT)

# One request with the order out, a stream back, small items meanwhile.
MODAL_SHAPED = Leg("modal-shaped", ("--remote=onerequest",), far_roots=SENT)

# One process of pytest-xdist: the order is that of collection, as it is without any.
XDIST = Leg("xdist", ("--remote=local:cpu", "-n1"), beside=("-n1",))

# Several workers share the tests: what comes back is the same, its order is that of arrival.
WORKERS = Leg("workers", ("--remote=local:cpu", "--remote-workers=2"), shared=True)

# The far side collects what it runs; this side imports none of those files. It is ready at once, so
# that its tests would come between those that run here: a limit has them all run in order.
FAR = Leg("far", ("--remote=local:cpu", "-o", "remotegpu_collect=far", "--maxfail=1000"))

# The same in a process of pytest-xdist, in containers, and with no file collected here at all.
COLLECTS = ("-o", "remotegpu_collect=far", "--maxfail=1000")
FAR_XDIST = Leg("far xdist", (*XDIST.args, *COLLECTS), beside=XDIST.beside)
FAR_MODAL = Leg("far modal", (*MODAL.args, *COLLECTS), far_roots=SENT)
NAMED = ("-o", "remotegpu_files=**/*test*.py", "--remote-all")
FAR_ALL = Leg("far all", ("--remote=local:cpu", *NAMED, *COLLECTS), ships_all=True)

# No conftest is loaded here, so that everything is collected and run there.
CONFTESTS = Leg(
    "far conftests",
    ("--remote=local:cpu", "-o", "remotegpu_conftest=far", "--maxfail=1000"),
    ships_all=True,
    headless=True,
)

# The legs that need Modal's client.
MODALS = (MODAL, FAR_MODAL)

# The cases that select among what was collected there, or find fault with it.
FAR_CASES = ("keyword", "marker", "ids", "failed and new ones", "collection", "broken files")

# This host's cards, where it has any.
CARDS = Leg("local", ("--remote=local",))

WHOLE = "PARITY_WHOLE" in os.environ

# The legs on which pytest's own options are tried, and the names of the cases; None stands for all.
CASE_LEGS: dict[Leg, tuple[str, ...] | None] = {
    LOCAL: None,
    FAR: FAR_CASES,
    CONFTESTS: FAR_CASES if WHOLE else ("ids", "failed and new ones"),
    MODAL: None if WHOLE else (),
}

# The legs on which a far side breaks, crashes, speaks, and has other parameters.
FAULT_LEGS = (LOCAL, MODAL) if WHOLE and HAS_MODAL else (LOCAL,)

PACKED = ("packed", "packed, by name", "packed, importlib")

# The projects that a leg runs; None stands for all of them.
LEGS: dict[Leg, tuple[str, ...] | None] = {
    LOCAL: tuple(project.name for project in PROJECTS if WHOLE or not project.source),
    FAR: None if WHOLE else ("outcomes", "params", "layout", "broken", "choices", *PACKED),
    FAR_ALL: None if WHOLE else ("scopes", "styles", "choices", "packed"),
    # one has conftests whose hooks show results, and they would have to be here for that
    CONFTESTS: tuple(p.name for p in PROJECTS if p.name != "hooks")
    if WHOLE
    else ("scopes", "warned", "layout", "packed"),
    FAR_XDIST: ("params", "layout", "choices"),
    # of a module that is missing there, an error says more
    FAR_MODAL: tuple(p.name for p in PROJECTS if p.name != "broken") if WHOLE else ("layout",),
    COMMAND: ("outcomes", "layout", "choices"),
    SSH: ("output", "choices"),
    MODAL_SHAPED: ("params", "choices"),
    MODAL: None if WHOLE else ("output", "choices"),
    # what the others have in them ends pytest-xdist itself
    XDIST: ("params", "scopes", "styles", "layout", "hooks", "broken", "choices"),
    # the others show that a session's fixtures live once in each worker
    WORKERS: (
        "outcomes",
        "output",
        "warned",
        "styles",
        "layout",
        "spread",
        "hooks",
        "broken",
        "choices",
    ),
    ALL: ("outcomes", "scopes", "styles", "hooks", "choices"),
}
if cards.visible(os.environ):
    LEGS[CARDS] = None
