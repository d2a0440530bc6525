"""Ranks as their tests see them: who they are, what they share, and one result for each test."""

from __future__ import annotations

import importlib.util
import re

import pytest

from session.running import CPU, said

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
TORCHRUN = "pytestmark = pytest.mark.gpu(2, launcher='torchrun')"


def run(pytester: pytest.Pytester, *args: str, cpu: str = CPU, status: int | None = None) -> str:
    """Run all tests of the project, and give all that the session wrote.

    :param status: that it must end with.
    """
    result = pytester.runpytest_subprocess(cpu, "-v", *args, timeout=90)
    text = said(result)
    assert status is None or result.ret == status, text
    return text


def outcomes(text: str) -> dict[str, str]:
    """Read the outcome of each test from the lines of a verbose session."""
    return dict(re.findall(r"^test_\w+\.py::(\S+) (\w+) .*\[", text, re.MULTILINE))


def block(text: str, test: str) -> str:
    """Give what the session says of a test that has failed."""
    found = re.search(
        rf"^_+ (?:.* )?{test} _+$(.*?)(?=^_{{3,}} |^={{3,}} )", text, re.MULTILINE | re.DOTALL
    )
    assert found is not None, text
    return found[1]


def test_each_rank_knows_itself_and_nothing_of_outer_launchers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(name, "77")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    pytester.makepyfile(f"""
        import os, unittest
        import pytest
        {TORCHRUN}

        @pytest.fixture(scope="session")
        def numbers(): return []

        @pytest.fixture(params=["a", "b"])
        def letter(request): return request.param

        def test_who(rank, world_size):
            assert world_size == 2
            mine = {{name: os.environ[name] for name in (
                "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR",
                "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT")}}
            assert mine == {{
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                "ROLE_RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": "0"}}
            assert 1024 < int(os.environ["MASTER_PORT"]) < 65536
            assert os.environ["TORCHELASTIC_RUN_ID"]
            assert "77" not in {{os.environ[n] for n in os.environ if n.endswith(("ID", "RANK"))}}
            print("this is", rank)

        class TestIt:
            @pytest.mark.parametrize("number", [1, 2])
            def test_scopes(self, numbers, letter, number, tmp_path, rank):
                numbers.append((letter, number))
                assert len(set(numbers)) == len(numbers)
                (tmp_path / "mine").write_text(str(rank))
                assert (tmp_path / "mine").read_text() == str(rank)

        class TestOld(unittest.TestCase):
            def setUp(self): self.rank = os.environ["RANK"]
            def test_old(self): assert self.rank in "01"

        @pytest.mark.gpu(3, launcher="torchrun", gpus_per_rank=2)
        def test_more(gpu, gpu_devices, world_size):
            assert (gpu.count, len(gpu_devices), world_size) == (2, 2, 3)
    """)
    text = run(pytester, "-rP", "--junitxml=junit.xml", cpu=f"{CPU}:6")
    assert set(outcomes(text).values()) == {"PASSED"}
    assert "7 passed" in text
    assert "6 tests on 2 GPUs by 2 ranks of torchrun, 1 on 6 GPUs by 3 ranks of torchrun" in text
    for rank in "01":
        assert re.search(rf"Captured stdout call \[rank {rank}\] -+\nthis is {rank}\n", text)
    assert (pytester.path / "junit.xml").read_text().count("<testcase") == 7


def test_what_ranks_say_becomes_one_result(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import pytest
        {TORCHRUN}

        def test_one_fails(rank):
            if rank == 1: raise ValueError("the second one is unhappy")

        def test_all_fail(): assert 1 == 2

        def test_all_fail_differently(rank):
            import time
            time.sleep(0 if rank == 1 else 0.3)
            assert rank == 5

        def test_one_skips(rank):
            if rank == 0: pytest.skip("not this one")

        def test_all_skip(): pytest.skip("none of us")

        @pytest.mark.xfail(reason="known")
        def test_xfail(): assert 0

        @pytest.mark.xfail
        def test_one_xfails(rank): assert rank

        @pytest.fixture
        def broken(rank):
            yield
            assert rank, "torn"

        def test_teardown(broken): pass

        @pytest.fixture
        def unready(rank):
            assert not rank, "unready"

        def test_setup(unready): pass

        def test_subtests(subtests, rank):
            for i in range(2):
                with subtests.test(i=i): assert not (i and rank)

        def test_passes(): pass
    """)
    text = run(pytester, "-rs", "-p", "no:cacheprovider")
    found = outcomes(text)
    assert found["test_passes"] == "PASSED"
    assert found["test_all_skip"] == "SKIPPED"
    assert found["test_xfail"] == "XFAIL"
    assert "rank 1: failed first, in call\nrank 0: passed" in block(text, "test_one_fails")
    assert "ValueError: the second one is unhappy" in block(text, "test_one_fails")
    assert block(text, "test_all_fail").count("assert 1 == 2") == 2
    assert re.search(r"rank [01]: failed first, in call\nrank [01]: same\n", text)
    differently = block(text, "test_all_fail_differently")
    assert differently.index("assert 1 == 5") < differently.index("assert 0 == 5")
    assert "rank 1: failed first, in call\nrank 0: failed in call\n" in differently
    ends = "the ranks of this test came to different ends: "
    assert f"{ends}rank 0 skipped it (not this one); rank 1 passed" in block(text, "test_one_skips")
    assert f"{ends}rank 0 failed as was expected; rank 1 passed" in block(text, "test_one_xfails")
    assert "[1] test_what_ranks_say_becomes_one_result.py:17: none of us" in text
    torn = block(text, "ERROR at teardown of test_teardown")
    assert "rank 0: failed first, in teardown\nrank 1: passed" in torn
    assert "unready" in block(text, "ERROR at setup of test_setup")
    assert "rank 1: failed first, in setup\nrank 0: passed" in text
    assert "test_subtests (i=1)" in text
    assert "7 failed" in text
    assert "2 errors" in text


@needs_torch
def test_groups_of_tests_that_follow_each_other(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import pytest, torch, torch.distributed as dist
        {TORCHRUN}

        @pytest.mark.parametrize("i", range(5))
        def test_left_behind(i):
            dist.init_process_group("gloo")
            ones = torch.ones(1)
            dist.all_reduce(ones)
            assert ones.item() == 2

        def test_none_is_made(): assert not dist.is_initialized()

        @pytest.fixture(scope="module")
        def group():
            dist.init_process_group("gloo")
            yield
            dist.destroy_process_group()

        @pytest.mark.parametrize("i", range(2))
        def test_of_a_fixture(group, i): dist.barrier()
    """)
    text = run(pytester)
    assert "8 passed" in text


@needs_torch
def test_a_group_that_tests_share(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import os
        import pytest, torch, torch.distributed as dist
        {TORCHRUN}
        seen = []

        def total():
            ones = torch.ones(1)
            dist.all_reduce(ones)
            return ones.item()

        @pytest.mark.parametrize("i", range(3))
        def test_shares(rank_group, i, rank):
            seen.append(id(rank_group))
            assert rank_group is dist.group.WORLD
            assert (rank_group.rank(), rank_group.size(), total()) == (rank, 2, 2)
            assert len(set(seen)) == 1

        def test_without(): assert not dist.is_initialized()

        def test_own():
            dist.init_process_group("gloo")
            assert total() == 2

        def test_again(rank_group): assert total() == 2

        def test_fails(rank_group, rank):
            assert rank

        def test_after_a_failure(rank_group):
            assert seen == []
            assert total() == 2

        def test_destroys(rank_group): dist.destroy_process_group()

        def test_after_that(rank_group): assert total() == 2
    """)
    text = run(pytester, "-p", "no:cacheprovider")
    assert "1 failed, 9 passed" in text
    assert "rank 0: failed first, in call\nrank 1: passed" in block(text, "test_fails")


@needs_torch
def test_groups_of_tests_outlast_the_tests_limit(pytester: pytest.Pytester) -> None:
    """Else NCCL's ten minutes would decide where a limit is longer."""
    pytester.makepyfile(
        """
        import datetime as dt
        import pytest

        pytestmark = pytest.mark.gpu(2, launcher="torchrun")

        @pytest.mark.parametrize("given", [None, dt.timedelta(seconds=77)])
        def test_it(given):
            import torch.distributed as dist
            from torch.distributed import constants
            dist.init_process_group("gloo", timeout=given)
            other = dist.new_group()
            for group in (dist.group.WORLD, other):
                backend = group._get_backend(__import__("torch").device("cpu"))
                print(backend.options._timeout)
            dist.destroy_process_group()
        """
    )
    result = pytester.runpytest("--remote=local:cpu", "-rP", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 day, 0:00:00", "1 day, 0:00:00", "0:01:17", "1 day, 0:00:00"])


def test_no_group_without_ranks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.gpu(2)
        def test_it(rank_group): pass
    """)
    text = run(pytester)
    assert "rank_group is for tests of several ranks: give the mark a launcher" in text
