"""One benchmark at a time on a device."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

import pytest

from pytest_remotegpu.bench import alone

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")


def _works(folder: Path, device: str, environ: dict[str, str], times: int) -> None:
    """Note when it begins and ends, with a breath in between."""
    for _ in range(times):
        with alone.on(device, environ, folder), (folder / "log").open("ab", buffering=0) as log:
            log.write(f"{os.getpid()} ".encode())
            os.sched_yield() if hasattr(os, "sched_yield") else None
            log.write(f"{os.getpid()}\n".encode())


def run(folder: Path, *asked: tuple[str, dict[str, str]]) -> list[str]:
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_works, args=(folder, device, environ, 300))
        for device, environ in asked
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(100)
        assert worker.exitcode == 0
    return (folder / "log").read_text().splitlines()


def test_nobody_comes_in_between(tmp_path: Path) -> None:
    lines = run(tmp_path, *[("cuda:0", {"CUDA_VISIBLE_DEVICES": "3"})] * 3)
    assert len(lines) == 900
    for line in lines:
        first, second = line.split()
        assert first == second


@pytest.mark.parametrize(
    ("device", "environ", "waits"),
    [
        ("cuda:0", {}, True),
        ("cuda:1", {}, False),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "1"}, False),
        ("cuda:0", {"WORLD_SIZE": "1"}, True),
        ("cuda:0", {"WORLD_SIZE": "2"}, False),  # ranks may have to meet
    ],
)
def test_who_waits_for_whom(
    tmp_path: Path, device: str, environ: dict[str, str], waits: bool
) -> None:
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=_works, args=(tmp_path, device, environ, 1))
    with alone.on("cuda:0", {}, tmp_path):
        other.start()
        other.join(3 if waits else 100)
        assert (other.exitcode is None) is waits
    other.join(100)
    assert other.exitcode == 0


def test_nobody_waits_for_itself(tmp_path: Path) -> None:
    for _ in range(2):
        with alone.on("cpu", {}, tmp_path), alone.on("cpu", {}, tmp_path):
            pass


def test_a_folder_that_takes_no_lock_is_no_hindrance(tmp_path: Path) -> None:
    with alone.on("cpu", {}, tmp_path / "none"):
        pass
