"""Lines that run on the far side are counted by pytest-cov as if they had run here."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from .running import CPU, run, said

pytest.importorskip("pytest_cov", reason="needs pytest-cov: pip install pytest-cov")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers need POSIX")

LIB = """
    def sign(number):
        if number > 0:
            return 1
        if number < 0:
            return -1
        return 0


    def only_here():
        return "here"


    def at_the_end():
        return "end"


    def never():
        return "never"
"""
TESTS = """
    import os
    import pytest

    import lib

    @pytest.fixture(scope="session")
    def thing():
        yield
        lib.at_the_end()

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", [2, 0])
    def test_far(number, thing):
        assert lib.sign(number) in (0, 1)

    def test_here():
        assert lib.only_here() == "here"
"""


def counted(pytester: pytest.Pytester, *args: str, ret: int = 0) -> dict[str, Any]:
    """Run a session with pytest-cov, and give what its report has of the library."""
    report = pytester.path / "cov.json"
    result = run(pytester, "--cov=.", "--cov-report=json:cov.json", *args)
    assert result.ret == ret, said(result)
    files = json.loads(report.read_text())["files"]
    report.unlink()
    return {
        name: {
            key: data[key]
            for key in ("executed_lines", "missing_lines", "executed_branches", "missing_branches")
            if key in data
        }
        for name, data in files.items()
    }


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Have a library and tests of it."""
    pytester.makepyfile(lib=LIB, test_it=TESTS, conftest="def pytest_configure(): pass\n")
    return pytester


@pytest.mark.parametrize(
    "more", [["--remote-workers=2"], ["--cov-branch"], ["-n2"], ["-x"]], ids=str
)
def test_the_report_is_that_of_a_run_here(project: pytest.Pytester, more: list[str]) -> None:
    plain = counted(project, "-o", "markers=gpu: here", *more)
    assert plain["lib.py"]["missing_lines"] == [5, 18]
    assert counted(project, CPU, *more) == plain


def test_options_say_what_is_measured(project: pytest.Pytester) -> None:
    project.makefile(".ini", cover="[run]\nomit = test_*\n")
    found = counted(project, CPU, "--cov-config=cover.ini")
    assert sorted(found) == ["conftest.py", "lib.py"]


def test_what_ran_before_a_crash_is_counted(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_crash="""
        import os
        import pytest

        import lib

        @pytest.mark.gpu
        def test_before(): lib.sign(1)

        @pytest.mark.gpu
        def test_crashes():
            os._exit(3)

        @pytest.mark.gpu
        def test_after(): lib.sign(0)
        """
    )
    found = counted(project, CPU, "test_crash.py", ret=1)
    assert found["lib.py"]["missing_lines"] == [5, 10, 14, 18]
    assert found["test_crash.py"]["missing_lines"] == [11]  # the line that ended the process


def test_contexts(project: pytest.Pytester) -> None:
    """What ran there belongs to no local test."""
    run(project, CPU, "--cov=.", "--cov-context=test", "--cov-report=")
    import coverage  # noqa: PLC0415 -- like pytest-cov, it may be missing

    data = coverage.CoverageData(str(project.path / ".coverage"))
    data.read()
    contexts = data.contexts_by_lineno(str(project.path / "lib.py"))
    assert contexts[3] == ["far side"]
    assert all("test_here" in name for name in contexts[10])


def test_nothing_is_measured_without_it(project: pytest.Pytester) -> None:
    project.makeconftest("""
        import os, sys

        def pytest_sessionfinish():
            if "REMOTEGPU_WORKER" in os.environ:
                coverage = sys.modules.get("coverage")
                assert coverage is None or coverage.Coverage.current() is None
    """)
    result = run(project, CPU)
    assert result.ret == 0


def test_coverage_run(project: pytest.Pytester) -> None:
    """It counts as well, where pytest-cov measures nothing."""
    command = [sys.executable, "-m", "coverage", "run", "--source=.", "-m", "pytest", CPU]
    result = project.run(*command, timeout=40.0)
    assert result.ret == 0, said(result)
    import coverage  # noqa: PLC0415 -- like pytest-cov, it may be missing

    data = coverage.CoverageData(str(project.path / ".coverage"))
    data.read()
    assert set(data.lines(str(project.path / "lib.py")) or ()) >= {2, 3, 4, 6, 10, 14}
