"""Fixtures that write into a junit file, for a side that writes none: what they say travels.

Knows nothing of that file, which is the user's side's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pytest_remotegpu.protocol import events, plain
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker.emit import Emitter

__all__ = ["Recorder", "install"]

ANY_FAMILY = ("xunit1", "legacy")


class Recorder:
    """Sends what the fixtures are given.

    :param family: the format of the user's junit file; empty where none is written.
    :param current: gives the place of the running test.
    """

    def __init__(self, emitter: Emitter, family: str, current: Callable[[], int]) -> None:
        self._emitter = emitter
        self._family = family
        self.current = current

    def record(self, item: int, name: str, value: object) -> None:
        """Send the name and the text of a value."""
        text = to_text(plain.reduce(value, [], name) if isinstance(value, str) else str(value))
        self._emitter.put(events.Junit(item, to_text(str(name)), text))

    def warn(self, request: pytest.FixtureRequest, fixture: str) -> None:
        """Warn as pytest does of a file that can't hold what a fixture is for."""
        if self._family and self._family not in ANY_FAMILY:
            text = (
                f"{fixture} is incompatible with junit_family '{self._family}' "
                "(use 'legacy' or 'xunit1')"
            )
            request.node.warn(pytest.PytestWarning(text))


RECORDER = pytest.StashKey[Recorder]()


def install(config: pytest.Config, recorder: Recorder) -> None:
    """Let this module's fixtures replace pytest's for the rest of the session.

    They are functions of a module, since pytest wants no wide fixture to be a method.
    """
    config.stash[RECORDER] = recorder
    config.pluginmanager.register(sys.modules[__name__], "remotegpu-runner-junit")


@pytest.fixture
def record_xml_attribute(request: Any, record_xml_attribute: Any) -> Any:
    """Stand in for pytest's fixture, which is asked first for its own warnings."""
    del record_xml_attribute
    recorder = request.config.stash[RECORDER]
    recorder.warn(request, "record_xml_attribute")
    place = recorder.current()
    return lambda name, value: recorder.record(place, name, value)


@pytest.fixture
def record_property(request: Any, record_property: Any) -> Any:
    """Warn as pytest's fixture does where a junit file is written."""
    request.config.stash[RECORDER].warn(request, "record_property")
    return record_property


@pytest.fixture(scope="session")
def record_testsuite_property(request: Any, record_testsuite_property: Any) -> Any:
    """Stand in for pytest's fixture, which still checks the types."""
    recorder = request.config.stash[RECORDER]

    def record(name: str, value: object) -> None:
        record_testsuite_property(name, value)
        recorder.record(-1, name, value)

    return record
