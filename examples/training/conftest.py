"""What all tests of this example share. Imports no torch: only where they run it is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest) -> None:
    """Keep so small a model in one thread of a CPU: several would wait for each other."""
    if request.node.get_closest_marker("gpu"):
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_group_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """See that a test takes down the process group that it has made; ``rank_group`` does so."""
    yield
    distributed: Any = sys.modules.get("torch.distributed")
    if "rank_group" not in request.fixturenames and distributed is not None:
        left = distributed.is_available() and distributed.is_initialized()
        assert not left, "the test has left a process group behind; call destroy_process_group()"


@pytest.fixture
def shared_path(rank_group: Any, tmp_path: Path) -> Path:
    """Give rank 0's folder to all ranks: ``tmp_path`` is another one in each."""
    assert rank_group is not None
    told = [str(tmp_path)]
    sys.modules["torch.distributed"].broadcast_object_list(told, src=0)
    return Path(told[0])
