"""How many threads torch takes, for folders of tests whose models and problems are small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

__all__ = ["one_thread"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: on a busy machine several wait for each other."""
    try:
        import torch  # noqa: PLC0415 -- it may not be installed
    except ImportError:
        yield
    else:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)
