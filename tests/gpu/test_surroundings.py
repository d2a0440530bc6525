"""What a test finds: the cards that it asked for, its variables, and nobody else's settings."""

from __future__ import annotations

import os

import pytest

from pytest_remotegpu import cards

from . import Run

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


def test_settings_are_the_next_invocations_own(run: Run) -> None:
    text = """
        import os
        import pytest
        import torch

        pytestmark = pytest.mark.gpu

        def test_finds_defaults(gpu_device):
            assert torch.get_default_dtype() is torch.float32
            assert not torch.are_deterministic_algorithms_enabled()
            assert not torch.backends.cudnn.deterministic
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.initial_seed() != 7 != torch.cuda.initial_seed()
            assert "MINE" not in os.environ
            assert torch.ones(1, device=gpu_device).dtype is torch.float32

        def test_changes_them(gpu_device):
            torch.set_default_dtype(torch.float64)
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.deterministic = True
            torch.set_float32_matmul_precision("medium")
            torch.manual_seed(7)
            os.environ["MINE"] = "1"
            assert torch.ones(1, device=gpu_device).dtype is torch.float64
    """
    for _ in range(2):
        run(test_it=text).assert_outcomes(passed=2)


def test_variables_of_the_mark_are_there_from_the_start(run: Run) -> None:
    result = run(
        test_it="""
            import os
            import pytest
            import torch

            SEEN = os.environ.get("CUBLAS_WORKSPACE_CONFIG")

            @pytest.mark.gpu(env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
            def test_deterministic(gpu_device):
                assert SEEN == ":4096:8"
                torch.use_deterministic_algorithms(True)
                one = torch.randn(512, 512, device=gpu_device, dtype=torch.bfloat16)
                assert torch.equal(one @ one, one @ one)

            @pytest.mark.gpu
            def test_without(gpu_device):
                assert SEEN is None
                assert not torch.are_deterministic_algorithms_enabled()
        """
    )
    result.assert_outcomes(passed=2)


ONE = """
    import os
    import pytest
    import torch

    @pytest.mark.gpu
    def test_one(gpu, gpu_device, gpu_devices):
        assert torch.cuda.device_count() == gpu.count == len(gpu_devices) == 1
        assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 1
        assert torch.cuda.get_device_name(gpu_device) == gpu.type
        one = torch.ones(256, 256, device=gpu_device)
        assert (one @ one).sum().item() == 256.0 ** 3
"""
TWO = """
    import os
    import pytest
    import torch

    @pytest.mark.gpu(2)
    def test_two(gpu_devices):
        assert torch.cuda.device_count() == len(gpu_devices) == 2
        assert len(set(os.environ["CUDA_VISIBLE_DEVICES"].split(","))) == 2
        parts = [torch.full((4,), float(at), device=d) for at, d in enumerate(gpu_devices)]
        assert sum(part.cpu() for part in parts).tolist() == [1.0] * 4
        free = [torch.cuda.mem_get_info(device)[0] for device in gpu_devices]
        assert len({torch.cuda.get_device_properties(d).uuid for d in gpu_devices}) == 2

    @pytest.mark.gpu(2)
    def test_fault_on_the_second(gpu_devices):
        second = gpu_devices[1]
        torch.zeros(3, device=second)[torch.tensor([7], device=second)]

    @pytest.mark.gpu(2)
    def test_both_work(gpu_devices):
        assert torch.cuda.current_device() == 0
        kept = [torch.ones(2**20, device=device) for device in gpu_devices]
        assert [part.sum().item() for part in kept] == [2.0**20] * 2
        assert torch.cuda.current_device() == 0
"""


def test_one_card(run: Run) -> None:
    run(test_it=ONE).assert_outcomes(passed=1)


@pytest.mark.gpu(count=2)
def test_two_cards(run: Run) -> None:
    result = run(test_one=ONE, test_two=TWO)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["CUDA_ERROR_ASSERT: device-side assert triggered (device 1)"])


def test_cards_that_do_and_cards_that_do_not(run: Run) -> None:
    card = cards.visible(os.environ)[0]
    word = card.name.removeprefix("NVIDIA ").split()[0]
    memory, capability = card.memory >> 30, card.capability
    other = "T4" if "T4" not in card.name else "H200"
    result = run(
        test_it=f"""
            import pytest
            import torch

            @pytest.mark.gpu(
                type=["{other}", "{word}"], min_memory_gib={memory}, min_capability={capability}
            )
            def test_fits():
                found = torch.cuda.get_device_properties(0)
                assert "{word}" in found.name
                assert found.total_memory > {memory} * 0.9 * 2**30
                assert (found.major, found.minor) == ({capability} // 1, {capability} * 10 % 10)

            @pytest.mark.gpu(type="{other}")
            def test_other_type(): raise AssertionError("it ran")

            @pytest.mark.gpu(min_memory_gib={memory * 2})
            def test_more_memory(): raise AssertionError("it ran")

            @pytest.mark.gpu(min_capability={capability + 1})
            def test_newer(): raise AssertionError("it ran")

            @pytest.mark.gpu(512)
            def test_many(): raise AssertionError("it ran")
        """
    )
    result.assert_outcomes(passed=1, errors=4)
    text = result.stdout.str()
    assert "it ran" not in text
    assert f"is not {other}" in text
    assert f"not {memory * 2} GiB" in text
    assert f"not {capability + 1}" in text
    assert "512 GPUs asked for" in text
