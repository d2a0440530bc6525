"""What came of a run, id by id, and in what two runs differ.

Reads junit files; knows neither how a suite was run nor what of it is explained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

__all__ = ["Difference", "Outcomes", "compare", "read"]

ABSENT = "not there"


@dataclass(frozen=True)
class Outcomes:
    """One run of a suite.

    :ivar status: pytest's exit status.
    :ivar cases: the outcomes of each id, in order: one, unless it failed and its teardown as well.
    :ivar far: the ids that say that they ran far away.
    :ivar seconds: how long the process took.
    """

    status: int
    cases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    far: frozenset[str] = frozenset()
    seconds: float = 0.0

    @property
    def counts(self) -> Counter[str]:
        """How often each outcome was seen."""
        return Counter(one for outcomes in self.cases.values() for one in outcomes)


@dataclass(frozen=True)
class Difference:
    """An id, or the exit status, of which two runs say different things."""

    id: str
    plain: str
    other: str

    def __str__(self) -> str:
        return f"{self.id}: plainly {self.plain}, far away {self.other}"


def read(path: Path, status: int, seconds: float = 0.0) -> Outcomes:
    """Read a junit file of the family ``xunit1``; without one there are no cases."""
    if not path.is_file():
        return Outcomes(status, seconds=seconds)
    cases: dict[str, tuple[str, ...]] = {}
    far: set[str] = set()
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314 -- a file of our own
        name = _id(case)
        cases[name] = (*cases.get(name, ()), _outcome(case))
        if _ran_far(case):
            far.add(name)
    return Outcomes(status, cases, frozenset(far), seconds)


def _id(case: ET.Element) -> str:
    """Name a case by its file, its class or module, and its name."""
    return "::".join(
        part for part in (case.get("file"), case.get("classname"), case.get("name")) if part
    )


def _outcome(case: ET.Element) -> str:
    """Give pytest's word for what came of a case."""
    for tag, word in (("failure", "failed"), ("error", "error")):
        if case.find(tag) is not None:
            return word
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"


def _ran_far(case: ET.Element) -> bool:
    names = {one.get("name", "") for one in case.iterfind("properties/property")}
    return any(name.startswith("remotegpu") for name in names)


def compare(plain: Outcomes, other: Outcomes) -> Iterator[Difference]:
    """Say in what the other run is unlike the plain one: ids, their outcomes, the exit status."""
    if plain.status != other.status:
        yield Difference("exit status", str(plain.status), str(other.status))
    for name in dict.fromkeys([*plain.cases, *other.cases]):
        left, right = (side.cases.get(name, (ABSENT,)) for side in (plain, other))
        if left != right:
            yield Difference(name, ", ".join(left), ", ".join(right))
