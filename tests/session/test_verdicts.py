"""What became of a test that could not say so itself: apart from outcomes, and from each other."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from .running import CPU, run, said

TESTS = """
    import os, signal, threading
    import pytest

    pytestmark = pytest.mark.gpu

    def test_first():
        pass

    def test_second():
        pass

    def test_fails():
        assert False

    def test_is_killed():
        print("eating", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    @pytest.mark.gpu(timeout=0.5)
    def test_hangs():
        threading.Event().wait()

    @pytest.mark.gpu(9)
    def test_asks_for_too_much():
        pass

    @pytest.mark.xfail(reason="another failure was expected")
    def test_crashes_although_failure_is_expected():
        os.abort()

    def test_last():
        pass
"""


def verdicts(path: str) -> dict[str, str]:
    found = {}
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 -- our own file
        named = {one.get("name"): one.get("value") for one in case.iter("property")}
        found[str(case.get("name"))] = str(named.get("remotegpu_verdict", ""))
    return found


def test_classes_stay_apart(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = run(pytester, CPU, "--junitxml=junit.xml", "-o", "junit_family=xunit1", "-v")
    result.assert_outcomes(passed=3, failed=4, errors=1)
    assert verdicts("junit.xml") == {
        "test_first": "",
        "test_second": "",
        "test_fails": "",
        "test_is_killed": "crash",
        "test_hangs": "timeout",
        "test_asks_for_too_much": "infra",
        "test_crashes_although_failure_is_expected": "crash",
        "test_last": "",
    }
    text = said(result)
    assert (
        "apart from outcomes of their own: 2 crashed, 1 not run for want of a far side, 1 timed out"
    ) in text
    assert "the worker process was killed by SIGKILL, as the kernel does when memory runs" in text
    assert (
        "tests that ran in it before: test_it.py::test_first, test_it.py::test_second, "
        "test_it.py::test_fails"
    ) in text
    assert "eating" in text
    assert "timed out: the test took longer than 0.5 s (gpu(timeout=0.5))" in text


def test_a_limit_of_the_run_is_a_class_of_its_own(pytester: pytest.Pytester) -> None:
    """What ran at the limit has timed out; what never ran is no failure of its own."""
    pytester.makepyfile(
        test_it="""
            import threading
            import pytest

            pytestmark = pytest.mark.gpu

            def test_ok(): pass
            def test_hang(): threading.Event().wait()
            def test_never(): pass
        """
    )
    result = run(pytester, CPU, "--remote-run-timeout=8", "--junitxml=junit.xml")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1, errors=1)
    assert verdicts("junit.xml") == {"test_ok": "", "test_hang": "timeout", "test_never": "budget"}
    result.stdout.fnmatch_lines(
        ["*not run: the run limit of 8 s (--remote-run-timeout) is reached*"]
    )
