"""What a failed assertion compared, as text, for an editor that shows both sides of it.

Knows pytest's hooks only. It is there where the user's session has such an editor's reporter, since
that reporter is given the two values by a hook that is called where the test runs.
"""

from __future__ import annotations

import pprint
from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import packing

__all__ = ["OPTION", "Comparisons", "install"]

OPTION: Final = "remotegpu_compares"
"""The name of the value among the session's options by which it asks for comparisons."""
LONGEST: Final = 200_000
"""Characters of one side; nobody reads a longer one in an editor's window."""
MOST: Final = 10_000
"""Parts of a container; writing more of them takes longer than its test should."""


class Comparisons:
    """Keeps the last comparison of each phase, and puts it on the phase's report."""

    def __init__(self) -> None:
        self._last: tuple[str, tuple[bool, str], tuple[bool, str]] | None = None

    def pytest_assertrepr_compare(self, op: str, left: object, right: object) -> None:
        """Keep the two sides; what pytest shows of them stays as it is."""
        sides = _side(left), _side(right)
        if sides[0] is not None and sides[1] is not None:
            self._last = (op, sides[0], sides[1])

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Any:
        """Send them with the report."""
        data: Any = yield
        if data and self._last is not None:
            data[packing.COMPARED], self._last = self._last, None
        return data


def install(config: pytest.Config) -> None:
    """Keep comparisons, where the user's side asks for them."""
    if getattr(config.option, OPTION, False):
        config.pluginmanager.register(Comparisons(), "remotegpu-runner-comparisons")


def _side(value: object) -> tuple[bool, str] | None:
    """Give the text of a value, and whether it is one itself; ``None`` for what has none."""
    try:
        if isinstance(value, str):
            text = str.__str__(value)
        elif hasattr(value, "__len__") and len(value) > MOST:
            return None
        else:
            text = pprint.pformat(value)
    except Exception:  # noqa: BLE001 -- a test's class may raise anything when it is shown
        return None
    return None if len(text) > LONGEST else (isinstance(value, str), text)
