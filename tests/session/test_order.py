"""Failure limits in sessions that mix local tests with far ones of two shapes.

Which tests ran, in which order, with which outcome and status: exactly as in plain pytest.
"""

from __future__ import annotations

import re

import pytest

from .running import CPU, run, said

PLAIN = ("-p", "no:remotegpu")
INI = "[pytest]\nmarkers =\n  gpu: registered here, so that a plain run runs the bodies\n"
TESTS = """
    import pathlib
    import pytest

    one, two = pytest.mark.gpu, pytest.mark.gpu(2)

    def ran(name, fine=True):
        with pathlib.Path("ran.txt").open("a") as file:
            print(name, file=file)
        assert fine

    @pytest.fixture(scope="module", autouse=True)
    def module():
        yield

    def test_a_here(): ran("a")
    @one
    def test_b_one(): ran("b")
    @one
    def test_c_one_fails(): ran("c", fine=False)
    @two
    def test_d_two(): ran("d")
    def test_e_here_fails(): ran("e", fine=False)
    @two
    @pytest.mark.xfail(reason="on purpose")
    def test_f_two_xfails(): ran("f", fine=False)
    @two
    def test_g_two_fails(): ran("g", fine=False)
    @one
    class TestOne:
        def test_h_one(self): ran("h")
        def test_i_one_fails(self): ran("i", fine=False)
    def test_j_here(): ran("j")
    @one
    def test_k_one(): ran("k")
"""


def history(pytester: pytest.Pytester, *args: str) -> tuple[list[str], list[str], int]:
    """Run, and give the tests in the order of their bodies, the lines shown, and the status."""
    trace = pytester.path / "ran.txt"
    trace.unlink(missing_ok=True)
    result = pytester.runpytest_inprocess("-v", *args)
    text = said(result)
    reported = re.findall(r"^(.*::.*) +\[ *\d+%\]$", text, re.MULTILINE)
    endings = re.findall(r"^(?:!!!|===).*", text, re.MULTILINE)
    shown = [re.sub(r" in \d.*", "", line).strip("= ") for line in endings]
    kept = [line for line in shown if line != "remote summary"]
    return trace.read_text().split(), reported + kept, int(result.ret)


@pytest.mark.parametrize(
    ("options", "bodies"),
    [(["-x"], "abc"), (["--maxfail=3"], "abcdefg"), (["--maxfail=2", "-k", "two or one"], "bcdfg")],
    ids=["-x", "--maxfail=3", "--maxfail=2 -k"],
)
def test_it_stops_where_plain_pytest_stops(
    options: list[str], bodies: str, pytester: pytest.Pytester
) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(test_it=TESTS)
    far = history(pytester, CPU, *options)
    assert "".join(far[0]) == bodies
    assert far == history(pytester, *PLAIN, *options)


def test_stepwise_goes_on_where_plain_pytest_does(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(test_it=TESTS)
    steps = (["--sw"], ["--sw"], ["--sw", "--sw-skip"])
    far = [history(pytester, CPU, *options) for options in steps]
    pytester.runpytest_inprocess("--cache-clear", "--co")
    assert far == [history(pytester, *PLAIN, *options) for options in steps]
    assert ["".join(bodies) for bodies, _, _ in far] == ["abc", "c", "cde"]


def test_without_a_limit_all_run_once(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(test_it=TESTS)
    bodies, reported, status = history(pytester, CPU)
    plain_bodies, plain_reported, plain_status = history(pytester, *PLAIN)
    assert sorted(bodies) == plain_bodies == list("abcdefghijk")
    assert [line for line in bodies if line in "bchik"] == list("bchik")
    assert [line for line in bodies if line in "dfg"] == list("dfg")
    assert sorted(reported) == sorted(plain_reported)
    assert status == plain_status == pytest.ExitCode.TESTS_FAILED


def test_failures_of_setup_teardown_and_crashes_count(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(
        test_it="""
        import os
        import pytest

        pytestmark = pytest.mark.gpu

        @pytest.fixture
        def bad(): raise OSError("no set-up")

        @pytest.fixture
        def bad_end():
            yield
            raise OSError("no tear-down")

        def test_a(bad): pass
        def test_b(bad_end): pass
        def test_c(): os._exit(3)
        def test_d(): pass
    """
    )
    for option, signs in {"--maxfail=2": ["E", ".E"], "--maxfail=3": ["E", ".E", "F"]}.items():
        result = pytester.runpytest_inprocess(CPU, option)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        line = next(line for line in result.outlines if line.startswith("test_it.py "))
        assert line.split()[1] == "".join(signs)
        result.stdout.fnmatch_lines([f"*stopping after {len(signs)} failures*"])


@pytest.mark.parametrize("options", [["-x"], ["--maxfail=2"]], ids=" ".join)
@pytest.mark.parametrize(("far", "collects"), [("command:false", "here"), ("local:cpu:1", "far")])
def test_errors_for_want_of_a_far_side_count(
    far: str, collects: str, options: list[str], pytester: pytest.Pytester
) -> None:
    """One that can't even collect ends the session instead."""
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu(2)
        @pytest.mark.parametrize("n", range(9))
        def test_far(n): pass

        def test_here(): pass
    """)
    number = 1 if options == ["-x"] else 2
    result = run(pytester, f"--remote={far}", "-o", f"remotegpu_collect={collects}", *options)
    result.assert_outcomes(errors=number)
    assert f"stopping after {number} failures" in said(result)


LOSES = """
    import os
    import signal
    import time
    import pytest
    pytestmark = pytest.mark.gpu

    @pytest.mark.parametrize("n", range(7))
    def test_it(n):
        with open("ran.txt", "a") as file:
            file.write(f"{n} ")
        if n == 2 and "REMOTEGPU_WORKER" in os.environ:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(30)
        assert n < 1
"""


@pytest.mark.parametrize(("most", "ran"), [(2, "0 1 2 2 "), (3, "0 1 2 2 3 "), (4, "0 1 2 2 3 4 ")])
def test_failures_before_a_lost_worker_count(
    pytester: pytest.Pytester, most: int, ran: str
) -> None:
    pytester.makepyfile(LOSES)
    result = run(pytester, CPU, f"--maxfail={most}")
    result.assert_outcomes(passed=1, failed=most)
    assert (pytester.path / "ran.txt").read_text() == ran
