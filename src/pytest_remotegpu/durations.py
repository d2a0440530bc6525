"""How long shipped tests took in earlier sessions, in pytest's own cache.

Trusts nothing that it finds there. Knows pytest's configuration, neither workers nor schedules.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import pytest

__all__ = ["Durations", "merged", "readable"]

KEY: Final = "remotegpu/durations"
MOST: Final = 20_000
"""Tests that are remembered; those that ran last."""
LONGEST_ID: Final = 1_000
"""Characters of an id that is worth remembering."""
MOST_SECONDS: Final = 7 * 86_400.0
NEW: Final = 0.5
"""The weight of the last time against all earlier ones."""
DIGITS: Final = 4


def readable(data: Any) -> dict[str, float]:
    """Pick what makes sense out of what a cache holds: ids and their seconds."""
    if not isinstance(data, dict):
        return {}
    return {
        nodeid: float(seconds)
        for nodeid, seconds in list(data.items())[-MOST:]
        if isinstance(nodeid, str) and _is_sound(seconds)
    }


def _is_sound(seconds: Any) -> bool:
    return (
        isinstance(seconds, int | float)
        and not isinstance(seconds, bool)
        and isfinite(seconds)
        and 0 <= seconds <= MOST_SECONDS
    )


def merged(before: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """Bring what was known and what was seen now together, those of now last."""
    found = {nodeid: seconds for nodeid, seconds in before.items() if nodeid not in seen}
    for nodeid, seconds in seen.items():
        if len(nodeid) <= LONGEST_ID and _is_sound(seconds):
            old = before.get(nodeid, seconds)
            found[nodeid] = round(NEW * seconds + (1 - NEW) * old, DIGITS)
    return dict(list(found.items())[-MOST:])


class Durations:
    """What is known of durations, and what is seen in this session.

    :param cache: pytest's, or ``None`` where the session has none.
    """

    def __init__(self, cache: pytest.Cache | None) -> None:
        self._cache = cache
        self._before: dict[str, float] | None = None
        self._seen: dict[str, float] = {}

    @classmethod
    def of_session(cls, config: pytest.Config) -> Durations:
        """Make it for a session; ``-p no:cacheprovider`` leaves it without memory."""
        return cls(getattr(config, "cache", None))

    def _known(self) -> dict[str, float]:
        if self._before is None:
            found = {} if self._cache is None else self._cache.get(KEY, {})
            self._before = readable(found)
        return self._before

    def of(self, nodeid: str) -> float | None:
        """Give the seconds that a test is expected to take; ``None`` for one not seen yet."""
        return self._known().get(nodeid)

    def note(self, nodeid: str, seconds: float) -> None:
        """Take note of how long a test took."""
        self._seen[nodeid] = seconds

    def keep(self) -> None:
        """Write down what was seen since the last time."""
        if self._seen and self._cache is not None:
            self._before = merged(self._known(), self._seen)
            self._seen = {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pytest says itself that it can't write there
                self._cache.set(KEY, self._before)
