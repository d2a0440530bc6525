"""``gpu(isolate=True)`` where a test has ranks: all are new, and so is the group they share."""

from __future__ import annotations

import pytest

from .test_sessions import needs_torch, outcomes, run


@needs_torch
def test_all_ranks_of_a_test_that_is_isolated_are_new(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import pytest, torch
        pytestmark = pytest.mark.gpu(2, launcher="torchrun")
        ran, groups = [], []

        @pytest.fixture(scope="session")
        def whole():
            yield
            print("end of whole after", ran)

        def total():
            ones = torch.ones(1)
            torch.distributed.all_reduce(ones)
            return ones.item()

        @pytest.mark.parametrize("n", [0, 1])
        def test_before(rank_group, whole, n):
            ran.append(n)
            groups.append(id(rank_group))
            assert (len(ran), len(set(groups)), total()) == (n + 1, 1, 2)

        @pytest.mark.gpu(isolate=True)
        @pytest.mark.parametrize("n", [0, 1])
        def test_alone(rank_group, whole, n):
            assert (ran, groups, total()) == ([], [], 2)
            ran.append("alone")

        def test_after(rank_group, whole):
            assert (ran, groups, total()) == ([], [], 2)

        @pytest.mark.gpu(isolate=True)
        def test_dies(rank):
            if rank: os._exit(3)

        @pytest.mark.gpu(isolate=True)
        def test_last(whole): assert not ran
    """)
    text = run(pytester, "-rP")
    found = outcomes(text)
    assert found.pop("test_dies") == "FAILED"
    assert set(found.values()) == {"PASSED"}
    assert len(found) == 6
    assert text.count("end of whole after ['alone']") == 2
    assert text.count("end of whole after [0, 1]") == 1
