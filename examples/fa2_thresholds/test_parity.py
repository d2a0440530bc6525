"""Parity before speed: what is timed gives what attention in float32 gives."""

from __future__ import annotations

import pytest
from sizes import SWEEP

from pytest_remotegpu.bench.fa2 import columns, host, parity
from pytest_remotegpu.bench.fa2.rows import Branch, Direction, Parity, Problem
from pytest_remotegpu.bench.fa2.run import in_words
from pytest_remotegpu.bench.fa2.sweep import Sweep

pytestmark = pytest.mark.gpu(min_capability=8.0)

NAMES = (*SWEEP.names, columns.STAND_IN)


@pytest.mark.parametrize("branch", [str(branch) for branch in Branch])
@pytest.mark.parametrize("name", NAMES)
def test_column_agrees_with_float32(name: str, branch: str, wanted: Sweep, here: host.Host) -> None:
    column = columns.found(name, wanted.further)
    problems = [problem for problem in wanted.problems() if problem.branch == branch]
    forward = [problem for problem in problems if problem.direction is Direction.FORWARD]
    skip_where_it_can_not_run(column, forward, here)
    differs = []
    for problem in forward:
        found = parity.compare(column, problem, here.device, seed=wanted.seed)
        if found.parity is not Parity.PASSED:
            checks = "\n  ".join(map(str, found.checks))
            differs.append(f"{in_words(problem)}\n  {checks}")
    assert not differs, "\n".join(differs)


def skip_where_it_can_not_run(
    column: columns.Column, problems: list[Problem], here: host.Host
) -> None:
    """Skip with the reason, such as a package that is not there; that is no pass."""
    for problem in problems:
        if why := column.refusal(problem, here.device):
            pytest.skip(why)
