"""A small suite of each plugin gives the same results, plainly and shipped."""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path

import pytest

from parity.compare import differences, explain
from parity.legs import SENT
from parity.running import PLAIN, Leg

from .cases import AWAY, CASES, HERE
from .running import Case, Seen, run

ALL = ("--remote-all", "--maxfail=1000")
LEGS = {
    HERE: Leg("shipped", ("--remote=local:cpu", *ALL), ships_all=True),
    # the project travels, and lies elsewhere there
    AWAY: Leg(
        "sent",
        ("--remote=command:env", "-o", f"remotegpu_python={sys.executable}", *ALL),
        environment=(("PYTEST_REMOTEGPU_PRETEND_GPUS", "2"),),
        far_roots=SENT,
        ships_all=True,
    ),
}
OF_ORDER = ("order", "junit order", "runs of hooks")
TRIED = [pytest.param(case, leg, id=f"{case.name}-{leg}") for case in CASES for leg in case.legs]


@pytest.mark.parametrize(("case", "leg"), TRIED)
def test_case(case: Case, leg: str, tmp_path: Path) -> None:
    legs = (PLAIN, LEGS[leg])
    plain, shipped = (run(case, each, tmp_path / f"{n}") for n, each in enumerate(legs))
    for one, other in zip(plain, shipped, strict=True):
        check(one, other, case)


def check(plain: Seen, other: Seen, case: Case) -> None:
    """Compare two runs, and what was written in them."""
    found = differences(plain.pytest, other.pytest, all_far=True)
    if case.any_order:
        found = [one for one in found if one.field not in OF_ORDER]
    said = explain(found) if found else ""
    for name, written in plain.files.items():
        here, there = (
            json.dumps(one, indent=1, sort_keys=True) for one in (written, other.files[name])
        )
        if here != there:
            lines = difflib.unified_diff(here.split("\n"), there.split("\n"), lineterm="", n=2)
            said += f"\n{name}:\n" + "\n".join(lines)[:3000]
    assert not said, f"{said}\n\n{other.pytest.output[-3000:]}"
