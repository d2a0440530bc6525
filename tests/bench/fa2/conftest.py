"""What computes needs torch; what is asked, and what a card can do, does not."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = [
        f"test_fa2_{name}.py" for name in ("masks", "packages", "parity", "run", "ways")
    ]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Let small problems run in one thread: on a busy machine several wait for each other."""
    try:
        import torch  # noqa: PLC0415 -- it may not be installed
    except ImportError:
        yield
    else:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)
