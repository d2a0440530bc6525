"""Tells what this interpreter has installed, once something has failed for want of a module.

A plugin of the far session. Looks at the folders of the import path and imports nothing of what
lies there; whether the project asks for what is not there, it does not know.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import platform
import sys
from collections.abc import Iterable
from typing import Final

import pytest

from pytest_remotegpu.protocol import inventory
from pytest_remotegpu.worker.emit import Emitter

__all__ = ["Having", "look", "tell"]

LACKING: Final = "No module named"
ENDS: Final = (".dist-info", ".egg-info")
"""Of files of metadata; a version follows the name in it, in which no dash is left."""
LINK: Final = ".egg-link"
"""The same of old editable installs, whose names may have dashes."""
LONGEST: Final = 200
"""Characters of a name."""


class Having:
    """Tells it, once: after a test, when its fixtures no longer change what this process sees."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._lacks = self._told = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See whether a test lacks a module."""
        self._look_at(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """The same of a file, of which the user's side hears next."""
        self._look_at(report)
        self.pytest_runtest_logfinish()

    def pytest_runtest_logfinish(self) -> None:
        """Tell it where something was lacking."""
        if self._lacks and not self._told:
            self._told = True
            tell(self._emitter)

    def _look_at(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        with contextlib.suppress(Exception):  # tests and plugins put anything on a report
            if report.failed and not self._lacks:
                self._lacks = LACKING in str(report.longrepr)


def tell(emitter: Emitter) -> None:
    """Tell it; where tests have left the process so that it can't be found out, say nothing."""
    try:
        found = look(sys.path)
    except Exception:  # noqa: BLE001 -- what it needs may be patched, and tests go on regardless
        return
    emitter.put(found)


def look(path: Iterable[str]) -> inventory.Has:
    """Look at the folders of an import path."""
    folders = [folder or os.curdir for folder in dict.fromkeys(path)]
    projects = {name for folder in folders for name in _projects(folder)}
    modules = {module.name for module in pkgutil.iter_modules(folders)}
    return inventory.Has(_named(projects), _named(modules), _environment())


def _projects(folder: str) -> Iterable[str]:
    """Give the names of what is installed in a folder, as its files of metadata are named."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 -- names are all that is needed
    except OSError:
        return
    for name in names:
        stem, end = os.path.splitext(name)  # noqa: PTH122 -- a name, and no path
        if end in ENDS:
            yield stem.partition("-")[0]
        elif end == LINK:
            yield stem


def _named(names: Iterable[str]) -> list[str]:
    fit = (name for name in names if name.isascii() and len(name) <= LONGEST)
    return sorted(fit)[: inventory.MOST]


def _environment() -> dict[str, str]:
    """Give what markers see, as the specification of requirements has it."""
    info = sys.implementation.version
    version = f"{info.major}.{info.minor}.{info.micro}"
    if info.releaselevel != "final":
        version += f"{info.releaselevel[0]}{info.serial}"
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": version,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }
