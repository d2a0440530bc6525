"""The process group that tests of several ranks share, where they ask for one.

It is made for the first test that asks, stays for those that follow it and ask too, and goes before
one that does not. Knows torch, late; knows neither launcher nor wire.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import inplace
from pytest_remotegpu.protocol import orders

__all__ = ["rank_group"]

NAME: Final = "remotegpu-groups"
FIXTURE: Final = "rank_group"
LACK: Final = (
    "rank_group is for tests of several ranks: give the mark a launcher, such as "
    'gpu(2, launcher="torchrun")'
)


class Groups:
    """The plugin that holds the group of this rank; registered once a test has asked for one."""

    def __init__(self) -> None:
        self._own: Any = None
        self._wanted = False

    def join(self, request: pytest.FixtureRequest) -> Any:
        """Give the group; make it where there is none."""
        distributed = _distributed()
        if not distributed.is_initialized():
            self._own = _make(request, distributed)
        return distributed.group.WORLD

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """See whether the next test asks for the group too."""
        self._wanted = nextitem is not None and FIXTURE in getattr(nextitem, "fixturenames", ())

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """Let the group go once the test has its result, where the next one does without."""
        if not self._wanted:
            self._leave()

    def pytest_sessionfinish(self) -> None:
        """Let it go in any case."""
        self._leave()

    def _leave(self) -> None:
        own, self._own = self._own, None
        distributed: Any = sys.modules.get("torch.distributed")
        if own is None or not distributed.is_initialized() or distributed.group.WORLD is not own:
            return  # a test has destroyed it, and may have made another one
        with contextlib.suppress(Exception):  # of ranks that have failed; they are replaced anyway
            distributed.destroy_process_group()


def _distributed() -> Any:
    pytest.importorskip("torch", reason="rank_group needs torch, which is not installed there")
    return pytest.importorskip("torch.distributed", reason="this torch has no process groups")


def _make(request: pytest.FixtureRequest, distributed: Any) -> Any:
    """Make the default group of all ranks: NCCL where they have cards, gloo elsewhere."""
    device = inplace.gpu_of(request).devices[0]
    known: dict[str, Any] = {"backend": "gloo", "timeout": orders.GROUPS_END}
    if device.type == "cuda":
        sys.modules["torch"].cuda.set_device(device)
        known |= {"backend": "cpu:gloo,cuda:nccl", "device_id": device}
    runner: Any = request.config.pluginmanager.get_plugin(inplace.RUNNER)
    if runner is not None:
        rank, world = inplace.rank_of(request)
        folder = Path(runner.site.artifacts).parent
        file = folder / f"group-{os.getppid()}-{runner.current}"  # the same one in all ranks
        store = distributed.FileStore(str(file), world)
        known |= {"store": distributed.PrefixStore(FIXTURE, store), "rank": rank}
        known |= {"world_size": world}
    distributed.init_process_group(**known)
    return distributed.group.WORLD


def rank_group(request: pytest.FixtureRequest) -> Any:
    """Give the process group of all ranks of the requesting test."""
    if inplace.rank_of(request) == (0, 1) and "WORLD_SIZE" not in os.environ:
        pytest.fail(LACK, pytrace=False)
    manager = request.config.pluginmanager
    groups: Any = manager.get_plugin(NAME)
    if groups is None:
        groups = Groups()
        manager.register(groups, NAME)
    return groups.join(request)
