"""A service for each test; all of it needs Modal's client, and Linux for the containers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from .standing import Stand, standing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what can't run on this system, and say why."""
    if sys.platform != "linux":
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="containers are processes of Linux"))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stand]]:
    """Start services with options of their own."""
    with ExitStack() as stack:

        def begin(**options: Any) -> Stand:
            folder = tmp_path / f"service{len(list(tmp_path.iterdir()))}"
            context: AbstractContextManager[Stand] = standing(folder, monkeypatch, **options)
            return stack.enter_context(context)

        yield begin


@pytest.fixture
def stand(start: Callable[..., Stand]) -> Stand:
    """Start a service with nothing special about it."""
    return start()
