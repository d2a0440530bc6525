"""Ranks that die, hang or come to no end: what is said, and that the next test is well."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from session.running import CPU, Started

from .test_sessions import TORCHRUN, block, needs_torch, outcomes, run


def test_each_death_is_said_and_the_next_test_is_well(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import ctypes, os, signal, sys, time
        import pytest
        {TORCHRUN}

        def test_leaves_with_0(rank):
            if rank: os._exit(0)

        def test_leaves_with_3(rank):
            if rank: os._exit(3)

        def test_segfault(rank):
            if not rank: ctypes.string_at(0)

        def test_killed(rank):
            print("before", rank)
            if rank: os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

        def test_all_die(): os.kill(os.getpid(), signal.SIGABRT)

        @pytest.fixture
        def deadly(rank):
            if rank: os._exit(5)

        def test_dies_in_setup(deadly): pass

        @pytest.fixture
        def deadly_end(rank):
            yield
            if rank: os._exit(6)

        def test_dies_in_teardown(deadly_end): pass

        @pytest.mark.xfail(reason="that is no excuse")
        def test_expected_death(rank):
            if rank: os._exit(7)

        def test_session_is_exited(rank):
            if rank: sys.exit("like any exception")

        @pytest.mark.parametrize("i", range(3))
        def test_well(i, rank, world_size): assert (rank < world_size) and os.getppid() > 1
    """)
    text = run(pytester, "-p", "no:cacheprovider")
    found = outcomes(text)
    assert [found[f"test_well[{i}]"] for i in range(3)] == ["PASSED"] * 3
    zero = block(text, "test_leaves_with_0")
    assert "rank 1 of 2 ended with exit status 0 while the test ran" in zero
    assert "rank 0: passed" in zero
    assert "rank 1 of 2 ended with exit status 3" in block(text, "test_leaves_with_3")
    segfault = block(text, "test_segfault")
    assert "rank 0 of 2 was killed by SIGSEGV" in segfault
    assert "string_at" in segfault
    killed = block(text, "test_killed")
    assert "rank 1 of 2 was killed by SIGKILL" in killed
    assert "rank 0: was stopped 2 s after rank 1 had ended" in killed
    assert "time.sleep" not in killed.partition("rank 0: was stopped")[0]
    assert " in test_killed" in killed
    assert "rank 1:\nbefore 1\nrank 0:\nbefore 0" in killed
    assert "/_pytest/" not in text
    assert "ranks 0-1 of 2 were killed by SIGABRT" in block(text, "test_all_die")
    assert "ended with exit status 5" in block(text, "test_dies_in_setup")
    assert found["test_dies_in_teardown"] == "ERROR"
    assert "exit status 6" in block(text, "ERROR at teardown of test_dies_in_teardown")
    assert "exit status 7" in block(text, "test_expected_death")
    assert "SystemExit: like any exception" in block(text, "test_session_is_exited")
    assert "8 failed, 4 passed, 1 error" in text


HANGS = """
    import os, time
    import pytest, torch, torch.distributed as dist
    pytestmark = pytest.mark.gpu(2, launcher="torchrun")

    def join(): dist.init_process_group("gloo")

    def test_before_a_collective(rank):
        if rank: raise ValueError("one never joins")
        join()

    def test_in_a_collective(rank):
        join()
        if rank: raise ValueError("one leaves")
        dist.all_reduce(torch.ones(1))

    def test_after_a_collective(rank):
        join()
        dist.barrier()
        if rank: raise ValueError("one is done")
        time.sleep(60)

    @pytest.fixture
    def stuck(rank):
        join()
        if rank: raise ValueError("no fixture")
        dist.barrier()

    def test_in_a_fixture(stuck): pass

    @pytest.fixture
    def stuck_end(rank):
        join()
        yield
        if rank: raise ValueError("no end")
        dist.barrier()

    def test_in_a_teardown(stuck_end): pass

    def test_dies_meanwhile(rank):
        join()
        if rank: os._exit(9)
        dist.barrier()

    @pytest.mark.gpu(timeout=3)
    def test_nobody_comes(rank):
        join()
        if not rank: dist.broadcast(torch.ones(1), 1)
        else: time.sleep(60)

    def test_well():
        join()
        dist.barrier()
"""


@needs_torch
def test_each_hang_ends_soon_and_names_where(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HANGS)
    text = run(pytester, "-p", "no:cacheprovider", "--durations=0")
    found = outcomes(text)
    assert found["test_well"] == "PASSED"
    stopped = "rank 0: was stopped 2 s after rank 1 had failed"
    before = block(text, "test_before_a_collective")
    assert f"{stopped}, in init_process_group\n" in before
    assert "ValueError: one never joins" in before
    inside = block(text, "test_in_a_collective")
    assert "ValueError: one leaves" in inside
    assert "rank 1: failed first, in call" in inside
    assert f"{stopped}, in all_reduce\n" in inside or "rank 0: failed in call" in inside
    after = block(text, "test_after_a_collective")
    assert f"{stopped}\n" in after
    assert "in test_after_a_collective" in after
    assert "ValueError: no fixture" in block(text, "ERROR at setup of test_in_a_fixture")
    assert "ValueError: no end" in block(text, "ERROR at teardown of test_in_a_teardown")
    assert "rank 1 of 2 ended with exit status 9" in block(text, "test_dies_meanwhile")
    nobody = block(text, "test_nobody_comes")
    assert "timed out: the test took longer than 3 s (gpu(timeout=3))" in nobody
    assert "rank 0, in broadcast:" in nobody
    assert "rank 1:\n" in nobody
    assert "zygote" not in nobody


def test_an_interrupt_ends_all_ranks(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(f"""
        import pathlib, time
        import pytest
        {TORCHRUN}
        def test_long(rank):
            pathlib.Path(f"began-{{rank}}").touch()
            time.sleep(60)
    """)
    with Started(pytester, CPU, "-v", path) as session:
        deadline = time.monotonic() + 60
        while not all(Path(pytester.path, f"began-{rank}").exists() for rank in (0, 1)):
            assert time.monotonic() < deadline, session.text
            time.sleep(0.05)
        session.process.send_signal(2)
        assert session.end() == pytest.ExitCode.INTERRUPTED
        assert session.living() == []
