"""A pytest plugin that damages reports, one field on each test of the small project.

It stands for a faulty transport, so that the comparison can be seen to notice one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from typing import Any

import pytest


class OtherReport(pytest.TestReport):
    """A report of another class."""


def cut_sections(report: Any) -> None:
    """Lose the last character of each section, and add a property."""
    report.sections = [(title, content[:-1]) for title, content in report.sections]
    report.user_properties.append(("planted", 1))


def setter(**changes: Any) -> Callable[[Any], None]:
    """Give a function that sets attributes of a report."""
    return lambda report: vars(report).update(changes)


def longrepr_as_text(report: Any) -> None:
    """Lose the structure of a failure or skip."""
    report.longrepr = str(report.longrepr)


def add_keyword(report: Any) -> None:
    """Add a keyword."""
    report.keywords = {**report.keywords, "planted": 1}


def other_class(report: Any) -> None:
    """Change the class of a report."""
    report.__class__ = OtherReport


DAMAGES: dict[str, Callable[[Any], None]] = {
    "test_far_one": cut_sections,
    "test_far_two": longrepr_as_text,
    "test_far_three": setter(wasxfail="planted"),
    "test_far_five": setter(longrepr=("elsewhere.py", 1, "planted")),
    "test_far_four[0]": setter(location=("elsewhere.py", 1, "test_far_four[0]")),
    "test_far_four[1]": setter(planted="further"),
    "test_far_four[2]": setter(outcome="passed"),
    "test_far_four[3]": setter(context="planted"),
    "test_far_four": setter(duration=0),
    "test_here_one": add_keyword,
    "test_here_two": other_class,
    "test_here_three": setter(longrepr="planted"),
}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Damage the report that decides."""
    report = yield
    if (report.when == "call" or report.skipped) and item.name in DAMAGES:
        DAMAGES[item.name](report)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lose the last item."""
    del items[-1]


def pytest_runtest_teardown() -> None:
    """Warn of something."""
    warnings.warn("planted", UserWarning, stacklevel=1)
