"""How a card does around a measurement: clocks, power, temperature, and what holds it back.

Asks NVIDIA's library through :mod:`pytest_remotegpu.cards`; knows neither torch nor pytest.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, Final

from pytest_remotegpu import cards

__all__ = ["State", "look"]

HARD: Final = frozenset(
    {
        "hardware slowdown",
        "thermal slowdown",
        "hardware thermal slowdown",
        "hardware power brake",
    }
)
"""What makes a measurement worthless. A power cap is none of it: it holds back whatever draws much
power for long, on each run alike; it is told, and a baseline without it is not compared."""


@dataclass(frozen=True, slots=True)
class State:
    """What a card was seen to do before and after a measurement.

    :ivar before: right before. :ivar after: right after, while clocks are still up.
    :ivar others: other processes that compute on it, as far as this one may see them.
    """

    before: cards.Reading
    after: cards.Reading
    others: int = 0

    @property
    def held_back(self) -> tuple[str, ...]:
        """What held the card back, in words: right after, since before it has been idle."""
        return self.after.held_back or ()

    @property
    def throttled(self) -> tuple[str, ...]:
        """What of that makes a measurement worthless."""
        return tuple(word for word in self.held_back if word in HARD)

    def plain(self) -> dict[str, Any]:
        """Give it as data."""
        return {
            "before": _plain(self.before),
            "after": _plain(self.after),
            "held_back": list(self.held_back),
            "others": self.others,
        }


def _plain(reading: cards.Reading) -> dict[str, Any]:
    found = asdict(reading)
    words = found.pop("held_back")
    return {**found, "held_back": None if words is None else list(words)}


def look(uuid: str, before: cards.Reading) -> State:
    """Look at a card after a measurement.

    :param before: what it did before, from :func:`pytest_remotegpu.cards.reading`.
    """
    after = cards.reading(uuid)
    others = [user for user in cards.users(uuid) if user.pid != os.getpid()]
    return State(before, after, len(others))
