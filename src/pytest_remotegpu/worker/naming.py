"""Ids of parameters that hold a path of the project: by its place on the user's side.

A file that is given as a parameter lies elsewhere on a far side, often somewhere else each time,
and would give each test of it another id there. Knows pytest's hooks and its ``Metafunc``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

__all__ = ["Naming"]

LONGEST: Final = 100
"""Characters from which on pytest 9.2 makes no id of a text; see its
``parametrize_long_str_id_strategy``."""
UNESCAPED: Final = "disable_test_id_escaping_and_forfeit_all_rights_to_community_support"
PARAMETER: Final = type(pytest.param())


class Naming:
    """Names the project's folder in ids.

    :param there: the folder on this side. :param here: the same on the user's.
    """

    def __init__(self, there: str, here: str) -> None:
        self._there, self._here = there, here

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Look at the ids that are given, by all who parametrize the test."""
        original = metafunc.parametrize
        signature = inspect.signature(original)

        @functools.wraps(original)
        def parametrize(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            given = None
            with contextlib.suppress(TypeError):  # the original says so
                given = signature.bind(*args, **kwargs)
            if given is not None:
                told = given.arguments
                told["argvalues"] = self._values(told["argvalues"])
                if "ids" in told:
                    told["ids"] = self._ids(told["ids"])
                args, kwargs = given.args, given.kwargs
            original(*args, **kwargs)

        setattr(metafunc, "parametrize", parametrize)  # noqa: B010 -- a method, to a type checker

    @pytest.hookimpl(trylast=True)
    def pytest_make_parametrize_id(self, config: pytest.Config, val: object) -> str | None:
        """Make the id of a text that pytest would make, were it the one of the user's side."""
        if not isinstance(val, str) or self._there not in val:
            return None
        named = val.replace(self._there, self._here)
        strategy = _strategy(config) if len(named) > LONGEST else "legacy"
        if strategy == "sha256":
            return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
        if strategy != "legacy":
            return None
        return named if config.getini(UNESCAPED) else named.encode("unicode_escape").decode("ascii")

    def _named(self, text: Any) -> Any:
        return text.replace(self._there, self._here) if isinstance(text, str) else text

    def _values(self, values: Any) -> Any:
        """Name the folder in ids of ``pytest.param``."""
        __tracebackhide__ = True  # what a generator raises is the user's
        if not isinstance(values, Iterable):
            return values
        found = []
        for each in values:
            own = isinstance(each, PARAMETER)
            found.append(each._replace(id=self._named(each.id)) if own else each)
        return found

    def _ids(self, ids: Any) -> Any:
        """Name the folder in ids, or in what gives them; the length of a list stays."""
        if callable(ids):
            return self._giving(ids)
        if isinstance(ids, list | tuple):
            return [self._named(each) for each in ids]
        return map(self._named, ids) if isinstance(ids, Iterable) else ids

    def _giving(self, ids: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def given(value: Any) -> Any:
            __tracebackhide__ = True
            return self._named(ids(value))

        return given


def _strategy(config: pytest.Config) -> str:
    """Say what pytest makes of long texts: ``legacy`` before there was a choice."""
    try:
        return str(config.getini("parametrize_long_str_id_strategy"))
    except (KeyError, ValueError):
        return "legacy"
