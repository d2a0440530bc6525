"""Faults on a device, in whole sessions: real runners, and a driver in C whose card is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fake_cuda

from .running import CPU, said

CONFTEST = """
    import ctypes
    import os
    import pytest

    class Card:
        def __init__(self):
            self._driver = ctypes.CDLL(os.environ["STAND_IN"])
            self._driver.device_is(1, 0)

        def breaks(self):
            self._driver.device_is(1, 710)

        def use(self):
            if self._driver.cuCtxSynchronize():
                raise RuntimeError("CUDA error: device-side assert triggered")

    @pytest.fixture(scope="session")
    def card():
        return Card()

    def pytest_sessionfinish():
        with open(os.environ["ENDS"], "a") as log:
            print(os.environ.get("REMOTEGPU_WORKER", "here"), file=log)
"""
LOST = "CUDA_ERROR_ASSERT: device-side assert triggered (device 0)"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("STAND_IN", str(fake_cuda.build(pytester.mkdir("stand-in"))))
    monkeypatch.setenv("ENDS", str(pytester.path / "ends.log"))
    pytester.makeconftest(CONFTEST)
    return pytester


def runners(project: pytest.Pytester) -> int:
    """Count the far sessions that came to their end."""
    return Path(project.path, "ends.log").read_text().split().count("local-1")


def test_each_fault_is_its_own_tests(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        pytestmark = pytest.mark.gpu

        def test_before(card): card.use()

        def test_launches(card):
            print("what it said")
            card.breaks()

        def test_after(card): card.use()

        def test_notices(card):
            card.breaks()
            card.use()

        def test_skips(card):
            card.breaks()
            pytest.skip("half way")

        @pytest.mark.xfail(reason="known", strict=True)
        def test_known(card): card.breaks()

        @pytest.fixture
        def late(card):
            yield
            card.breaks()

        def test_teardown(late): pass

        @pytest.fixture
        def early(card): card.breaks()

        def test_setup(early): raise AssertionError("it ran")

        def test_last(card): card.use()
    """
    )
    result = project.runpytest_inprocess(CPU, "-v", "-rA")
    result.assert_outcomes(passed=4, failed=3, errors=2, xfailed=1)
    text = said(result)
    result.stdout.fnmatch_lines_random(
        [
            "*::test_after PASSED*",
            "*::test_last PASSED*",
            "FAILED *::test_launches - Failed: CUDA_ERROR_ASSERT: *",
            "FAILED *::test_notices - RuntimeError: CUDA error*",
            "FAILED *::test_skips - Failed: *",
            "XFAIL *::test_known*",
            "ERROR *::test_teardown - Failed: *",
            "ERROR *::test_setup - Failed: *",
            "what it said",
        ]
    )
    assert len(re.findall("^-+ CUDA fault -+$", text, re.MULTILINE)) == 1
    assert "gpu_state" not in text
    assert "it ran" not in text
    told = text.partition("short test summary info")[0]  # where CI is set, it says all again
    assert told.count("was found when the devices were synchronised after the call phase") == 3
    assert runners(project) == 7


def test_the_budget_of_failures_holds_across_runners(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        pytestmark = pytest.mark.gpu

        @pytest.mark.parametrize("n", range(5))
        def test_breaks(card, n):
            if n % 2:
                card.breaks()
    """
    )
    result = project.runpytest_inprocess(CPU, "-v", "--maxfail=2")
    result.assert_outcomes(passed=2, failed=2)
    assert "[4]" not in said(result)
    result = project.runpytest_inprocess(CPU, "-v", "-x")
    result.assert_outcomes(passed=1, failed=1)


def test_fixtures_that_the_fault_has_taken_along_are_a_note(project: pytest.Pytester) -> None:
    """Its own errors of the end are not: those fail the session."""
    project.makepyfile(
        test_it="""
        import pytest

        pytestmark = pytest.mark.gpu

        @pytest.fixture(scope="session")
        def model(card):
            yield
            card.use()

        def test_breaks(card, model): card.breaks()
        def test_after(card, model): card.use()
    """
    )
    result = project.runpytest_inprocess(CPU)
    result.assert_outcomes(passed=1, failed=1)
    text = said(result)
    assert result.ret == 1
    assert f"note: after {LOST} fixtures could not be torn down: CUDA error" in text
    assert "cause: " not in text


def test_an_end_that_fails_for_another_reason_still_fails(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.fixture(scope="session")
        def model():
            yield
            raise ValueError("its own fault")

        pytestmark = pytest.mark.gpu

        def test_breaks(card, model): card.breaks()
        def test_after(card): card.use()
    """
    )
    result = project.runpytest_inprocess(CPU)
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1
    assert "ValueError: its own fault" in said(result)
    assert "cause: the session on local-1 failed at its end" in said(result)


def test_live_output_does_not_wait_for_a_lost_runner(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        pytestmark = pytest.mark.gpu

        def test_breaks(card): print("one"); card.breaks()
        def test_after(card): print("two"); card.use()
    """
    )
    result = project.runpytest_inprocess(CPU, "-s")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*one*", "*two*"])


def test_exit_in_a_test_that_breaks_ends_the_session(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        pytestmark = pytest.mark.gpu

        def test_breaks(card):
            card.breaks()
            pytest.exit("enough", returncode=5)

        def test_after(card): raise AssertionError("it ran")
    """
    )
    result = project.runpytest_inprocess(CPU)
    assert result.ret == 5
    assert "it ran" not in said(result)
    assert "enough" in said(result)


def test_a_test_that_uses_no_card_is_no_different(project: pytest.Pytester) -> None:
    """Without a context frames keep their locals, as they do without a far side."""
    project.makepyfile(
        test_it="""
        import pytest

        pytestmark = pytest.mark.gpu
        kept = []

        def test_fails():
            here = "local"
            try:
                assert not here
            except AssertionError as error:
                kept.append(error)
                raise

        def test_after():
            trace = kept[0].__traceback__
            while trace.tb_next:
                trace = trace.tb_next
            assert trace.tb_frame.f_locals["here"] == "local"
    """
    )
    result = project.runpytest_inprocess(CPU)
    result.assert_outcomes(passed=1, failed=1)
    assert runners(project) == 1
