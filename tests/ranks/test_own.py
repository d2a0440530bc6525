"""Tests that start their own ranks, in the process of ``gpu(2)``: by spawn and by torchrun."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .test_sessions import block, needs_torch, outcomes, run


def lives(mark: str) -> bool:
    """Say whether a process has *mark* on its command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


@needs_torch
def test_ranks_that_a_test_starts_itself(pytester: pytest.Pytester) -> None:
    seconds = f"{3000 + time.time_ns() % 10**6 / 10**6:f}"
    pytester.makepyfile(
        job="""
        import os
        import torch.distributed as dist
        dist.init_process_group("gloo")
        dist.barrier()
        os.write(1, b"rank %d of %d\\n" % (dist.get_rank(), dist.get_world_size()))
        dist.destroy_process_group()
        """,
        test_own=f"""
        import os, socket, subprocess, sys
        import pytest
        import torch.distributed as dist
        import torch.multiprocessing as mp

        pytestmark = pytest.mark.gpu(2)

        def work(rank, port, fails):
            where = f"tcp://127.0.0.1:{{port}}"
            dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
            dist.barrier()
            os.write(1, b"spawned %d\\n" % rank)
            if fails and rank: raise ValueError("a spawned one is unhappy")

        def spawn(fails):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            mp.spawn(work, (port, fails), nprocs=2)

        def test_spawn(gpu): spawn(False)
        def test_spawn_fails(): spawn(True)

        def test_torchrun(gpu_devices):
            assert len(gpu_devices) == 2
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            subprocess.run([*command, "--nproc-per-node=2", "job.py"], check=True)

        def test_leaves_children():
            subprocess.Popen(["sleep", "{seconds}"])
            os._exit(3)

        def test_after(): pass
        """,
    )
    text = run(pytester, "-rP", "-p", "no:cacheprovider")
    found = outcomes(text)
    assert found["test_spawn"] == found["test_torchrun"] == found["test_after"] == "PASSED"
    assert "ValueError: a spawned one is unhappy" in block(text, "test_spawn_fails")
    for rank in (0, 1):
        assert f"spawned {rank}" in text
        assert f"rank {rank} of 2" in text
    assert not lives(seconds)
