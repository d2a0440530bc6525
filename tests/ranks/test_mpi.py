"""Tests that mpi4py joins: ranks of Open MPI's mpirun."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from .test_sessions import block, outcomes, run

MPIRUN = "pytestmark = pytest.mark.gpu(3, launcher='mpirun')"
needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
    reason="Open MPI and mpi4py are not installed: apt-get install openmpi-bin libopenmpi-dev, "
    "pip install mpi4py",
)


@needs_mpi
def test_ranks_of_mpirun_join_in_one_world(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import os, time
        import pytest
        from mpi4py import MPI
        {MPIRUN}
        world = MPI.COMM_WORLD

        @pytest.mark.parametrize("i", range(3))
        def test_sum(i, rank, world_size):
            assert (world.rank, world.size) == (rank, world_size) == (rank, 3)
            assert world.allreduce(rank) == 3
            assert os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] == str(rank)

        def test_stuck(rank):
            if rank == 1: raise ValueError("one leaves")
            world.allreduce(rank)

        def test_dies(rank):
            if rank == 2: os._exit(3)
            world.barrier()

        def test_well(): assert len(world.allgather(os.getpid())) == 3
    """)
    before = set(Path("/dev/shm").iterdir())  # noqa: S108 -- where MPI keeps its segments
    text = run(pytester, "-p", "no:cacheprovider", cpu="--remote=local:cpu:3")
    found = outcomes(text)
    assert [found[f"test_sum[{i}]"] for i in range(3)] == ["PASSED"] * 3
    assert found["test_well"] == "PASSED"
    stuck = block(text, "test_stuck")
    assert "ValueError: one leaves" in stuck
    assert "ranks 0, 2: were stopped 2 s after rank 1 had failed" in stuck
    assert "rank 2 of 3 ended with exit status 3" in block(text, "test_dies")
    assert {path.name for path in {*Path("/dev/shm").iterdir()} - before} == set()  # noqa: S108 -- as above


def test_a_host_without_mpirun_says_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(os.__file__).parent))
    pytester.makepyfile(f"""
        import pytest
        {MPIRUN}
        def test_it(): pass
    """)
    text = run(pytester, cpu="--remote=local:cpu:3")
    assert (
        "launcher='mpirun' needs Open MPI's mpirun on that host, and there is none in PATH" in text
    )
    assert "apt-get install openmpi-bin" in text
    assert "1 error" in text


@needs_mpi
def test_a_launcher_that_is_killed_leaves_no_shared_memory(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import os, pathlib, signal, time
        import pytest
        from mpi4py import MPI
        {MPIRUN}
        world = MPI.COMM_WORLD

        def segments():
            job = int(os.environ["PMIX_NAMESPACE"])
            return list(pathlib.Path("/dev/shm").glob(f"*_segment.*.{{job:x}}.*"))

        def test_launcher_dies(rank):
            assert len(world.allgather(rank)) == 3
            if rank: time.sleep(60)
            names = [*map(str, segments()), os.environ["OMPI_FILE_LOCATION"]]
            pathlib.Path("was.txt").write_text("\\n".join(names))
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)

        def test_all_is_gone_already():
            files = pathlib.Path("was.txt").read_text().splitlines()[:-1]
            assert [file for file in files if pathlib.Path(file).exists()] == []
            assert len(world.allgather(segments())) == 3
    """)
    text = run(pytester, "-p", "no:cacheprovider", cpu="--remote=local:cpu:3")
    found = outcomes(text)
    assert found == {"test_launcher_dies": "FAILED", "test_all_is_gone_already": "PASSED"}
    assert "was killed by SIGKILL" in block(text, "test_launcher_dies")
    *segments, folder = (pytester.path / "was.txt").read_text().splitlines()
    assert segments
    assert not Path(folder).exists()
