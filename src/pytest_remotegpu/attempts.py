"""How often tests are to be run again that end their process, as pytest-rerunfailures is asked to.

Knows that plugin's options and its mark, and imports it nowhere. It runs failed tests again itself;
of one that has taken its process along it knows nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import pytest

__all__ = ["MOST", "RERUN", "allowed", "status"]

PLUGINS: Final = ("rerunfailures", "pytest_rerunfailures")
"""Its names, from its entry point and as a module."""
MARK: Final = "flaky"
RERUN: Final[str] = "rerun"
"""The outcome that it gives to reports."""
FILTERS: Final = ("only_rerun", "rerun_except")
"""What says by the text of an error whether to run again: there is none of a process that ended."""
MOST: Final = 100
"""Times that a test may end its process, whatever is asked for."""


def allowed(config: pytest.Config, items: Sequence[pytest.Item]) -> dict[int, int]:
    """Give how often each may be run again, by its place; those that may not are left out."""
    if not any(map(config.pluginmanager.hasplugin, PLUGINS)):
        return {}
    found = {place: _of(config, item) for place, item in enumerate(items)}
    return {place: min(times, MOST) for place, times in found.items() if times > 0}


def status(config: pytest.Config, report: pytest.TestReport) -> Any:
    """Say how an attempt that was run again is shown, where that plugin is not there to do so."""
    if report.outcome != RERUN or any(map(config.pluginmanager.hasplugin, PLUGINS)):
        return None
    return RERUN, "R", ("RERUN", {"yellow": True})


def _of(config: pytest.Config, item: pytest.Item) -> int:
    mark = item.get_closest_marker(MARK)
    given = dict(mark.kwargs) if mark is not None else {}
    if any(given.get(name) or config.getoption(name, None) for name in FILTERS):
        return 0
    if given.get("condition", True) is not True:
        return 0  # it may ask for the error, or be about the far side
    forced = config.getoption("force_reruns", None)
    if forced is not None:
        return _number(forced)
    if mark is not None:
        return _number(given.get("reruns", mark.args[0] if mark.args else 1))
    return _number(config.getoption("reruns", None) or _ini(config))


def _ini(config: pytest.Config) -> object:
    with contextlib.suppress(ValueError):  # an older version has no such setting
        return config.getini("reruns")
    return None


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else 0
