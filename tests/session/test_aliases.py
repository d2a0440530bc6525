"""Markers in use elsewhere: what ``remotegpu_aliases`` makes of them, and what without it."""

from __future__ import annotations

import pytest

from .running import CPU, own_marker, run, said

FOREIGN = """
    import pytest

    @pytest.mark.multi_gpu
    def test_multi(): pass

    @pytest.mark.hpc(nodes=4)
    def test_hpc(): pass

    @pytest.mark.hpc
    @pytest.mark.gpu(2)
    def test_both(): pass

    @pytest.mark.gpus
    def test_slip(): pass

    @pytest.mark.slow
    def test_slow(): pass
"""


def places(result: pytest.RunResult) -> dict[str, str]:
    """Give the place of each test, as the plan shows them."""
    return {
        line.split("::")[-1]: " ".join(line.split()[:-1])
        for line in result.outlines
        if "::" in line
    }


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
def test_aliases_ship_and_near_misses_are_reported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FOREIGN)
    result = pytester.runpytest_inprocess(CPU, "--remote-plan", "-p", "no:warnings")
    assert places(result) == {
        "test_multi": "here",
        "test_hpc": "here",
        "test_both": "far, 2 GPUs",
        "test_slip": "here",
        "test_slow": "here",
    }
    assert [line for line in result.outlines if "ships nothing" in line] == [
        "remote: marker 'gpus' ships nothing; did you mean 'gpu'?",
        "remote: marker 'hpc' ships nothing; remotegpu_aliases can say: hpc = gpu",
        "remote: marker 'multi_gpu' ships nothing; remotegpu_aliases can say: multi_gpu = gpu",
    ]
    pytester.makeini(
        "[pytest]\nmarkers = multi_gpu\n  hpc\n  gpus\n  slow\n"
        "remotegpu_aliases =\n  multi_gpu = gpu(2)\n  hpc = gpu\n"
    )
    result = pytester.runpytest_inprocess(CPU, "--remote-plan", "--strict-markers")
    assert places(result) == {
        "test_multi": "far, 2 GPUs",
        "test_hpc": "far, 1 GPU",
        "test_both": "far, 2 GPUs",
        "test_slip": "here",
        "test_slow": "here",
    }
    assert [line for line in result.outlines if "ships nothing" in line] == [
        "remote: marker 'gpus' ships nothing; did you mean 'gpu'?"
    ]


def test_a_foreign_suite_runs_unchanged(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nmarkers =\n  multi_gpu: more than one\n  gpu: this project's own\n"
        "remotegpu_aliases =\n  multi_gpu = gpu(2)\n"
    )
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.multi_gpu(nodes=1)
        class TestMany:
            def test_one(self): assert os.environ["REMOTEGPU_WORKER"]
            def test_two(self): assert os.environ["REMOTEGPU_WORKER"]

        def test_here(): assert "REMOTEGPU_WORKER" not in os.environ
    """)
    result = run(pytester, CPU, "--strict-markers", "-W", "error")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["2 GPUs *2 tests *"])


@pytest.mark.parametrize("where", ["ini", "conftest"])
def test_a_gpu_marker_of_the_projects_own_points_to_the_aliases(
    where: str, pytester: pytest.Pytester
) -> None:
    own_marker(pytester, where)
    pytester.makepyfile("""
        import pytest
        @pytest.mark.gpu(memory=8)
        def test_own(): pass
    """)
    result = pytester.runpytest_inprocess(CPU)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = said(result)
    assert "::test_own: gpu() has no argument 'memory'" in text
    assert "remotegpu_aliases" in text
