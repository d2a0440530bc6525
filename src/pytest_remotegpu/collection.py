"""Collection as this side sees it: which files hold the shipped tests, what a test is made of.

Knows nothing of workers or of the wire, nor who has collected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import cloudpickle
import pytest

from pytest_remotegpu.grown import FarItem

__all__ = ["Collection"]


class Collection:
    """Remembers the tests as they were collected, before anything was deselected or reordered."""

    def __init__(self) -> None:
        self._items: list[pytest.Item] = []
        self._ids: dict[pytest.Item, str] = {}
        self._functions: dict[str, list[pytest.Item]] | None = None

    def record(self, items: Iterable[pytest.Item]) -> None:
        """Keep the whole list in the order of collection."""
        self._items = list(items)
        self._ids = {item: item.nodeid for item in self._items}
        self._functions = None

    def id_of(self, item: pytest.Item) -> str:
        """Give a test's id without the name of a group, which pytest-xdist may have appended."""
        collected = self._ids.get(item)
        return collected if collected and item.nodeid.startswith(f"{collected}@") else item.nodeid

    def files(self, items: Iterable[pytest.Item]) -> list[str]:
        """List the files of the tests, each once, in order; empty where one is no plain file."""
        paths = dict.fromkeys(item.path for item in items)
        return [str(path) for path in paths] if all(path.is_file() for path in paths) else []

    def wanted(self, item: pytest.Item) -> dict[str, Any]:
        """Describe a test that the far side has no id for: its ordinal and its values."""
        function = _function_id(item)
        siblings = self._siblings(function)
        callspec: Any = getattr(item, "callspec", None)
        return {
            "nodeid": self.id_of(item),
            "name": item.name,
            "function": function,
            "ordinal": next(
                (i for i, other in enumerate(siblings) if other is item), len(siblings)
            ),
            "count": len(siblings),
            "values": _values(item, callspec.params) if callspec else {},
            "indices": dict(callspec.indices) if callspec else {},
            "id": callspec.id if callspec else "",
            "marks": _pickled(list(callspec.marks)) if callspec and not _is_far(item) else None,
        }

    def _siblings(self, function: str) -> list[pytest.Item]:
        if self._functions is None:
            self._functions = defaultdict(list)
            for item in self._items:
                self._functions[_function_id(item)].append(item)
        return self._functions.get(function, [])


def _function_id(item: pytest.Item) -> str:
    name = getattr(item, "originalname", None) or item.name
    parent = item.parent.nodeid if item.parent is not None else ""
    return f"{parent}::{name}"


def _is_far(item: pytest.Item) -> bool:
    return isinstance(item, FarItem)


def _values(item: pytest.Item, params: Mapping[str, Any]) -> dict[str, bytes | None]:
    """Pickle the parameters; of a test that was collected there only their look is here."""
    if _is_far(item):
        return dict.fromkeys(params)
    return {name: _pickled(value) for name, value in params.items()}


def _pickled(value: Any) -> bytes | None:
    try:
        pickled: bytes = cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 -- a user's __reduce__ or __getstate__ may raise anything
        return None
    return pickled
