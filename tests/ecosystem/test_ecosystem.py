"""A small suite of each plugin gives the same results, plainly and shipped."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

from parity.compare import differences, explain
from parity.running import PLAIN, Leg

from .cases import CASES
from .running import Case, Seen, run

IN_ORDER = "--maxfail=1000"
SHIPPED = Leg("shipped", ("--remote=local:cpu", "--remote-all", IN_ORDER), ships_all=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, tmp_path: Path) -> None:
    plain, shipped = (run(case, leg, tmp_path / f"{n}") for n, leg in enumerate((PLAIN, SHIPPED)))
    for one, other in zip(plain, shipped, strict=True):
        check(one, other, case)


def check(plain: Seen, other: Seen, case: Case) -> None:
    """Compare two runs, and what was written in them."""
    found = differences(
        plain.pytest, other.pytest, "any" if case.any_order else "stretches", all_far=True
    )
    said = explain(found) if found else ""
    for name, written in plain.files.items():
        here, there = (
            json.dumps(one, indent=1, sort_keys=True) for one in (written, other.files[name])
        )
        if here != there:
            lines = difflib.unified_diff(here.split("\n"), there.split("\n"), lineterm="", n=2)
            said += f"\n{name}:\n" + "\n".join(lines)[:3000]
    assert not said, f"{said}\n\n{other.pytest.output[-3000:]}"
