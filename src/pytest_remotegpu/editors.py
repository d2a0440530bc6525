"""Reporters of editors, which are told of shipped tests what they would hear where these run.

Knows them by their modules, and which hooks they read; knows nothing of the wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NoReturn

import pytest

__all__ = ["REPORTERS", "Listeners", "asks_comparisons", "is_reporter"]

REPORTERS: Final = ("vscode_pytest", "teamcity.pytest_plugin")
"""Their modules. They must speak once, and so are not loaded on the far side."""


def is_reporter(plugin: object) -> bool:
    """Say whether a plugin is an editor's reporter, which runs no test."""
    name = plugin.__name__ if isinstance(plugin, ModuleType) else type(plugin).__module__
    return name in REPORTERS


def asks_comparisons(config: pytest.Config) -> bool:
    """Say whether anybody here shows the two sides of a failed comparison."""
    present = config.pluginmanager.hook.pytest_assertrepr_compare.get_hookimpls()
    return any(is_reporter(impl.plugin) for impl in present)


class Listeners:
    """Calls hooks of editors' reporters alone, for what others have heard on the far side."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._callers: dict[str, tuple[list[Any], Callable[..., Any] | None]] = {}

    def at_hand(self, item: pytest.Item) -> None:
        """Say which test is at hand, to those that note it and let others run it."""
        self._call("pytest_runtest_protocol", item=item, nextitem=None)

    def compared(self, op: str, left: str, right: str) -> None:
        """Tell of a failed comparison."""
        self._call("pytest_assertrepr_compare", config=self._config, op=op, left=left, right=right)

    def raised(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Tell of what failed outside of a test's call, which has no other way to be an outcome."""
        if report.failed and report.when != "call" and self._caller("pytest_exception_interact"):
            call = _call_info(report)
            self._call("pytest_exception_interact", node=item, call=call, report=report)

    def _call(self, name: str, **values: Any) -> None:
        caller = self._caller(name)
        if caller is not None:
            caller(**values)

    def _caller(self, name: str) -> Callable[..., Any] | None:
        """Give what calls a hook of reporters only; none where no reporter has it.

        A wrapper around another hook than this is none of theirs: it hears of all tests anyway.
        """
        manager = self._config.pluginmanager
        present = getattr(manager.hook, name).get_hookimpls()
        known, caller = self._callers.get(name, (None, None))
        if present != known:
            wanted = [
                impl.plugin
                for impl in present
                if is_reporter(impl.plugin) and not (impl.wrapper or impl.hookwrapper)
            ]
            others = [impl.plugin for impl in present if impl.plugin not in wanted]
            caller = manager.subset_hook_caller(name, others) if wanted else None
            self._callers[name] = list(present), caller
        return caller


def _call_info(report: pytest.TestReport) -> pytest.CallInfo[Any]:
    """Make up how a phase has ended; its exception has the name of the one there, and no more."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(getattr(crash, "message", report.longrepr))
    found = re.match(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?=:|$)", text, re.ASCII | re.MULTILINE)
    name = "AssertionError" if text.startswith("assert ") else found[1] if found else "Failed"
    raised = type(name, (Exception,), {})(text.removeprefix(f"{name}: "))

    def fail() -> NoReturn:
        raise raised

    when: Any = report.when
    return pytest.CallInfo.from_call(fail, when=when)
