"""A report of pytest as an event, and the event as a report's data again.

Knows the dict that pytest's own hooks make of a report and take; must not know pytest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events, plain

__all__ = [
    "ANEW",
    "COMPARED",
    "LACKED",
    "MEASURED",
    "NEEDS",
    "SETTLED",
    "TEXT_ONLY",
    "pack_report",
    "sections_of",
    "unpack_report",
]

CLOSED: Final = ("when", "outcome", "duration", "start", "stop", "keywords", "sections")
OWN: Final = ("nodeid", "location")
"""What the user's side knows better and so never travels."""
UNSENT: Final = frozenset((*CLOSED, *OWN))
LACKED: Final = "remotegpu_out_of_memory"
"""The user property of reports of a test that lacked GPU memory, from then on."""
NEEDS: Final = "remotegpu_needs_gib"
"""The same, of the report that tells of it: GiB of the next larger card that would do."""
TEXT_ONLY: Final = "$remotegpu_text_only"
"""A key beside a report's own: its ``longrepr`` was an object that pytest serialises as text."""
ODD_NAMES: Final = "$remotegpu_odd_names"
"""A key beside a report's own: attributes whose names are not ASCII."""
ANEW: Final = "$remotegpu_anew"
"""The same: it is the first of a further attempt, which was announced as the first one was."""
COMPARED: Final = "$remotegpu_compared"
"""The same: a failed comparison, as operator and two pairs, whether it was text and its text."""
MEASURED: Final = "$remotegpu_measured"
"""The same: a list of what pytest-benchmark has measured by then, each a dict."""
SETTLED: Final = "$remotegpu_settled"
"""The same: outcome and text that the report takes on once it is asked for its status."""


def pack_report(
    item: int, data: dict[str, Any], sections: list[int], *, keywords: bool, changed: list[str]
) -> events.Report:
    """Make an event of the dict that ``pytest_report_to_serializable`` gave.

    :param sections: the places of the report's sections among those sent for this test.
    :param keywords: whether to send the keywords; they are the same in each phase of a test.
    :param changed: receives what had to be turned to text.
    """
    rest = {key: value for key, value in data.items() if key not in UNSENT}
    if rest.get("longrepr") is None and not rest.get("user_properties"):
        rest.pop("longrepr", None)
        rest.pop("user_properties", None)
    names = data.get("keywords", {})
    if not _are_ones(names.values()):
        rest["keywords"] = names
    when = data.get("when")
    return events.Report(
        item,
        None if when is None else plain.to_text(str(when)),
        plain.to_text(str(data["outcome"])),
        float(data.get("duration", 0.0)),
        data.get("start"),
        data.get("stop"),
        [plain.to_text(str(name)) for name in names] if keywords else None,
        sections,
        _open_data(rest, changed),
    )


def _are_ones(values: Collection[Any]) -> bool:
    return set(map(type, values)) <= {int} and set(values) <= {1}


def _open_data(rest: dict[str, Any], changed: list[str]) -> dict[str, Any]:
    """Pack what has no field of its own; names that are not ASCII go together under one that is."""
    reduction = plain.Reduction(changed)
    found: dict[str, Any] = {}
    odd: dict[str, Any] = {}
    for key, value in rest.items():
        name = plain.text_of(key)
        (found if name.isascii() else odd)[name] = reduction.of(value, name)
    found = {name: plain.pack(value) for name, value in found.items()}
    return {**found, ODD_NAMES: plain.pack(odd)} if odd else found


def sections_of(report: events.Report, sections: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pick a report's sections out of all those of its test so far.

    :raises ProtocolError: where it refers to one that was not sent.
    """
    try:
        return [sections[index] for index in report.sections]
    except IndexError:
        raise ProtocolError("a report refers to a section that was not sent") from None


def unpack_report(
    report: events.Report, sections: list[tuple[str, str]], keywords: dict[str, Any]
) -> dict[str, Any]:
    """Rebuild the dict for ``pytest_report_from_serializable``, less ``nodeid`` and ``location``.

    :param sections: all sections of the test so far; the report's are picked out of them.
    :param keywords: those of the test.
    :raises ProtocolError: where the report refers to a section that was not sent.
    """
    picked = sections_of(report, sections)
    data: dict[str, Any] = {"longrepr": None, "user_properties": []}
    data.update(report.open)
    odd = data.pop(ODD_NAMES, None)
    if isinstance(odd, dict):
        data.update({name: value for name, value in odd.items() if isinstance(name, str)})
    data.setdefault("keywords", keywords)
    data["sections"] = picked
    data["outcome"] = plain.from_text(report.outcome)
    data["when"] = None if report.when is None else plain.from_text(report.when)
    data["duration"] = report.duration
    if report.start is not None:
        data["start"], data["stop"] = report.start, report.stop
    return data
