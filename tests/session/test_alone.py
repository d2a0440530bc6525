"""``gpu(isolate=True)``: a process for one test alone, whoever runs before and after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .running import CPU, run, said

TESTS = """
    import os
    import pytest

    pytestmark = pytest.mark.gpu
    ran, made = [], []

    def note(name):
        ran.append(name)
        with open("said.txt", "a") as file:
            file.write(f"{os.getpid()} {name} {made}\\n")
        return list(ran)

    @pytest.fixture(scope="session")
    def whole():
        made.append("whole")
        yield
        note("end of whole")

    @pytest.fixture(scope="module")
    def part(): made.append("part")

    def test_one(whole, part): assert note("one") == ["one"]
    def test_two(whole, part): assert note("two") == ["one", "two"]

    @pytest.mark.gpu(isolate=True)
    def test_alone(whole, part): assert note("alone") == ["alone"]

    @pytest.mark.gpu(isolate=True)
    @pytest.mark.parametrize("n", [1, 2])
    def test_each(n): assert note(f"each {n}") == [f"each {n}"]

    def test_three(whole): assert note("three") == ["three"]
    def test_four(whole): assert note("four") == ["three", "four"]

    @pytest.mark.gpu(isolate=True)
    class TestClass:
        def test_five(self): assert note("five") == ["five"]

        @pytest.mark.gpu(isolate=False)
        def test_six(self): assert note("six") == ["six"]

        def test_seven(self, whole): assert note("seven") == ["seven"]
"""


def processes(folder: Path) -> list[list[str]]:
    """Read what each process did, in the order in which they began."""
    found: dict[str, list[str]] = {}
    for line in (folder / "said.txt").read_text().splitlines():
        pid, _, rest = line.partition(" ")
        found.setdefault(pid, []).append(rest.partition(" [")[0])
    return list(found.values())


@pytest.mark.parametrize("collect", ["here", "far"])
def test_a_test_that_is_isolated_shares_its_process_with_none(
    pytester: pytest.Pytester, collect: str
) -> None:
    pytester.makepyfile(TESTS)
    result = run(pytester, CPU, "-v", "-o", f"remotegpu_collect={collect}")
    result.assert_outcomes(passed=10)
    assert processes(pytester.path) == [
        ["one", "two", "end of whole"],
        ["alone", "end of whole"],
        ["each 1"],
        ["each 2"],
        ["three", "four", "end of whole"],
        ["five"],
        ["six"],
        ["seven", "end of whole"],
    ]


EACH = """
    import pytest
    seen = []

    def test_one(): seen.append("one")

    @pytest.mark.gpu(isolate=True)
    @pytest.mark.parametrize("n", range(6))
    def test_each(n):
        seen.append(n)
        assert seen == [n]
        assert n < 2

    def test_two(): assert set(seen) <= {"one"}

    pytestmark = pytest.mark.gpu
"""


def test_several_workers_and_a_limit_of_failures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=EACH, test_b=EACH)
    run(pytester, CPU, "--remote-workers=2").assert_outcomes(passed=8, failed=8)
    result = run(pytester, CPU, "--maxfail=2", "-v", "test_b.py")
    result.assert_outcomes(passed=3, failed=2)
    assert "test_each[3] FAILED" in said(result)
    assert "stopping after 2 failures" in said(result)


def test_what_fails_at_the_end_of_a_fixture_is_told_with_the_test_that_is_alone(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.fixture(scope="session")
        def bad():
            yield
            raise ValueError("the end of a session")

        @pytest.mark.gpu(isolate=True)
        def test_alone(bad): pass

        @pytest.mark.gpu
        def test_before_another(bad): pass

        @pytest.mark.gpu(isolate=True)
        def test_last(): pass
    """)
    result = run(pytester, CPU, "-v")
    result.assert_outcomes(passed=3, errors=2)
    text = said(result)
    assert re.findall(r"ERROR at teardown of (\w+)", text) == ["test_alone", "test_before_another"]
    assert text.count("ValueError: the end of a session") == 4


def test_a_crash_of_one_leaves_the_next_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import pytest

        pytestmark = pytest.mark.gpu(isolate=True)
        seen = []

        @pytest.mark.parametrize("n", range(4))
        def test_each(n):
            seen.append(n)
            assert seen == [n]
            if n == 1:
                os._exit(3)
    """)
    result = run(pytester, CPU, "-v")
    result.assert_outcomes(passed=3, failed=1)
    assert "ended with exit status 3" in said(result)


def test_one_by_one_under_xdist(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(CPU, "-p", "xdist", "-n", "1", timeout=90)
    result.assert_outcomes(passed=10)


def test_a_process_that_ends_badly_fails_the_session_though_no_test_follows_in_it(
    pytester: pytest.Pytester,
) -> None:
    """What has failed no test is said by nothing else."""
    pytester.makepyfile("""
        import atexit, os, pytest

        @pytest.mark.gpu(isolate=True)
        def test_alone(): atexit.register(os.abort)

        @pytest.mark.gpu
        def test_after(): pass
    """)
    result = run(pytester, CPU)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "failed at its end" in said(result)
