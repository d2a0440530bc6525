"""A report that says no more than that a phase has passed, made an event without asking anybody.

Nearly all reports are of this kind, and in a suite of small tests they are most of what a worker
has to do. Whatever else is on one, it takes the long way, through ``fit`` and ``packing``, which
make the same event of it. Knows pytest's reports and the wire's events.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import events, packing
from pytest_remotegpu.protocol.plain import to_text

__all__ = ["Bare"]

PHASES: Final = {when: to_text(when) for when in ("setup", "call", "teardown")}
PASSED: Final = to_text("passed")
OWN: Final = "_pytest."
"""How the names of pytest's own modules begin."""


class Bare:
    """Makes events of such reports, for one session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._hook: Any = config.hook.pytest_report_to_serializable
        self._present: list[Any] = []
        self._usual = False
        self._fields: frozenset[str] = frozenset()
        self._open: dict[str, Any] = {}

    def event(
        self, item: int, report: pytest.TestReport, before: list[str] | None
    ) -> events.Report | None:
        """Make the event of a report; ``None`` where it needs the long way.

        :param before: the names of the keywords that were sent for this test already.
        """
        present = self._hook.get_hookimpls()
        if present != self._present:
            self._learn(present)
        if (
            not self._usual
            or type(report) is not pytest.TestReport
            or not self._says_nothing(report)
        ):
            return None
        keywords = report.keywords
        if type(keywords) is not dict or set(map(type, keywords)) != {str}:
            return None
        if set(map(type, keywords.values())) != {int} or set(keywords.values()) != {1}:
            return None
        names = list(keywords)
        return events.Report(
            item,
            PHASES[report.when],  # one of them, as was seen
            PASSED,
            report.duration,
            report.start,
            report.stop,
            None if names == before else list(map(to_text, names)),
            [],
            self._open,
        )

    def _says_nothing(self, report: pytest.TestReport) -> bool:
        return (
            report.longrepr is None
            and not report.sections
            and not report.user_properties
            and report.outcome == "passed"
            and report.when in PHASES
            and vars(report).keys() == self._fields
            and type(report.duration) is type(report.start) is type(report.stop) is float
        )

    def _learn(self, present: list[Any]) -> None:
        """See how pytest itself makes data of such a report, and whether anybody else would."""
        self._present = present
        bare = pytest.TestReport(
            nodeid="",
            location=("", 0, ""),
            keywords={},
            outcome="passed",
            longrepr=None,
            when="call",
        )
        data = self._hook(config=self._config, report=bare) or {}
        self._fields = frozenset(vars(bare))
        self._usual = all(impl.function.__module__.startswith(OWN) for impl in present)
        self._open = (
            packing.pack_report(0, data, [], keywords=False, changed=[]).open if data else {}
        )
