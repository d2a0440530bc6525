"""Ranks of which one ends the session, or is lost where no test is any more: never a good end."""

from __future__ import annotations

import pytest

from .test_sessions import TORCHRUN, outcomes, run

CONFTEST = """
    import os, time
    def of(rank): return os.environ.get("RANK") == str(rank)
"""


def test_a_rank_that_hangs_once_its_test_has_passed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(f"""{CONFTEST}
    def pytest_runtest_logfinish():
        if of(1): time.sleep(60)
    """)
    pytester.makepyfile(f"""
        import pytest
        {TORCHRUN}
        def test_passes(): pass
    """)
    text = run(pytester, status=pytest.ExitCode.TESTS_FAILED)
    assert outcomes(text) == {"test_passes": "PASSED"}
    assert "failed at its end: rank 1 was stopped 5 s after ranks 0-1 were done" in text


@pytest.mark.parametrize("exiting", [0, 1])
def test_one_ends_the_session_well_and_another_fails(
    pytester: pytest.Pytester, exiting: int
) -> None:
    pytester.makepyfile(f"""
        import time
        import pytest
        {TORCHRUN}
        def test_of_two_minds(rank):
            if rank == {exiting}:
                time.sleep(0.5)
                pytest.exit("enough", returncode=0)
            raise ValueError("this one fails")
    """)
    text = run(pytester, status=pytest.ExitCode.TESTS_FAILED)
    assert outcomes(text) == {"test_of_two_minds": "FAILED"}
    assert "ValueError: this one fails" in text


def test_a_rank_that_dies_in_the_last_teardown(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import os
        import pytest
        {TORCHRUN}

        @pytest.fixture(scope="session")
        def deadly():
            yield
            if os.environ["RANK"] == "1": os._exit(0)

        def test_passes(deadly): pass
    """)
    text = run(pytester, status=pytest.ExitCode.TESTS_FAILED)
    assert outcomes(text) == {"test_passes": "ERROR"}
    assert "rank 1 of 2 ended with exit status 0" in text


def test_ranks_that_collect_other_ids_go_by_their_order(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import os
        import pytest
        {TORCHRUN}

        @pytest.mark.parametrize("value", ["a", os.environ.get("RANK", "none")])
        def test_each(value): assert value in ("a", os.environ["RANK"])
    """)
    text = run(pytester, "-o", "remotegpu_collect=far", status=pytest.ExitCode.OK)
    assert outcomes(text) == {"test_each[a]": "PASSED", "test_each[0]": "PASSED"}
