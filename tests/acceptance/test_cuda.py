"""What only a CUDA host can show: real cards, through a worker behind a command and in place.

Marked ``gpu``, so that a host without cards skips them with the way to run them.
"""

from __future__ import annotations

import sys

import pytest

PROJECT = {
    "pytest.ini": f"""
        [pytest]
        remotegpu_python = {sys.executable}
    """,
    "test_cards.py": """
        import os
        import pytest

        torch = pytest.importorskip("torch")

        def test_here():
            assert "REMOTEGPU_WORKER" not in os.environ

        @pytest.mark.gpu
        def test_one(gpu, gpu_device):
            assert torch.cuda.device_count() == 1 == gpu.count
            assert gpu_device.type == "cuda"
            ones = torch.ones(256, 256, device=gpu_device)
            assert (ones @ ones).sum().item() == 256.0**3
            print("CARD", gpu.type, gpu.memory >> 30, os.environ["CUDA_VISIBLE_DEVICES"])
            assert os.environ["REMOTEGPU_WORKER"]

        @pytest.mark.gpu
        def test_asserts_on_the_device(gpu_device):
            index = torch.tensor([7], device=gpu_device)
            torch.zeros(3, device=gpu_device)[index].sum().item()

        @pytest.mark.gpu(2)
        def test_two(gpu_devices):
            assert torch.cuda.device_count() == 2 == len(gpu_devices)
            parts = [torch.full((4,), float(at), device=d) for at, d in enumerate(gpu_devices)]
            assert sum(part.cpu() for part in parts).tolist() == [1.0] * 4
    """,
}


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makefile(".ini", pytest=PROJECT["pytest.ini"])
    pytester.makepyfile(test_cards=PROJECT["test_cards.py"])
    return pytester


@pytest.mark.gpu
@pytest.mark.timeout(120)
def test_one_card_behind_a_command(project: pytest.Pytester) -> None:
    args = ("--remote=command:env", "--gpu-required", "-v", "-rA", "-k", "here or one")
    result = project.runpytest_subprocess(*args)
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["remote: 1 test on 1 GPU, 1 here", "*test_one PASSED*", "CARD *"])
    assert "no GPU was used" not in result.stdout.str()


@pytest.mark.gpu
@pytest.mark.timeout(120)
def test_an_error_on_the_device_is_that_tests(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--remote=command:env", "-rA", "-k", "device")
    assert result.ret == 1, result.stdout.str()
    result.assert_outcomes(failed=1)


@pytest.mark.gpu
@pytest.mark.timeout(120)
def test_in_place(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a far side a marked test runs where the host has what it asks for."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    result = project.runpytest_subprocess("-v", "-k", "here or one", "--gpu-required")
    result.stdout.fnmatch_lines(["*test_here PASSED*", "*test_one *REMOTEGPU_WORKER*"])


@pytest.mark.gpu
@pytest.mark.timeout(120)
def test_no_card_visible_is_no_card(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = project.runpytest_subprocess("--remote=command:env", "-k", "one")
    assert result.ret == 1
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*1 GPU asked for, and this host shows 0: none*"])


@pytest.mark.gpu(count=2)
@pytest.mark.timeout(120)
def test_two_cards_behind_a_command(project: pytest.Pytester) -> None:
    args = ("--remote=command:env", "--gpu-required", "-v", "-k", "one or two or here")
    result = project.runpytest_subprocess(*args)
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=3)
