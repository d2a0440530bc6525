"""Find the test that the user's side meant: by its id, then by its values, then by its ordinal.

The only file here that takes what pytest calls private: a function item that is rebuilt from
shipped parameter values needs its sibling's fixture information and call specification. It does so
behind a check that they have the form it knows, and falls back on the ordinal where they have not.
Knows nothing of orders or of how values travel.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest

__all__ = ["Matcher", "Wanted", "function_id"]

KNOWN_FIELDS = {"params", "indices", "_arg2scope", "_idlist", "marks"}


@dataclass(frozen=True)
class Wanted:
    """What the user's side says of a test that was not found by its id.

    :ivar function: the id of the test without its parameters.
    :ivar ordinal: its place among the parametrised calls of that function, from 0.
    :ivar count: the number of those calls.
    :ivar values: for each parameter a cloudpickle of its value, or ``None`` where it has none.
    :ivar marks: a cloudpickle of the marks of this parameter set, or ``None``.
    """

    nodeid: str
    name: str
    function: str
    ordinal: int
    count: int
    values: dict[str, bytes | None]
    indices: dict[str, int]
    id: str
    marks: bytes | None


def function_id(item: pytest.Item) -> str:
    """Name the function behind a test, whatever its parameters."""
    name = getattr(item, "originalname", None) or item.name
    parent = item.parent.nodeid if item.parent is not None else ""
    return f"{parent}::{name}"


class Matcher:
    """Pairs the ids of an order with the tests that were collected here.

    :param found: the collected tests in the order of their collection.
    :param ids: the ids that were handed out, in their order.
    """

    def __init__(self, found: list[pytest.Item], ids: list[str]) -> None:
        self._found = found
        self._ids = ids
        self.items: list[pytest.Item | None] = self._by_id()
        self._functions: dict[str, list[pytest.Item]] | None = None

    def _by_id(self) -> list[pytest.Item | None]:
        known: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in reversed(self._found):
            known[item.nodeid].append(item)
        first = {nodeid: items[-1] for nodeid, items in known.items()}
        return [
            known[nodeid].pop() if known.get(nodeid) else _again(first.get(nodeid))
            for nodeid in self._ids
        ]

    def missing(self) -> list[int]:
        """Give the places of the ids that nothing was found for."""
        return [place for place, item in enumerate(self.items) if item is None]

    def following(self) -> list[pytest.Item | None]:
        """Give for each place the next test there is, whose fixtures decide what is torn down."""
        found: list[pytest.Item | None] = []
        after: pytest.Item | None = None
        for item in reversed(self.items):
            found.append(after)
            after = item if item is not None else after
        return found[::-1]

    def settle(self, place: int, wanted: Wanted) -> str:
        """Find a test by its values or its ordinal.

        :return: nothing, or why there is none.
        """
        siblings = self._siblings(wanted.function)
        item, why = _rebuild(siblings, wanted)
        if item is None:
            taken = {id(found) for found in self.items if found is not None}
            candidate = siblings[wanted.ordinal] if len(siblings) == wanted.count else None
            if candidate is not None and id(candidate) not in taken:
                item = candidate
        self.items[place] = item
        return "" if item is not None else self._explain(wanted, siblings, why)

    def _siblings(self, function: str) -> list[pytest.Item]:
        if self._functions is None:
            self._functions = defaultdict(list)
            for item in self._found:
                self._functions[function_id(item)].append(item)
        return self._functions.get(function, [])

    def _explain(self, wanted: Wanted, siblings: list[pytest.Item], why: str) -> str:
        there = [item.nodeid for item in siblings]
        close = there or difflib.get_close_matches(
            wanted.nodeid, [i.nodeid for i in self._found], 5, 0.6
        )
        what = (
            f"{wanted.nodeid!r} is chosen more than once, and no test of its kind can be made again"
            if wanted.nodeid in there
            else f"the far side has no test {wanted.nodeid!r}, "
            f"and it could not be made from its values ({why})"
        )
        where = f"here its function has {wanted.count} calls, there {len(siblings)}"
        lines = [
            what,
            f"{where}; the nearest there:",
            *difflib.ndiff([wanted.nodeid], close[:5]),
            "give the parameters stable ids (ids=...), or values that can be pickled",
        ]
        return "\n".join(line.rstrip("\n") for line in lines)


def _again(item: pytest.Item | None) -> pytest.Item | None:
    """Make a test once more that is chosen more often than it was collected; None if it can't be.

    Pytest can't run one and the same twice in a row: it would not tear it down in between.
    """
    if not isinstance(item, pytest.Function) or not hasattr(item, "_fixtureinfo"):
        return None
    try:
        made: pytest.Function = type(item).from_parent(
            item.parent,
            name=item.name,
            callspec=getattr(item, "callspec", None),
            fixtureinfo=item._fixtureinfo,
            originalname=item.originalname,
        )
    except Exception:  # noqa: BLE001 -- a plugin's class may want more, and raise what it likes
        return None
    made.own_markers[:] = item.own_markers
    made.keywords.update({name: item.keywords[name] for name in item.keywords})
    made.fixturenames = list(item.fixturenames)
    made.user_properties += item.user_properties
    return made


def _rebuild(siblings: list[pytest.Item], wanted: Wanted) -> tuple[pytest.Item | None, str]:
    """Make the test anew from a collected sibling and the shipped values."""
    sibling = next((item for item in siblings if getattr(item, "callspec", None) is not None), None)
    if not isinstance(sibling, pytest.Function):
        return None, "no parametrised test of this function was collected there"
    callspec: Any = sibling.callspec
    fields = (
        {field.name for field in dataclasses.fields(callspec)}
        if dataclasses.is_dataclass(callspec)
        else set()
    )
    if not fields >= KNOWN_FIELDS or not hasattr(sibling, "_fixtureinfo"):
        return (
            None,
            f"pytest {pytest.__version__} builds its items in a way unknown to this version",
        )
    unshipped = [name for name, value in wanted.values.items() if value is None]
    if unshipped:
        names = ", ".join(unshipped)
        return None, f"the values of {names} can't be pickled, or were never on your side"
    if set(wanted.values) != set(callspec.params):
        return (
            None,
            f"its parameters are {sorted(wanted.values)} here and {sorted(callspec.params)} there",
        )
    try:
        params = {
            name: cloudpickle.loads(value)
            for name, value in wanted.values.items()
            if value is not None
        }
        marks = cloudpickle.loads(wanted.marks) if wanted.marks else []
    except Exception as error:  # noqa: BLE001 -- a user's __setstate__ may raise anything
        return None, f"a value can't be unpickled: {type(error).__name__}: {error}"
    rebuilt: pytest.Function = pytest.Function.from_parent(
        sibling.parent,
        name=wanted.name,
        callspec=dataclasses.replace(
            callspec,
            params=params,
            indices=wanted.indices,
            marks=marks,
            _idlist=type(callspec._idlist)([wanted.id]),
        ),
        fixtureinfo=sibling._fixtureinfo,
        originalname=sibling.originalname,
    )
    return rebuilt, ""
