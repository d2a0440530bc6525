"""What becomes of tests whose worker or process was lost, and how often workers may be.

Knows what was lost and what ran there; knows no worker and no clock.
"""

from __future__ import annotations

from typing import Final

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.reports import Shipped

__all__ = ["MOST", "Losses", "crash"]

MOST: Final = 3
"""Times that work is given to a further worker when one was preempted, or lost while idle."""
MOST_NAMED: Final = 5
"""Tests that are named where one was killed for what may be their doing."""


class Losses:
    """Counts workers that were lost in a row, with no verdict in between, for no test's doing."""

    def __init__(self) -> None:
        self._row = 0
        self._preempted = False

    def progress(self) -> None:
        """Begin a new row, since a test has its verdict."""
        self._row = 0

    def count(self, running: list[Shipped], *, preempted: bool) -> bool:
        """Take note of a worker that was lost.

        :param running: the tests that ran on it. :param preempted: whether it was taken away.
        :return: whether a further one may be asked for.
        """
        if preempted or not running:
            self._row += 1
            self._preempted = preempted
        for test in running:
            if preempted:
                test.preempted += 1
            else:
                test.losses += 1
        return self._row <= MOST

    def why(self, reason: str) -> str:
        """Say why no further worker is asked for: what became of the last one, and how often."""
        if self._row <= MOST:
            return reason
        what = "preempted, or lost while idle," if self._preempted else "lost while idle"
        return f"workers were {what} {self._row} times in a row: {reason}"

    @staticmethod
    def settle(test: Shipped, reason: str) -> bool:
        """Let a test that ran on a lost worker be tried again, or come to an end.

        :return: whether it came to an end.
        """
        if test.losses > 1:
            test.fail(f"the worker was lost twice while this test ran: {reason}", verdict="crash")
            return True
        test.reset()
        if test.preempted > MOST:
            times = f"its worker was preempted {test.preempted} times"
            test.fail(f"not run to its end, since {times}: {reason}")
        return test.preempted > MOST


def crash(event: events.Crashed, before: list[str]) -> tuple[str, list[tuple[str, str]], str]:
    """Say what has become of a test whose process has ended, as :meth:`Shipped.fail` takes it.

    :param before: the tests that ran in it before.
    """
    text, stack = event.cause, from_text(event.stack).strip()
    sections = [
        (f"Captured {name} until the crash", from_text(output))
        for name, output in (("stdout", event.stdout), ("stderr", event.stderr))
        if output
    ]
    if before:
        text += f"; tests that ran in it before: {', '.join(before[-MOST_NAMED:])}"
    verdict = "timeout" if event.timeout else "crash"
    return f"{text}\n\n{stack}" if stack else text, sections, verdict
