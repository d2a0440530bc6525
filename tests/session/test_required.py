"""``--gpu-required``: no session passes that had to use a GPU and did not.

Hosts without a card are the point here, so this process's own cards are hidden.
"""

from __future__ import annotations

import sys

import pytest

from .running import CPU, run, said

ERROR = "--gpu-required: no test with the gpu mark ran on a GPU"
TESTS = """
    import pytest

    @pytest.mark.gpu
    def test_one(): pass

    @pytest.mark.gpu(2)
    @pytest.mark.xfail(reason="none of its business")
    def test_two(): pass

    def test_here(): pass
"""


@pytest.fixture(autouse=True)
def _no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_without_a_gpu_each_marked_test_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = run(pytester, "--gpu-required", "-rA")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=2)
    assert "needs 1 GPU, this host shows 0" in said(result)
    assert "needs 2 GPUs, this host shows 0" in said(result)
    assert "skipped" not in result.outlines[-1]
    assert "Error" not in said(result).replace("ERROR", "")


def test_the_ini_option_says_the_same(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nremotegpu_required = true\n")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, errors=2)


def test_a_gpu_marker_of_the_projects_own_is_no_way_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers = gpu: this project's own\n")
    result = pytester.runpytest_inprocess("--gpu-required")
    result.assert_outcomes(passed=1, errors=2)


def test_an_ill_formed_mark_is_no_way_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.gpu(cuont=2)\ndef test_far(): pass\n")
    result = pytester.runpytest_inprocess("--gpu-required")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "::test_far: gpu() has no argument 'cuont'" in said(result)


@pytest.mark.parametrize("args", [[], ["-m", "not gpu"], ["-k", "here"]])
def test_a_session_that_used_no_gpu_does_not_pass(
    args: list[str], pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test_here(): pass" if not args else TESTS)
    result = pytester.runpytest_inprocess("--gpu-required", *args)
    result.assert_outcomes(passed=1, deselected=2 if args else 0)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert ERROR in said(result)


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["--collect-only"], pytest.ExitCode.OK),
        (["--remote-plan"], pytest.ExitCode.OK),
        (["-k", "nothing_like_this"], pytest.ExitCode.NO_TESTS_COLLECTED),
    ],
)
def test_a_session_that_runs_nothing_needs_no_gpu(
    args: list[str], status: int, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("--gpu-required", *args)
    assert result.ret == status
    assert ERROR not in said(result)


def test_a_far_side_without_gpus_is_refused_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(CPU, "--gpu-required")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--gpu-required refuses --remote=local:cpu" in said(result)


def test_pretend_gpus_behind_a_command_are_refused_before_any_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_REMOTEGPU_PRETEND_GPUS", "2")
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    pytester.makepyfile("""
        import pathlib
        import pytest

        def test_here(): pathlib.Path("here.ran").touch()

        @pytest.mark.gpu
        def test_far(): raise SystemExit("it was run")
    """)
    result = run(pytester, "--remote=command:env", "--gpu-required")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--gpu-required" in said(result)
    assert "pretend" in said(result)
    assert "it was run" not in said(result)
    assert not pytester.path.joinpath("here.ran").exists()


def test_a_far_host_without_a_card_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    pytester.makepyfile(TESTS)
    result = run(pytester, "--remote=command:env", "--gpu-required")
    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.USAGE_ERROR)
    assert "this host has 0" in said(result) or "no GPU" in said(result)
