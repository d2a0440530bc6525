"""Groups that a test has left, and that can't be destroyed: its result stays, the next is well."""

from __future__ import annotations

import pytest

from .test_sessions import block, needs_torch, outcomes, run

TESTS = """
    import os, time
    import pytest, torch, torch.distributed as dist
    pytestmark = pytest.mark.gpu(2, launcher="torchrun")

    def total():
        ones = torch.ones(1)
        dist.all_reduce(ones)
        return ones.item()

    def test_leaves_a_group(rank):
        dist.init_process_group("gloo")
        assert total() == 2
        if rank: dist.destroy_process_group = lambda: END

    def test_next(rank_group):
        assert total() == 2
"""


@needs_torch
def test_a_rank_that_does_not_come_out_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS.replace("END", "time.sleep(60)"))
    text = run(pytester, "-p", "no:cacheprovider", status=pytest.ExitCode.TESTS_FAILED)
    assert outcomes(text) == {"test_leaves_a_group": "PASSED", "test_next": "PASSED"}
    assert "rank 1 was stopped 5 s after ranks 0-1 were done with the test" in text


@needs_torch
def test_a_rank_that_dies_in_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS.replace("END", "os._exit(3)"))
    text = run(pytester, "-p", "no:cacheprovider", status=pytest.ExitCode.TESTS_FAILED)
    assert "2 passed, 1 error" in text
    assert "rank 1 of 2 ended with exit status 3" in block(text, "test_leaves_a_group")


@needs_torch
def test_an_error_of_it_is_told_and_the_next_test_has_new_ranks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS.replace("END", "1 / 0"))
    text = run(pytester, "-p", "no:cacheprovider", status=pytest.ExitCode.OK)
    assert outcomes(text) == {"test_leaves_a_group": "PASSED", "test_next": "PASSED"}
    assert "on rank 1: the process group that" in text
    assert "test_leaves_a_group left can't be destroyed: division by zero" in text
