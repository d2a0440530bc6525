"""What becomes of tests whose worker or process was lost, and how often workers may be.

Knows what was lost and what ran there; knows no worker and no clock.
"""

from __future__ import annotations

from typing import Final

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.reports import Shipped

__all__ = ["MOST", "MOST_GUILTY", "Losses", "crash"]

MOST: Final = 3
"""Times that work is given to a further worker when one was preempted, or lost while idle."""
MOST_GUILTY: Final = 3
"""Tests in a row that workers do not survive; after those it is the far side, and no test."""
MOST_NAMED: Final = 5
"""Tests that are named where one was killed for what may be their doing."""


class Losses:
    """Counts workers that were lost in a row, with no verdict in between, for no test's doing.

    One that is lost as a test is to begin may be that test's doing, which ends it before it is
    known to run. It is nobody's at first; a test that is handed out alone and whose workers are
    lost all the same is guilty.
    """

    def __init__(self) -> None:
        self._row = 0
        self._preempted = self._unheard = False
        self._guilty: list[Shipped] = []

    def progress(self, test: Shipped) -> None:
        """Begin a new row, since a test has its verdict, if it is not one for lost workers."""
        if test not in self._guilty:
            self._row = 0
            self._unheard = False
            self._guilty.clear()

    def count(self, running: list[Shipped], due: list[Shipped], *, preempted: bool) -> None:
        """Take note of a worker that was lost.

        :param running: the tests that ran on it. :param due: the one that may have.
        :param preempted: whether it was taken away.
        """
        if preempted or not running:
            self._row += 1
            self._preempted = preempted
            self._unheard = self._unheard or bool(due and not preempted)
        for test in running:
            if preempted:
                test.preempted += 1
            else:
                test.losses += 1
        for test in () if preempted else due:
            test.due += 1

    @property
    def too_many(self) -> bool:
        """Whether no further worker is to be asked for."""
        return self._row > MOST or len(self._guilty) >= MOST_GUILTY

    def why(self, reason: str) -> str:
        """Say why no further worker is asked for: what became of the last one, and how often."""
        if not self.too_many:
            return reason
        if self._row <= MOST:
            times = f"{len(self._guilty)} tests in a row"
            return f"workers were lost again and again as a test was to begin, {times}: {reason}"
        idle = "lost before a test was known to run" if self._unheard else "lost while idle"
        what = f"preempted, or {idle}," if self._preempted else idle
        return f"workers were {what} {self._row} times in a row: {reason}"

    def settle(self, test: Shipped, reason: str) -> bool:
        """Let a test that ran on a lost worker, or may have, be tried again, or come to an end.

        :return: whether it came to an end.
        """
        if test.losses > 1:
            test.fail(f"the worker was lost twice while this test ran: {reason}", verdict="crash")
            return True
        if test.losses + test.due > (1 if self._guilty else MOST):
            self._guilty.append(test)
            self._row = 0
            test.started = True
            lost = test.losses + test.due
            head = f"the worker was lost {lost} times as this test was to begin"
            test.fail(f"{head}, at last with no other one to run: {reason}", verdict="crash")
            return True
        test.reset()
        if test.preempted > MOST:
            times = f"its worker was preempted {test.preempted} times"
            test.fail(f"not run to its end, since {times}: {reason}")
        return test.preempted > MOST

    def alone(self, tests: list[Shipped]) -> list[Shipped]:
        """Pick from tests that ran on a lost worker, or may have, those to be tried alone."""
        return [test for test in tests if not test.done and (test.losses or test.due)]


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
