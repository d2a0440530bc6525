"""What a lane is asked for, and what becomes of tests that no lane could run.

Values only; knows neither workers nor the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from pytest_remotegpu.reports import Shipped
from pytest_remotegpu.summary import RunSummary

__all__ = ["NOTHING_FOLLOWS", "Following", "Stretch", "fail_all", "next_test"]

NOTHING_FOLLOWS: Final = "nothing"
Following = Shipped | Literal["nothing"] | None
"""The test that will run after those of a stretch; ``None`` where that is not known."""


class Stretch(Struct):
    """Tests that were asked for: to stop after so many failures (0: never), and what follows."""

    tests: list[Shipped]
    failures: int = 0
    following: Following = None


def next_test(stretches: Sequence[Stretch]) -> list[Shipped]:
    """Give the test that a worker runs next, where it has one: what it may have begun unheard."""
    left = [test for test in stretches[0].tests if not test.done] if stretches else []
    return left[:1]


def fail_all(
    tests: Iterable[Shipped], cause: str, verdict: str, summary: RunSummary
) -> list[Shipped]:
    """Make those that have no verdict errors that say why; the first one says it whole.

    :param verdict: as :meth:`Shipped.fail` takes it.
    :return: those.
    """
    head, *more = cause.splitlines() or [cause]
    summary.blame(head)
    text = f"not run: {head}" + ("\n" + "\n".join(more) if more else "")
    left = [test for test in tests if not test.done]
    if not left:  # no test can say so
        summary.fail(head)
    for test in left:
        test.started = False
        test.reports.clear()
        test.fail(text, verdict=verdict)
        text = f"not run: {head}"
    return left
