"""``--remote-oom-retry``: tests that lacked GPU memory are run once more, on cards that have more.

Decides which, and puts both attempts together: the first one counts as a rerun, never as nothing.
Knows backends by their contract; starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pytest_remotegpu.backends.base import Backend, Offers
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol.packing import LACKED, NEEDS
from pytest_remotegpu.reports import Shipped

__all__ = ["AUTO", "Larger", "look", "named"]

OPTION: Final = "--remote-oom-retry"
AUTO: Final = "auto"
"""The value of the option that stands for the cheapest card that has more memory."""
RETRIED: Final = "remotegpu_oom_retry"
"""The user property of the second attempt's reports: where the first one was."""


def named(text: str) -> tuple[str, ...]:
    """Read the option's value: names of types of cards, any of which will do, or ``auto``.

    :return: the names; none for ``auto``.
    :raises UsageError: where it names none.

    >>> named("A100-80GB, H100"), named("auto")
    (('A100-80GB', 'H100'), ())
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise UsageError(
            f"{OPTION}={text} names no card", fix=f"{OPTION}={AUTO}, or a type such as A100-80GB"
        )
    return () if names == (AUTO,) else names


def look(backend: Backend, asked: str) -> None:
    """See that there are such cards, and that they have more memory than tests get by default.

    :raises UsageError: where that is not so.
    """
    if not isinstance(backend, Offers):
        raise UsageError(
            f"{OPTION}={asked} is for backends with several types of card, such as modal; "
            f"{backend.name} has what its host has"
        )
    names = named(asked)
    try:
        backend.larger(Shape(), names, 0.0)
    except UsageError as error:
        if names:  # else tests whose marks ask for less may still have a larger one
            raise UsageError(f"{OPTION}={asked}: {error}") from None


class Larger:
    """Keeps back tests that lacked memory until all others are done.

    :param asked: the option's value; ``None`` where it was not given.
    :param note: told what the user should know. :param charge: of each attempt, once.
    :ivar in_order: whether tests run one after the other, so that a failure may end the session.
    """

    def __init__(
        self,
        backend: Backend,
        asked: str | None,
        *,
        note: Callable[[str], None],
        charge: Callable[[Shipped], None],
    ) -> None:
        self._backend = backend
        self._charge = charge
        self._asked = asked
        self._names = named(asked) if asked is not None else ()
        self._note = note
        self._first: dict[Any, Shipped] = {}
        self._shapes: dict[Any, Shape] = {}
        self.in_order = False

    def takes(self, test: Shipped) -> bool:
        """Take a test that is to be run again; say whether it is one."""
        if self._asked is None or test.item in self._first or test.verdict:
            return False
        failed = [report for report in test.reports if report.failed]
        if not failed or not any(_property(report, LACKED) for report in failed):
            return False
        why_not = self._choose(test, max(_gib(report) for report in failed))
        if why_not:
            self._note(f"{OPTION}: {test.item.nodeid} was not run again: {why_not}")
            return False
        self._first[test.item] = test
        self._charge(test)
        return True

    def _choose(self, test: Shipped, gib: float) -> str:
        """Choose the cards for a test; say why it has to be content with those that it had."""
        if self.in_order:
            return "with -x, --maxfail, --stepwise or a debugger its failure counts at once"
        assert isinstance(self._backend, Offers)  # see look
        try:
            self._shapes[test.item] = self._backend.larger(test.shape, self._names, gib)
        except UsageError as error:
            return str(error)
        return ""

    def again(self) -> list[Shipped]:
        """Give the tests to be run now, each as one that has not begun."""
        return [
            Shipped(
                first.item,
                self._shapes[item],
                first.backend,
                timeout=first.timeout,
                alone=first.alone,
            )
            for item, first in self._first.items()
            if item in self._shapes
        ]

    def settle(self, test: Shipped) -> Shipped:
        """Put the first attempt at a test before its second one.

        :return: what is to be shown: the first attempt alone where there was no second one.
        """
        first = self._first.get(test.item)
        if first is None:
            return test
        self._shapes.pop(test.item, None)
        if not (test.started and test.complete()):
            why = next((str(report.longrepr) for report in test.reports if report.failed), "")
            line = why.strip().partition("\n")[0] or "it came to no end"
            self._note(f"{OPTION}: {test.item.nodeid} was not run again: {line}")
            return first
        self._charge(test)
        passed = not any(report.failed for report in test.reports)
        told = f"{test.item.nodeid}: out of memory on {first.gpu}, then {test.gpu}"
        self._note(f"run again on a larger card: {told}: {'passed' if passed else 'failed'}")
        test.tell(RETRIED, first.gpu)
        test.follow(first)
        return test

    def charge(self, test: Shipped) -> None:
        """Charge a test that is to be shown, unless that was done for each of its attempts."""
        if test.item not in self._first:
            self._charge(test)

    def release(self) -> list[Shipped]:
        """Give the tests that wait for a second attempt, which is not to come any more."""
        left = [first for item, first in self._first.items() if item in self._shapes]
        self._shapes.clear()
        return left


def _property(report: Any, name: str) -> object:
    return dict(_pairs(report.user_properties)).get(name)


def _pairs(properties: Sequence[Any]) -> list[tuple[str, object]]:
    """Give those of the properties that are pairs: what came from afar may be anything."""
    return [(str(each[0]), each[1]) for each in properties if len(each) == 2]  # noqa: PLR2004


def _gib(report: Any) -> float:
    value = _property(report, NEEDS)
    return float(value) if type(value) in (int, float) and value > 0 else 0.0  # type: ignore[operator, arg-type]
