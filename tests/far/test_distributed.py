"""Far collection together with pytest-xdist: each process has its worker collect, and run."""

from __future__ import annotations

import os
import re
import sys

import pytest

from session.running import CPU, run, said

pytest.importorskip("xdist")

FAR = (CPU, "-o", "remotegpu_collect=far")
GUARD = """
    import os, sys

    class Guard:
        def find_spec(self, name, path=None, target=None):
            if name in ("test_far", "only_there"):
                raise RuntimeError(f"{name} is imported here")
            return None

    if "REMOTEGPU_WORKER" not in os.environ:
        sys.meta_path.insert(0, Guard())
"""
TESTS = """
    import os
    import pytest
    import only_there

    with open("imports", "a") as file:
        print(os.getpid(), file=file)

    @pytest.mark.gpu
    @pytest.mark.parametrize("n", range(4))
    def test_n(n): assert n != 2

    @pytest.mark.gpu
    class TestGroup:
        @pytest.mark.xdist_group("one")
        def test_a(self): pass

        @pytest.mark.xdist_group("one")
        def test_b(self): pytest.skip("not today")

    @pytest.mark.gpu
    def test_fixture(worker_id):
        assert worker_id in ("gw0", "gw1")
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Give a project whose far tests can't be imported here."""
    pytester.makeconftest(GUARD)
    pytester.makepyfile(
        test_far=TESTS,
        test_plain="def test_here(worker_id): assert worker_id.startswith('gw')",
        only_there="",
    )
    return pytester


@pytest.mark.parametrize("dist", ["load", "loadscope", "loadfile", "loadgroup", "worksteal"])
def test_each_way_to_distribute(project: pytest.Pytester, dist: str) -> None:
    """No process here imports the file; the far side does once for each process that has one."""
    result = run(project, *FAR, "-n2", "--dist", dist, "-rA", "--junitxml=far.xml")
    result.assert_outcomes(passed=6, failed=1, skipped=1)
    text = said(result)
    assert text.count("remote: 7 tests on 1 GPU, 1 here") == 1  # by one process for all
    assert re.search(r"PASSED test_far.py::TestGroup::test_a(@one)?\n", text), text
    assert "is imported here" not in text
    imports = (project.path / "imports").read_text().split()
    assert len(imports) == len(set(imports)) == 2


def test_every_process_runs_all_of_them(project: pytest.Pytester) -> None:
    result = run(project, *FAR, "-n2", "--dist", "each")
    result.assert_outcomes(passed=12, failed=2, skipped=2)


def test_errors_of_collection_are_shown_once(project: pytest.Pytester) -> None:
    """With the lines that a session without any far side has for them, which has some twice."""
    project.makepyfile(
        test_broken="import pytest\nimport nothing_like_it\n@pytest.mark.gpu\ndef test(): pass",
        test_odd="import pytest\n@pytest.mark.gpu\ndef test(): pass\nraise ValueError('hm')",
    )
    plain = project.runpytest_subprocess("-n2", "test_broken.py", "test_odd.py", "--noconftest")
    far = run(project, *FAR, "-n2", "test_broken.py", "test_odd.py")
    assert far.ret == plain.ret == pytest.ExitCode.TESTS_FAILED
    far.assert_outcomes(errors=2)

    def told(result: pytest.RunResult) -> set[str]:
        lines = result.stdout.lines
        kept = lines[next(i for i, line in enumerate(lines) if "ERRORS" in line) : -1]
        return {line for line in kept if "remote" not in line}

    assert told(far) == told(plain)


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (["--remote=command:false"], "can't serve this session"),
        ([CPU, "--remote-max-cost=0.01"], "--remote-max-cost=0.01: no price is known"),
    ],
    ids=["no worker", "no price"],
)
def test_what_no_process_can_have_collected_ends_the_session(
    project: pytest.Pytester, there: list[str], why: str
) -> None:
    options = ("-o", "remotegpu_collect=far", "-o", f"remotegpu_python={sys.executable}")
    result = run(project, *there, *options, "-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert why in said(result)
    assert "passed" not in said(result)


def test_files_that_travel(project: pytest.Pytester) -> None:
    """With a far side that has no file of the project, and pretends two cards."""
    there = "--remote=command:env -u PYTHONPATH PYTEST_REMOTEGPU_PRETEND_GPUS=2"
    options = ("-o", "remotegpu_collect=far", "-o", f"remotegpu_python={sys.executable}")
    result = run(project, there, *options, "-n2", "-v")
    result.assert_outcomes(passed=6, failed=1, skipped=1)
    assert not os.path.exists("imports")  # noqa: PTH110 -- the folder is the session's own
