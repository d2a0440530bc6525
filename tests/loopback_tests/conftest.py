"""A service for each test; all of it is skipped where there is no client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .standing import Stand

pytest.importorskip("modal", reason="needs the client: pip install 'pytest-remotegpu[modal]'")


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stand]]:
    """Start services with options of their own."""
    from .standing import standing  # noqa: PLC0415 -- there may be no client

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
