"""How often pytest-rerunfailures may still run a test that has ended processes before.

Knows that plugin by an option of it, which rules over marks; one that is too old has none.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import orders

__all__ = ["leave"]

OPTION: Final = "force_reruns"
_GIVEN: Final = pytest.StashKey[Any]()


def leave(config: pytest.Config, limits: orders.Limits, site: orders.Site, place: int) -> None:
    """Take off what earlier processes have had of the attempts at the test that is next.

    :param place: the test's.
    """
    if OPTION not in vars(config.option):
        return
    given = config.stash.setdefault(_GIVEN, getattr(config.option, OPTION))
    used = site.attempts.get(place, 0)
    left = max(limits.again.get(place, 0) - used, 0) if used else given
    setattr(config.option, OPTION, left)
