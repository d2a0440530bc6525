"""What a test sees of its GPUs in the process that runs it, and what becomes of it where they are missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_remotegpu import gpu
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.outputs import folder_name
from pytest_remotegpu.selection import shape_of

__all__ = ["Gpus", "artifacts_dir", "artifacts_root", "gpu_of", "judge", "lacking"]

LACKING = pytest.StashKey[int]()
RUNNER = "remotegpu-runner"


@dataclass(frozen=True)
class Gpus:
    """The GPUs of one test.

    :ivar type: the card's name, ``pretend`` where the host pretends. :ivar count: how many.
    :ivar memory: bytes of one card; ``None`` where it is not known. :ivar devices: a ``torch.device`` each.
    """

    type: str
    count: int
    memory: int | None
    devices: tuple[Any, ...]


def lacking(config: pytest.Config) -> int:
    """Say how many marked tests were not run here for lack of a GPU."""
    return config.stash.get(LACKING, 0)


def judge(config: pytest.Config, items: list[pytest.Item], *, own: bool, required: bool) -> None:
    """Skip, or fail, marked tests that this host can't run; a project's own policy stands above that.

    :param own: whether the project registers a ``gpu`` marker. :param required: whether a skip is an error.
    """
    if own and not required:
        return
    here = len(gpu.visible_devices(os.environ))
    for item in items:
        try:
            shape = shape_of(item, {})
        except UsageError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None
        if shape is None or shape.count <= here:
            continue
        config.stash[LACKING] = config.stash.get(LACKING, 0) + 1
        reason = (
            f"needs {shape}, this host shows {here}; run it with --remote=SPEC (see pytest --help)"
        )
        if required:
            item.add_marker(pytest.mark.usefixtures("_gpu_is_missing"))
        else:
            item.add_marker(pytest.mark.skip(reason=reason))


def artifacts_root(config: pytest.Config, given: str | None) -> Path:
    """Name the folder for artifacts: the one that was asked for, else one in pytest's cache."""
    if given:
        return Path(config.invocation_params.dir, given)
    cache = getattr(config, "cache", None)
    folder = (
        cache.mkdir("remotegpu")
        if cache is not None
        else config.rootpath / ".pytest_cache" / "remotegpu"
    )
    return Path(folder, "artifacts")


def artifacts_dir(request: pytest.FixtureRequest) -> Path:
    """Make the folder of the requesting test."""
    runner: Any = request.config.pluginmanager.get_plugin(RUNNER)
    if runner is not None:
        folder = Path(runner.options["artifacts"], str(runner.current))
    else:
        root = artifacts_root(
            request.config, getattr(request.config.option, "remote_artifacts", None)
        )
        folder = root / folder_name(request.node.nodeid)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def gpu_of(request: pytest.FixtureRequest) -> Gpus:
    """Describe the requesting test's GPUs; imports torch."""
    try:
        shape = shape_of(request.node, {}) or gpu.Shape(0)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    runner: Any = request.config.pluginmanager.get_plugin(RUNNER)
    count = runner.order.gpus if runner is not None else shape.count
    torch = pytest.importorskip(
        "torch", reason="the gpu fixtures need torch, which is not installed there"
    )
    if runner is not None and runner.options["pretend"] is not None:
        return Gpus("pretend", count, None, tuple(torch.device("cpu") for _ in range(count)))
    if torch.cuda.device_count() < count:
        pytest.fail(
            f"{count} GPUs were promised and torch sees {torch.cuda.device_count()}", pytrace=False
        )
    first = torch.cuda.get_device_properties(0)
    devices = tuple(torch.device("cuda", index) for index in range(count))
    return Gpus(first.name, count, first.total_memory, devices)
