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

# The far side collects what it runs; this side imports none of those files. It is ready at once, so
# that its tests would come between those that run here: a limit has them all run in order.
IN_ORDER = ("--maxfail=1000",)

LOCAL = Leg("local:cpu", ("--remote=local:cpu", *IN_ORDER))

ALL = Leg("local:cpu all", ("--remote=local:cpu", "--remote-all", *IN_ORDER), ships_all=True)

# The worker finds no project beside it: the tree is sent, and lies in a temporary folder there.
SENT = (r"/[^\s'\"]*/pytest-remotegpu/trees/[\w-]+/tree",)

COMMAND = Leg(
    "command",
    ("--remote=command:env", "-o", f"remotegpu_python={sys.executable}", *IN_ORDER),
    environment=(("PYTEST_REMOTEGPU_PRETEND_GPUS", "2"),),
    far_roots=SENT,
)

# The laboratory starts the server, and says where the `ssh` is that knows its host.
SSH = Leg("ssh", ("--remote=ssh:gpubox", *IN_ORDER), far_roots=SENT)

HAS_MODAL = importlib.util.find_spec("modal") is not None

# The laboratory starts the service, and says where it is.
# Its containers get no variable that is not named.
TOLD = "PARITY_FOLDER\nBREAK"
MODAL = Leg(
    "modal", ("--remote=modal:T4", "-o", f"remotegpu_env={TOLD}", *IN_ORDER), far_roots=SENT
)

# One request with the order out, a stream back, small items meanwhile.
MODAL_SHAPED = Leg("modal-shaped", ("--remote=onerequest", *IN_ORDER), far_roots=SENT)

# One process of pytest-xdist: the order is that of collection, as it is without any.
XDIST = Leg("xdist", ("--remote=local:cpu", "-n1"), beside=("-n1",))

# Several workers share the tests: what comes back is the same, its order is that of arrival.
WORKERS = Leg("workers", ("--remote=local:cpu", "--remote-workers=2"), shared=True)

# Files with tests that are shipped are imported here, too.
COLLECTS_HERE = ("-o", "remotegpu_collect=here")
HERE = Leg("here", ("--remote=local:cpu", *COLLECTS_HERE))
HERE_ALL = Leg("here all", (*HERE.args, "--remote-all"), ships_all=True)
HERE_XDIST = Leg("here xdist", (*HERE.args, "-n1"), beside=XDIST.beside)
HERE_WORKERS = Leg("here workers", (*WORKERS.args, *COLLECTS_HERE), shared=True)
HERE_COMMAND = Leg(
    "here command",
    (*COMMAND.args, *COLLECTS_HERE),
    environment=COMMAND.environment,
    far_roots=SENT,
)
HERE_MODAL = Leg("here modal", (*MODAL.args, *COLLECTS_HERE), far_roots=SENT)

# No file is collected here at all, whatever its source says.
NAMED = ("-o", "remotegpu_files=**/*test*.py", "--remote-all")
FAR_ALL = Leg("far all", (*LOCAL.args, *NAMED), ships_all=True)

# No conftest is loaded here, so that everything is collected and run there.
CONFTESTS = Leg(
    "far conftests",
    (*LOCAL.args, "-o", "remotegpu_conftest=far"),
    ships_all=True,
    headless=True,
)

# The legs that need Modal's client.
MODALS = (MODAL, HERE_MODAL)

# The cases that select among what was collected there, or find fault with it.
FAR_CASES = ("keyword", "marker", "ids", "failed and new ones", "collection", "broken files")

# This host's cards, where it has any.
CARDS = Leg("local", ("--remote=local",))

WHOLE = "PARITY_WHOLE" in os.environ

# The legs on which pytest's own options are tried, and the names of the cases; None stands for all.
CASE_LEGS: dict[Leg, tuple[str, ...] | None] = {
    LOCAL: None,
    HERE: None if WHOLE else FAR_CASES,
    CONFTESTS: FAR_CASES if WHOLE else ("ids", "failed and new ones"),
    MODAL: None if WHOLE else (),
}

# The legs on which a far side breaks, crashes, speaks, and has other parameters.
FAULT_LEGS = (LOCAL, HERE, MODAL) if WHOLE and HAS_MODAL else (LOCAL, HERE)

PACKED = ("packed", "packed, by name", "packed, importlib")

# The projects that a leg runs; None stands for all of them.
LEGS: dict[Leg, tuple[str, ...] | None] = {
    LOCAL: tuple(p.name for p in PROJECTS if WHOLE or not p.source or p.name in PACKED),
    HERE: None if WHOLE else ("outcomes", "params", "warned", "layout", "broken", "choices"),
    FAR_ALL: None if WHOLE else ("scopes", "styles", "choices", "packed"),
    # one has conftests whose hooks show results, and they would have to be here for that
    CONFTESTS: tuple(p.name for p in PROJECTS if p.name != "hooks")
    if WHOLE
    else ("scopes", "warned", "layout", "packed"),
    COMMAND: ("outcomes", "layout", "choices"),
    HERE_COMMAND: ("outcomes",),
    SSH: ("output", "choices"),
    MODAL_SHAPED: ("params", "choices"),
    MODAL: None if WHOLE else ("output", "layout", "choices"),
    HERE_MODAL: ("outcomes", "choices") if WHOLE else ("choices",),
    # what the others have in them ends pytest-xdist itself
    XDIST: ("params", "scopes", "styles", "layout", "hooks", "broken", "choices"),
    HERE_XDIST: ("params", "layout", "choices"),
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
    HERE_WORKERS: ("outcomes", "choices"),
    ALL: ("outcomes", "scopes", "styles", "hooks", "choices"),
    HERE_ALL: ("styles", "choices"),
}
if cards.visible(os.environ):
    LEGS[CARDS] = None
