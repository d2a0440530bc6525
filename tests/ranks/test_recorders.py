"""Flight recorders: which collective each rank is in where they wait for each other for ever."""

from __future__ import annotations

import json

import pytest

from .test_sessions import block, needs_torch, outcomes, run

TESTS = """
    import os, sys, time
    import pytest, torch, torch.distributed as dist
    pytestmark = pytest.mark.gpu(2, launcher="torchrun")

    @pytest.fixture(scope="module")
    def group():
        dist.init_process_group("gloo")

    def total(size=3):
        ones = torch.ones(size)
        dist.all_reduce(ones)
        return ones.sum().item()

    def test_before(group, capfd):
        assert total() == 6
        assert capfd.readouterr() == ("", "")
        assert "TORCH_WORKER_SERVER_SOCKET" not in os.environ

    @pytest.fixture
    def slow_end(rank):
        yield
        if rank: time.sleep(60)

    def test_one_raises(group, slow_end, rank):
        assert total() == 6
        dist.barrier()
        if rank: raise ValueError("one leaves")
        total(4)

    @pytest.mark.gpu(timeout=3)
    def test_nobody_comes(rank, rank_group):
        total()
        if rank: time.sleep(60)
        dist.broadcast(torch.ones(2, 3), 0 if rank else 1)

    @pytest.mark.gpu(timeout=3)
    def test_each_in_its_own(rank):
        dist.init_process_group("gloo")
        both = dist.new_group([0, 1], group_desc="both")
        dist.all_reduce(torch.ones(1), group=both)
        if rank: dist.barrier(both)
        else: time.sleep(60)

    def test_one_dies(rank):
        dist.init_process_group("gloo")
        total()
        if rank: os._exit(3)
        while True: time.sleep(1)

    def test_without_torch(rank):
        if rank: os._exit(4)
        while True: time.sleep(1)

    def test_crash(rank):
        import ctypes
        if rank: ctypes.string_at(0)

    def test_after(group): assert total() == 6
"""


@needs_torch
def test_each_rank_is_told_with_its_collective(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    text = run(pytester, "-p", "no:cacheprovider", "--remote-artifacts=kept")
    found = outcomes(text)
    assert {name for name, outcome in found.items() if outcome == "PASSED"} == {
        "test_before",
        "test_after",
    }
    assert "Server listening" not in text
    raises = block(text, "test_one_raises")
    assert (
        "rank 0: in all_reduce, no. 4 of the default group (Float [4]), which rank 1 has not "
        "entered\nrank 1: in no collective; the last was barrier, no. 3 of the default group\n"
    ) in raises
    assert "rank 0: was stopped 2 s after rank 1 had failed, in all_reduce\n" in raises
    nobody = block(text, "test_nobody_comes")
    assert (
        "collectives:\nrank 0: in broadcast, no. 2 of the default group (Float [2, 3]), which "
        "rank 1 has not entered\nrank 1: in no collective; the last was all_reduce, no. 1 of the "
        "default group (Float [3])\n"
    ) in nobody
    each = block(text, "test_each_in_its_own")
    assert "rank 1: in barrier, no. 2 of group both, which rank 0 has not entered\n" in each
    dies = block(text, "test_one_dies")
    assert "collectives:\nrank 0: in no collective; the last was all_reduce, no. 1" in dies
    assert "collectives" not in block(text, "test_without_torch")
    assert "string_at" in block(text, "test_crash")
    kept = {path.parent.name.split("-")[1]: path for path in pytester.path.glob("kept/*/*0.*json")}
    assert set(kept) == {
        "test_one_raises",
        "test_nobody_comes",
        "test_each_in_its_own",
        "test_one_dies",
    }
    record = json.loads(kept["test_nobody_comes"].read_text())
    entries = record["fr_trace_json"]["entries"][-2:]
    assert [entry["profiling_name"] for entry in entries] == ["gloo:all_reduce", "gloo:broadcast"]
    assert {entry["timeout_ms"] for entry in entries} == {24 * 60 * 60 * 1000}
