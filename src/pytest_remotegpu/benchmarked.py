"""What pytest-benchmark has measured on the far side, given to its session here.

Believes no shape of data without a look, and names no class from there: the plugin is the one that
is loaded here. What it shows, saves and compares is then its own business.
"""

from __future__ import annotations

import math
import sys
from array import array
from types import SimpleNamespace
from typing import Any, Final

import pytest

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import plain

__all__ = ["Benchmarked", "check"]

TEXTS: Final = ("group", "param")
DICTS: Final = ("extra_info", "options", "params")
MOST: Final = 100
"""Benchmarks on one report: the fixture takes one a test, and plugins may have others."""
DIFFERENT: Final = "remotegpu"
"""The key for other machines in what pytest-benchmark has of this one."""


def check(found: Any) -> list[dict[str, Any]]:
    """Give what a report has of benchmarks, if it can be that.

    :raises ProtocolError: if not.
    """
    if not isinstance(found, list) or len(found) > MOST or not all(map(_is_fit, found)):
        raise ProtocolError("a benchmark that no test can have measured")
    return found


def _is_fit(one: Any) -> bool:
    if not isinstance(one, dict) or not plain.is_shallow(one):
        return False
    data, count = one.get("data"), one.get("iterations")
    numbers = isinstance(data, bytes) and len(data) % array("d").itemsize == 0 and bool(data)
    counted = type(count) is int and count > 0
    texts = all(one.get(name) is None or isinstance(one[name], str) for name in TEXTS)
    dicts = all(one.get(name) is None or _is_named(one[name]) for name in (*DICTS, "machine"))
    return numbers and counted and texts and dicts and all(map(math.isfinite, _numbers(data)))


def _is_named(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(name, str) for name in found)


def _numbers(data: Any) -> list[float]:
    return array("d", data).tolist()


class Benchmarked:
    """Adds the benchmarks of shipped tests to those of tests that ran here."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._added = 0
        self._machines: list[dict[str, Any]] = []

    def add(self, item: pytest.Item, found: list[dict[str, Any]]) -> None:
        """Add those of one test, as it is known here."""
        session: Any = getattr(self._config, "_benchmarksession", None)
        kinds: Any = sys.modules.get("pytest_benchmark.stats")
        if session is None or kinds is None:
            return
        for one in found:
            session.benchmarks.append(_made(kinds, item, one))
            self._added += 1
            machine = one.get("machine")
            if machine and _lasting(machine) not in map(_lasting, self._machines):
                self._machines.append(machine)

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Name the machine on which was measured; where there are others beside, these too."""
        session: Any = getattr(self._config, "_benchmarksession", None)
        if not self._machines or session is None:
            return
        if len(self._machines) == 1 and len(session.benchmarks) == self._added:
            machine_info.clear()
            machine_info.update(self._machines[0])
        elif others := [
            each for each in self._machines if _lasting(each) != _lasting(machine_info)
        ]:
            machine_info[DIFFERENT] = others


def _lasting(machine: dict[str, Any]) -> dict[str, Any]:
    """Give what a machine is told by: the clocks of its processor change."""
    return {name: value for name, value in machine.items() if name != "cpu"}


def _made(kinds: Any, item: pytest.Item, one: dict[str, Any]) -> Any:
    """Make what the plugin makes of a fixture that was used."""
    parameters: Any = getattr(item, "callspec", None)
    fixture = SimpleNamespace(
        name=item.name,
        fullname=item.nodeid,
        group=one.get("group"),
        param=getattr(parameters, "id", None),
        params=one.get("params"),
        extra_info=one.get("extra_info") or {},
        cprofile_stats=None,
        has_error=False,
    )
    made = kinds.Metadata(fixture, one["iterations"], one.get("options") or {})
    made.stats.data = _numbers(one["data"])
    return made
