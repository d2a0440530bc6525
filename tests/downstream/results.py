"""What is said of the runs: a line for each, and the two files beside this one.

Knows outcomes and what is explained of them; it starts nothing.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .legs import PLAIN, Leg
from .outcomes import Difference, Outcomes
from .suites import HERE, Explained, Suite

__all__ = ["Row", "Verdict", "verdict", "write"]

ORDER: Final = ("passed", "failed", "error", "skipped", "xfailed")
SHOWN: Final = 10
WHOLE: Final = "*"
"""The id of what explains a whole run, whose tests all differ."""


@dataclass(frozen=True)
class Verdict:
    """What the differences of a run are.

    :ivar explained: those that `differences.toml` has.
    :ivar faults: the others.
    :ivar stale: what that file has and the run has not.
    """

    explained: tuple[Difference, ...] = ()
    faults: tuple[Difference, ...] = ()
    stale: tuple[Explained, ...] = ()


@dataclass(frozen=True)
class Row:
    """One run of one suite."""

    suite: str
    leg: str
    outcomes: Outcomes
    differences: tuple[Difference, ...] = ()
    verdict: Verdict = Verdict()

    @property
    def here(self) -> int:
        """How many cases did not run where they should have."""
        ran = {id for id, said in self.outcomes.cases.items() if set(said) != {"skipped"}}
        known = {one.id for one in self.verdict.explained}
        return 0 if self.leg == PLAIN.name else len(ran - self.outcomes.far - known)

    @property
    def good(self) -> bool:
        """Whether the run is as it should be; a plain one is if it has tests."""
        said = self.verdict
        return bool(self.outcomes.cases) and not (said.faults or said.stale or self.here)

    def __str__(self) -> str:
        counts = self.outcomes.counts
        words = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word]) or "no test"
        line = f"{self.suite:21}{self.leg:6} exit {self.outcomes.status}: {words}"
        line += f"; {len(self.outcomes.far)} far away; {self.outcomes.seconds:.0f} s"
        return "\n".join([line, *self._remarks()])

    def _remarks(self) -> Iterator[str]:
        said = self.verdict
        for one in said.faults[:SHOWN]:
            yield f"    differs: {one}"
        if len(said.faults) > SHOWN:
            yield f"    and {len(said.faults) - SHOWN} more"
        for known in said.stale:
            yield f"    explained, and not seen: {known.id}"
        if self.here:
            yield f"    ran here: {self.here}"


def verdict(
    leg: Leg, suite: Suite, found: Sequence[Difference], known: Sequence[Explained]
) -> Verdict:
    """Tell what of the differences is explained, and what else there is to say."""
    mine = [one for one in known if one.suite == suite.name and leg.name in one.legs]
    ids = {one.id for one in mine}
    if found and WHOLE in ids:
        return Verdict(explained=tuple(found))
    seen = {one.id for one in found}
    return Verdict(
        explained=tuple(one for one in found if one.id in ids),
        faults=tuple(one for one in found if one.id not in ids),
        stale=tuple(one for one in mine if one.id not in seen),
    )


def write(rows: Sequence[Row], suites: Sequence[Suite], folder: Path = HERE) -> None:
    """Write `results.json` and `results.md`; what they have of other suites stays.

    :param suites: all that there are, in the order in which they are to stand there.
    """
    path = folder / "results.json"
    old = json.loads(path.read_text("utf-8"))["runs"] if path.exists() else []
    run = {row.suite for row in rows}
    data = [one for one in old if one["suite"] not in run] + [_plain(row) for row in rows]
    order = [suite.name for suite in suites]
    data = sorted(
        (one for one in data if one["suite"] in order), key=lambda one: order.index(one["suite"])
    )
    text = json.dumps({"python": platform.python_version(), "runs": data}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    page = "\n".join(_page(data, suites))
    (folder / "results.md").write_text(page + "\n", encoding="utf-8")


def _plain(row: Row) -> dict[str, Any]:
    return {
        "suite": row.suite,
        "leg": row.leg,
        "status": row.outcomes.status,
        "tests": len(row.outcomes.cases),
        "far": len(row.outcomes.far),
        "outcomes": dict(sorted(row.outcomes.counts.items())),
        "explained": [str(one) for one in row.verdict.explained[:SHOWN]],
        "explained in all": len(row.verdict.explained),
        "differences": [str(one) for one in row.verdict.faults],
    }


def _page(rows: Sequence[Mapping[str, Any]], suites: Sequence[Suite]) -> Iterator[str]:
    yield "# What came of other projects' suites"
    yield ""
    yield "Written by `python -m tests.downstream.run --write`. What differs is ids, and the exit"
    yield "status, that are not as in the plain run; `differences.toml` explains those in brackets."
    yield ""
    titles = ["suite", "run", "exit status", "tests", *ORDER, "far away", "differ"]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        cells = [row["suite"], row["leg"], row["status"], row["tests"]]
        cells += [row["outcomes"].get(word, 0) for word in ORDER]
        differ = f"{len(row['differences'])} ({row['explained in all']})"
        cells += [row["far"], "" if row["leg"] == PLAIN.name else differ]
        yield f"| {' | '.join(map(str, cells))} |"
    total = sum(row["tests"] for row in rows if row["leg"] == PLAIN.name)
    yield ""
    yield f"{total} tests. What each is there for:"
    yield ""
    yield from (f"- {suite.name}, `{suite.requirement}`: {suite.shows}" for suite in suites)
