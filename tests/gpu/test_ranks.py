"""Tests of two ranks on two cards, by NCCL: each has its own; hangs, deaths, and a clean start."""

from __future__ import annotations

import re

import pytest

from . import Run

TESTS = """
    import os
    import pytest
    import torch

    pytestmark = pytest.mark.gpu(2, launcher="torchrun")

    def join(device):
        torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl", device_id=device)

    def total(device):
        ones = torch.ones(1, device=device)
        torch.distributed.all_reduce(ones)
        torch.cuda.synchronize()
        return ones.item()

    @pytest.mark.parametrize("i", range(3))
    def test_left_behind(gpu_device, rank, i):
        assert (gpu_device.index, torch.cuda.device_count()) == (rank, 2)
        join(gpu_device)
        assert total(gpu_device) == 2

    def test_raises(gpu_device, rank):
        join(gpu_device)
        total(gpu_device)
        if rank: raise ValueError("one leaves")
        total(gpu_device)

    def test_dies(gpu_device, rank):
        join(gpu_device)
        total(gpu_device)
        if rank: os._exit(3)
        total(gpu_device)

    @pytest.mark.gpu(timeout=15)
    def test_nobody_comes(gpu_device, rank):
        join(gpu_device)
        if not rank: total(gpu_device)
        if not rank: total(gpu_device)
        else:
            total(gpu_device)
            import time
            time.sleep(60)

    def test_well(gpu_device):
        join(gpu_device)
        assert total(gpu_device) == 2

    @pytest.mark.parametrize("i", range(2))
    def test_shared(rank_group, gpu_device, i):
        assert total(gpu_device) == 2

    @pytest.mark.gpu(isolate=True)
    def test_isolated(rank_group, gpu_device):
        assert torch.cuda.memory_allocated(gpu_device) == 0
        assert total(gpu_device) == 2
"""


@pytest.mark.gpu(count=2)
@pytest.mark.timeout(240)
def test_two_ranks_on_two_cards(run: Run) -> None:
    result = run(test_ranks=TESTS)
    text = result.stdout.str()
    found = dict(re.findall(r"^test_ranks\.py::(\S+) (\w+) .*\[", text, re.MULTILINE))
    passed = {name for name, outcome in found.items() if outcome == "PASSED"}
    failed = {name for name, outcome in found.items() if outcome == "FAILED"}
    assert failed == {"test_raises", "test_dies", "test_nobody_comes"}
    assert len(passed) == 7
    assert "rank 0: was stopped 2 s after rank 1 had failed" in text
    assert "rank 1 of 2 ended with exit status 3" in text
    assert "timed out: the test took longer than 15 s" in text
    assert (
        "rank 0: in all_reduce, no. 2 of the default group (Float [1]), which rank 1 has not "
        "entered\nrank 1: in no collective; the last was all_reduce, no. 1 of the default group "
        "(Float [1])"
    ) in text
    assert "/rank0.flight.json" in text
