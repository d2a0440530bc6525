"""A report as data that pytest on the user's side can rebuild, whatever a test or plugin put on it.

Knows pytest's reports; knows no wire, and nothing of who sends what is made here.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import plain

__all__ = ["fit"]

MOST_PROPERTIES: Final = plain.MOST_PARTS // 8
"""User properties of one report that travel."""
MOST_PARTS: Final = plain.MOST_PARTS // 4
"""Parts of all properties' values, and of an error, beyond which they travel as text."""
FIRST: Final[tuple[str, ...]] = (
    *("$report_type", "_report_type", "_subtest.context", "wasxfail"),
    *("longrepr", "user_properties"),
)
"""What has to be whole comes before what else may take room."""
EXACT: Final = frozenset({str, int, float, bool, type(None)})


def fit(config: pytest.Config, report: pytest.TestReport, changed: list[str]) -> dict[str, Any]:
    """Make the dict of a report that pytest makes, with each field of the type that it should have.

    :param changed: receives a line for each thing that does not travel as it is.
    :return: an empty dict for what is no report that pytest or a plugin can send.
    """
    data = _serialised(config, report, changed)
    if not data:
        return data
    if "$report_type" in data:
        data["$report_type"] = "TestReport"  # a class of a plugin's own is unknown elsewhere
    data["outcome"] = plain.text_of(data.get("outcome"))
    data["keywords"] = _keywords(data.get("keywords"))
    data["sections"] = [_pair(part, "section") for part in _listed(data.get("sections"))]
    data["user_properties"] = _properties(data.get("user_properties"), changed)
    data["longrepr"] = _longrepr(report, data, changed)
    data["duration"] = _number(data.get("duration")) or 0.0
    start, stop = _number(data.get("start")), _number(data.get("stop"))
    data["start"], data["stop"] = (None, None) if stop is None else (start, stop)
    if "wasxfail" in data:
        data["wasxfail"] = plain.text_of(data["wasxfail"])
    first = {name: data.pop(name) for name in FIRST if name in data}
    return {**first, **data}


def _serialised(
    config: pytest.Config, report: pytest.TestReport, changed: list[str]
) -> dict[str, Any]:
    """Ask pytest and its plugins for the data; what they can't read is its text, or left out."""
    ask = config.hook.pytest_report_to_serializable
    try:
        return ask(config=config, report=report) or {}
    except Exception as error:  # noqa: BLE001 -- what a test puts on a report may raise anything
        changed.append(f"all of it ({type(error).__name__} while it was read)")
    bare = pytest.TestReport(
        nodeid=report.nodeid,
        location=report.location,
        keywords={},
        outcome=report.outcome,
        longrepr=None if report.longrepr is None else plain.text_of(report.longrepr),
        when=report.when,
        sections=_listed(report.sections),
        duration=report.duration,
        user_properties=_listed(report.user_properties),
    )
    return ask(config=config, report=bare) or {}


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, list | tuple) else [found] if found else []


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and len(entry) == 2  # noqa: PLR2004 -- a pair


def _pair(entry: Any, name: str) -> tuple[str, str]:
    """Give a name and its text; what is no pair becomes the text."""
    first, second = entry if _is_pair(entry) else (name, entry)
    return plain.text_of(first), plain.text_of(second)


def _properties(found: Any, changed: list[str]) -> list[Any]:
    """Keep pairs as they are, as far as they can travel; what is none becomes the text of one."""
    entries = _listed(found)
    if len(entries) > MOST_PROPERTIES:
        left_out = len(entries) - MOST_PROPERTIES
        changed.append(f"user_properties (the last {left_out} of {len(entries)} are left out)")
    room = MOST_PARTS
    pairs: list[Any] = []
    for entry in entries[:MOST_PROPERTIES]:
        if not _is_pair(entry):
            changed.append(f"user_properties[{len(pairs)}] (no pair of a name and a value)")
        name, value = entry if _is_pair(entry) else ("user_properties", plain.text_of(entry))
        if type(value) not in EXACT:
            parts = plain.count(value, room)
            if parts >= room:
                changed.append(f"user_properties.{plain.text_of(name)[:100]} (too many parts)")
                value = plain.text_of(value)
            room -= min(parts, room - 1)
        name = name if type(name) in EXACT else plain.text_of(name)
        pairs.append([name, value] if isinstance(entry, list) else (name, value))
    return pairs


def _longrepr(report: pytest.TestReport, data: dict[str, Any], changed: list[str]) -> Any:
    """Keep what pytest makes of errors and skips, where pytest can show it; else give its text."""
    longrepr, own = data.get("longrepr"), report.longrepr
    if report.skipped and "wasxfail" not in data and not _is_skip(longrepr):
        path, lineno, _name = report.location
        return path, lineno or 0, plain.text_of(own)
    if longrepr is None or type(longrepr) is str:
        return longrepr
    is_small = plain.count(longrepr, MOST_PARTS) < MOST_PARTS
    if isinstance(longrepr, dict) and hasattr(own, "toterminal"):
        if is_small and _is_shown(own):
            return longrepr
        changed.append(f"longrepr ({type(own).__name__})")
    return longrepr if isinstance(longrepr, tuple) and is_small else plain.text_of(own)


def _is_shown(longrepr: Any) -> bool:
    """Say whether pytest can write an error, as it has to on the user's side."""
    crash = longrepr.reprcrash
    try:
        return bool(str(longrepr)) and (crash is None or isinstance(crash.message, str))
    except Exception:  # noqa: BLE001 -- as above
        return False


def _is_skip(longrepr: Any) -> bool:
    return isinstance(longrepr, tuple) and [type(part) for part in longrepr] == [str, int, str]


def _keywords(found: Any) -> dict[str, Any]:
    """Give the names of keywords with their values; nearly always 1."""
    names = found if isinstance(found, dict) else dict.fromkeys(_listed(found), 1)
    return {plain.text_of(name): value for name, value in names.items()}


def _number(found: Any) -> float | None:
    """Read a number of seconds; ``None`` where it is none."""
    try:
        return None if found is None else float(found)
    except (TypeError, ValueError, OverflowError):
        return None
