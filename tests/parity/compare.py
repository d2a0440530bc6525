"""Says in what two runs of the same project differ.

The first run is a plain one; the second is anything that promises the same results. What may differ
is in `normal.NORMALISED`; this module must not know the plugin.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .normal import Place, left_out
from .running import Observation, Report

Order = Literal["stretches", "exact", "any"]
ITEM_EVENTS = frozenset({"enter", "leave", "start", "finish", "setup", "call", "teardown"})
SHOWN = 1200


@dataclass(frozen=True)
class Difference:
    """One thing in which the second run is unlike the plain one.

    Attributes:
        field: what was compared.
        where: the node id, section or key at which it differs.
        plain: the value of the plain run.
        other: the value of the other run.
    """

    field: str
    where: str
    plain: str
    other: str

    def __str__(self) -> str:
        lines = difflib.unified_diff(
            self.plain.split("\n"), self.other.split("\n"), "plain", "other", lineterm="", n=1
        )
        return f"{self.field} of {self.where}:\n" + "\n".join(lines)[:SHOWN]


def differences(
    plain: Observation, other: Observation, order: Order = "stretches", *, all_far: bool = False
) -> list[Difference]:
    """Compare two runs.

    Args:
        plain: the plain run.
        other: the run that should be the same.
        order: "stretches" compares the order among far items and among local items, "exact" the
            order of all, "any" that of none but the local items.
        all_far: unmarked items ran far away too in the other run.
    """
    return [
        *exit_status(plain, other),
        *items(plain, other),
        *collection(plain, other),
        *reports(plain, other),
        *item_order(plain, other, order, all_far=all_far),
        *item_events(plain, other),
        *counted("warnings", map(repr, plain.session.warnings), map(repr, other.session.warnings)),
        *junit(plain, other),
        *junit_order(plain, other, order, all_far=all_far),
        *terminal(plain, other),
    ]


def unequal(field: str, where: str, plain: object, other: object) -> Iterator[Difference]:
    """Compare two values."""
    if plain != other:
        yield Difference(field, where, str(plain), str(other))


def counted(
    field: str, plain: Iterable[str], other: Iterable[str], where: str = "session"
) -> Iterator[Difference]:
    """Compare two collections (or counters) without their order."""
    left, right = Counter(plain), Counter(other)
    missing, extra = left - right, right - left
    if missing or extra:
        texts = ["\n".join(sorted(part.elements())) for part in (missing, extra)]
        yield Difference(field, where, *texts)


def exit_status(plain: Observation, other: Observation) -> Iterator[Difference]:
    """Compare the exit status of process and session, and that there was one session."""
    yield from unequal("exit status", "process", plain.status, other.status)
    yield from unequal("sessions", "process", len(plain.sessions), len(other.sessions))
    left, right = plain.session.exitstatus, other.session.exitstatus
    yield from unequal("exit status", "session", left, right)


def items(plain: Observation, other: Observation) -> Iterator[Difference]:
    """Compare the selected items in their order, and what was deselected."""
    left, right = plain.session.items, other.session.items
    yield from unequal(
        "ids", "selection", *("\n".join(i.nodeid for i in side) for side in (left, right))
    )
    for one, two in zip(left, right, strict=False):
        for name in ("location", "keywords", "markers", "gpu"):
            yield from unequal(f"item {name}", one.nodeid, getattr(one, name), getattr(two, name))
    yield from counted("deselected ids", plain.session.deselected, other.session.deselected)


def collection(plain: Observation, other: Observation) -> Iterator[Difference]:
    """Compare the failed and skipped collections."""
    left, right = ([repr(c) for c in side.session.collected] for side in (plain, other))
    return counted("collection", left, right)


def by_id(side: Observation) -> dict[str, list[Report]]:
    """Group the reports of a run by node id, each group in order."""
    groups: dict[str, list[Report]] = defaultdict(list)
    for report in side.session.reports:
        groups[report.nodeid].append(report)
    return groups


def reports(plain: Observation, other: Observation) -> Iterator[Difference]:
    """Compare all reports: which there are, and each field of each."""
    left, right = by_id(plain), by_id(other)
    for nodeid in dict.fromkeys([*left, *right]):
        one, two = left.get(nodeid, []), right.get(nodeid, [])
        phases = [[(r.when, r.kind) for r in side] for side in (one, two)]
        yield from unequal("phases", nodeid, *phases)
        for plain_report, other_report in zip(one, two, strict=False):
            yield from report_fields(plain_report, other_report)


def report_fields(plain: Report, other: Report) -> Iterator[Difference]:
    """Compare two reports of the same item field by field."""
    for name in Report.__struct_fields__:
        left, right = (kept(name, getattr(report, name)) for report in (plain, other))
        yield from unequal(name, f"{plain.nodeid} ({plain.when})", left, right)


def kept(name: str, value: Any) -> Any:
    """Take away the parts of a report's field that the table leaves out."""
    if name == "user_properties":
        return [pair for pair in value if not left_out(Place.USER_PROPERTY, pair[0])]
    if name == "attributes":
        return {k: v for k, v in value.items() if not left_out(Place.REPORT_ATTRIBUTE, k)}
    return value


def item_order(
    plain: Observation, other: Observation, order: Order, *, all_far: bool
) -> Iterator[Difference]:
    """Compare the order in which items were reported."""
    far = {item.nodeid for item in plain.session.items if item.gpu or all_far}
    sequences = [
        [n for kind, n in side.session.events if kind == "start"] for side in (plain, other)
    ]
    yield from sequence_order("order", far, sequences, order)


def sequence_order(
    field: str, far: Collection[str], sequences: Sequence[Sequence[str]], order: Order
) -> Iterator[Difference]:
    """Compare two sequences: as wholes, or their far part and their local part."""
    if order == "exact":
        yield from unequal(field, "all items", *map("\n".join, sequences))
        return
    for name, is_far in (("far items", True), ("local items", False)):
        parts = [[n for n in sequence if (n in far) is is_far] for sequence in sequences]
        if is_far and order == "any":
            parts = [sorted(part) for part in parts]
        yield from unequal(field, name, *map("\n".join, parts))


def item_events(plain: Observation, other: Observation) -> Iterator[Difference]:
    """Compare the hooks that each item passed, and that no two items are mixed."""
    left, right = (events_by_id(side) for side in (plain, other))
    for nodeid in dict.fromkeys([*left, *right]):
        yield from unequal("hooks", nodeid, left.get(nodeid, ""), right.get(nodeid, ""))
    yield from unequal("runs of hooks", "session", *map(stretches, (plain, other)))


def events_by_id(side: Observation) -> dict[str, str]:
    """Give each item's hooks as one text."""
    events: dict[str, list[str]] = defaultdict(list)
    for kind, nodeid in side.session.events:
        events[nodeid].append(kind)
    return {nodeid: " ".join(kinds) for nodeid, kinds in events.items()}


def stretches(side: Observation) -> int:
    """Count the uninterrupted runs of hooks of one item."""
    ids = [nodeid for _, nodeid in side.session.events]
    return sum(1 for n, nodeid in enumerate(ids) if n == 0 or ids[n - 1] != nodeid)


def junit(plain: Observation, other: Observation) -> Iterator[Difference]:
    """Compare the junit files without the order of cases."""
    yield from unequal("junit", "file", plain.junit is None, other.junit is None)
    if plain.junit is not None and other.junit is not None:
        yield from unequal("junit suite", "suite", plain.junit.suite, other.junit.suite)
        yield from counted("junit cases", plain.junit.cases, other.junit.cases)


def junit_order(
    plain: Observation, other: Observation, order: Order, *, all_far: bool
) -> Iterator[Difference]:
    """Compare the order of the cases in the junit files, as that of the items."""
    if plain.junit is None or other.junit is None:
        return
    far = {junit_name(item.nodeid) for item in plain.session.items if item.gpu or all_far}
    yield from sequence_order("junit order", far, [plain.junit.order, other.junit.order], order)


def terminal(plain: Observation, other: Observation) -> Iterator[Difference]:
    """Compare what was written on the screen, part by part."""
    left, right = plain.terminal, other.terminal
    yield from counted("terminal header", left.header, right.header)
    yield from counted("terminal results", left.progress, right.progress)
    yield from counted("terminal closing", left.closing, right.closing)
    yield from keyed("terminal letters", left.letters, right.letters)
    for title in dict.fromkeys([*left.sections, *right.sections]):
        one, two = (side.sections.get(title, Counter()) for side in (left, right))
        yield from counted("terminal section", one, two, title)


def keyed(
    field: str, plain: Mapping[str, Hashable], other: Mapping[str, Hashable]
) -> Iterator[Difference]:
    """Compare two mappings key by key."""
    for key in dict.fromkeys([*plain, *other]):
        yield from unequal(field, key, plain.get(key), other.get(key))


def shipping(plain: Observation, other: Observation, *, all_far: bool = False) -> list[Difference]:
    """Check that just the items which should have run far away did so.

    The junit file carries properties of our own for each case that ran far away.
    """
    if other.junit is None:
        return []
    far = {item.nodeid for item in plain.session.items if item.gpu or all_far}
    expected = {junit_name(nodeid) for nodeid in far} & set(other.junit.order)
    return list(counted("far items", expected, other.junit.ours, "junit properties"))


def junit_name(nodeid: str) -> str:
    """Give the class name and name under which junit lists an item."""
    path, *names = nodeid.partition("[")[0].split("::")
    bracket = "".join(nodeid.partition("[")[1:])
    module = path.removesuffix(".py").replace("/", ".")
    names = [module, *names]
    return f"{'.'.join(names[:-1])}::{names[-1]}{bracket}"


def explain(found: Sequence[Difference], limit: int = 15) -> str:
    """Write differences for a person, the first ones in full."""
    head = f"{len(found)} differences"
    fields = Counter(d.field for d in found)
    counts = ", ".join(f"{name} {n}" for name, n in fields.items())
    return "\n\n".join([f"{head} ({counts})", *map(str, found[:limit])])
