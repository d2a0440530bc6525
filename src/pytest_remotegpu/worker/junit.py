"""Fixtures that write into a junit file, for a side that writes none: what they say travels.

Knows nothing of that file, which is the user's side's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_remotegpu.protocol import events, plain
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker.emit import Emitter

__all__ = ["JunitFixtures"]

ANY_FAMILY = ("xunit1", "legacy")


class JunitFixtures:
    """The plugin that replaces them.

    :param family: the format of the user's junit file; empty where none is written.
    :param current: gives the place of the running test.
    """

    def __init__(self, emitter: Emitter, family: str, current: Callable[[], int]) -> None:
        self._emitter = emitter
        self._family = family
        self._current = current

    def _record(self, item: int, name: str, value: object) -> None:
        text = to_text(plain.reduce(value, [], name) if isinstance(value, str) else str(value))
        self._emitter.put(events.Junit(item, to_text(str(name)), text))

    def _warn(self, request: pytest.FixtureRequest, fixture: str) -> None:
        if self._family and self._family not in ANY_FAMILY:
            text = (
                f"{fixture} is incompatible with junit_family '{self._family}' "
                "(use 'legacy' or 'xunit1')"
            )
            request.node.warn(pytest.PytestWarning(text))

    @pytest.fixture
    def record_xml_attribute(self, request: Any, record_xml_attribute: Any) -> Any:
        """Stand in for pytest's fixture, which is asked first for its own warnings."""
        del record_xml_attribute
        self._warn(request, "record_xml_attribute")
        place = self._current()
        return lambda name, value: self._record(place, name, value)

    @pytest.fixture
    def record_property(self, request: Any, record_property: Any) -> Any:
        """Warn as pytest's fixture does where a junit file is written."""
        self._warn(request, "record_property")
        return record_property

    @pytest.fixture(scope="session")
    def record_testsuite_property(self, record_testsuite_property: Any) -> Any:
        """Stand in for pytest's fixture, which still checks the types."""

        def record(name: str, value: object) -> None:
            record_testsuite_property(name, value)
            self._record(-1, name, value)

        return record
