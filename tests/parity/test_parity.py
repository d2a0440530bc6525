"""Each project of the corpus gives the same results plainly and through each backend."""

from __future__ import annotations

import re

import pytest

import sshd

from .cases import BY_NAME, CASES, Case, whole
from .compare import differences, explain, shipping
from .conftest import Lab
from .legs import CASE_LEGS, COMMAND, HAS_MODAL, LEGS, MODALS, SENT, SSH
from .projects import PROJECTS
from .running import PLAIN, Leg, Project


def name(value: Project | Leg | Case) -> str:
    """Give a parameter's part of the test id."""
    return value.name


NO_SERVER = sshd.why_not()


def needs(leg: Leg) -> list[pytest.MarkDecorator]:
    """Give the marks that skip a leg where this host lacks its far side."""
    return [
        pytest.mark.skipif(leg == SSH and NO_SERVER != "", reason=NO_SERVER),
        pytest.mark.skipif(leg in MODALS and not HAS_MODAL, reason="needs Modal's client"),
    ]


PAIRS = [
    pytest.param(project, leg, id=f"{project.name}-{leg.name}", marks=needs(leg))
    for project in PROJECTS
    for leg, names in LEGS.items()
    if names is None or project.name in names
]


@pytest.mark.parametrize(("project", "leg"), PAIRS)
def test_project(lab: Lab, project: Project, leg: Leg) -> None:
    check(lab, whole(project), leg)


CASES_OF_LEGS = [
    pytest.param(case, leg, id=f"{case.name}-{leg.name}", marks=needs(leg))
    for leg, names in CASE_LEGS.items()
    for case in CASES
    if names is None or case.name in names
]


@pytest.mark.parametrize(("case", "leg"), CASES_OF_LEGS)
def test_case(lab: Lab, case: Case, leg: Leg) -> None:
    check(lab, case, leg)


def check(lab: Lab, case: Case, leg: Leg) -> None:
    """Compare each step of a case with the plain one; the plainest of all knows its tests."""
    legs = (PLAIN, leg.plain, leg)
    steps = zip(*(lab.results(case, one) for one in legs), strict=True)
    for number, (plainest, plain, other) in enumerate(steps, 1):
        order = "any" if leg.shared else case.order
        found = differences(plain, other, order, all_far=leg.ships_all)
        found = [one for one in found if not (leg.headless and one.field == "terminal header")]
        found += shipping(plainest, other, all_far=leg.ships_all)
        assert not found, f"step {number}: {explain(found)}\n\n{other.output[-3000:]}"


def test_tracebacks_name_files_of_this_side(lab: Lab) -> None:
    """Those of groups too, which are texts; the comparison takes any copy's folder for the same."""
    (seen,) = lab.results(whole(BY_NAME["outcomes"]), COMMAND)
    assert 'test_results.py", line ' in seen.output
    assert not re.findall(rf'File "{SENT[0]}', seen.output)
