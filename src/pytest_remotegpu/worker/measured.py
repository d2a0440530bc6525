"""What pytest-benchmark has measured in a test, as data on the test's reports.

Knows that plugin by the attribute that it sets on the configuration, and imports it nowhere.
"""

from __future__ import annotations

import argparse
import contextlib
from array import array
from typing import Any, Final

import pytest

__all__ = ["Measured"]

MOST: Final = 500_000
"""Numbers of one benchmark that travel; eight bytes each."""
SAVING: Final = ("benchmark_json", "benchmark_save", "benchmark_autosave")
"""Options that have something written of the machine."""


class Measured:
    """Tells of each benchmark once.

    :param option: the session's options, as the user has given them.
    """

    def __init__(self, option: argparse.Namespace) -> None:
        self._saves = any(getattr(option, name, None) for name in SAVING)
        self._told = 0

    def news(self, config: pytest.Config) -> list[dict[str, Any]]:
        """Give what has been measured since the last time."""
        session: Any = getattr(config, "_benchmarksession", None)
        if session is None:
            return []
        found, self._told = session.benchmarks[self._told :], len(session.benchmarks)
        told = [_data(one) for one in found if one and not one.has_error]
        if told and self._saves:
            self._saves = False
            with contextlib.suppress(Exception):  # a hook of the project may raise anything
                told[0]["machine"] = session.get_machine_info()
        return told


def _data(one: Any) -> dict[str, Any]:
    said = one.as_dict(stats=False)
    said.pop("cprofile", None)
    numbers = array("d", one.stats.data[:MOST])
    return {**said, "iterations": one.iterations, "data": numbers.tobytes()}
