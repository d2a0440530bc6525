"""Memory of a real card: told for each test, told apart where it lacks, and given back."""

from __future__ import annotations

import pytest

from junit_properties import properties

from . import Run

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

MIB = 2**20
KEEPER = """
    import pytest

    kept = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(call):
        kept.append(call.excinfo)
        return (yield)
"""


def test_a_lack_of_memory_is_told_apart_and_given_back(run: Run, pytester: pytest.Pytester) -> None:
    """Even where somebody keeps each error, and with it all that its frames hold."""
    result = run(
        conftest=KEEPER,
        test_it="""
            import pytest
            import torch

            pytestmark = pytest.mark.gpu

            def part(share):
                free, total = torch.cuda.mem_get_info()
                return torch.empty(int(free * share), dtype=torch.uint8, device="cuda")

            def test_lacks(gpu_device):
                activations = part(0.7)
                weights = [part(0.2)]
                weights.append(weights)
                torch.empty(int(activations.numel() * 1.4), dtype=torch.uint8, device="cuda")

            def test_has_all(gpu_device):
                assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 0
                most = part(0.9)
                assert 0 <= torch.cuda.memory_allocated() - most.numel() < 2**22

            def test_asks_for_more_than_there_is(gpu_device):
                torch.empty(2**45, dtype=torch.uint8, device="cuda")

            def test_says_so_itself(gpu_device):
                with pytest.raises(torch.OutOfMemoryError):
                    torch.empty(2**45, dtype=torch.uint8, device="cuda")
        """,
    )
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*- GPU out of memory -*",
            "device 0",
            "asked for: *GiB",
            "peak of this test: *GiB allocated, *GiB reserved",
            "the card: *GiB free of *GiB",
            "*- GPU out of memory -*",
            "asked for: 32768.0 GiB",
        ]
    )
    found = properties(pytester.path / "junit.xml")
    lacked = {name for name, each in found.items() if "out_of_memory" in each}
    assert lacked == {"test_lacks", "test_asks_for_more_than_there_is"}
    assert {name for name, each in found.items() if "leaked" in each} == set()


def test_the_next_card_is_named_where_one_would_do(run: Run) -> None:
    result = run(
        test_it="""
            import pytest
            import torch

            @pytest.mark.gpu
            def test_lacks(gpu_device):
                free, total = torch.cuda.mem_get_info()
                if total > 180 * 2**30:
                    pytest.skip("no card is much larger")
                torch.empty(int(total * 1.05), dtype=torch.uint8, device="cuda")
        """
    )
    if "skipped" not in result.parseoutcomes():
        result.stdout.fnmatch_lines(["hint: gpu(min_memory_gib=*) asks for a card with more*"])


def test_peaks_and_leaks_of_each_test(run: Run, pytester: pytest.Pytester) -> None:
    result = run(
        test_it="""
            import pytest
            import torch

            pytestmark = pytest.mark.gpu
            MIB = 2**20
            kept = []

            def test_peaks(gpu_device):
                torch.empty(256 * MIB, dtype=torch.uint8, device=gpu_device)

            def test_multiplies(gpu_device):
                one = torch.ones(64, 64, device=gpu_device, requires_grad=True)
                (one @ one).sum().backward()
                assert one.grad.sum().item() == 2 * 64 ** 3

            def test_makes_circles(gpu_device):
                circle = [torch.empty(64 * MIB, dtype=torch.uint8, device=gpu_device)]
                circle.append(circle)

            def test_leaks(gpu_device):
                kept.append(torch.empty(48 * MIB, dtype=torch.uint8, device=gpu_device))

            @pytest.fixture(scope="module")
            def weights():
                return torch.empty(96 * MIB, dtype=torch.uint8, device="cuda")

            def test_has_weights(weights):
                assert weights.numel() == 96 * MIB

            def test_still_has_them(weights):
                torch.empty(8 * MIB, dtype=torch.uint8, device=weights.device)
        """
    )
    result.assert_outcomes(passed=6)
    found = properties(pytester.path / "junit.xml")
    peaks = {name: int(each["peak_allocated"]) for name, each in found.items()}
    assert 256 * MIB <= peaks["test_peaks"] < 258 * MIB
    assert peaks["test_makes_circles"] - peaks["test_multiplies"] + MIB >= 64 * MIB
    assert peaks["test_still_has_them"] >= (96 + 48 + 8) * MIB
    assert all(int(each["peak_reserved"]) >= peaks[name] for name, each in found.items())
    leaks = {name: int(each["leaked"]) for name, each in found.items() if "leaked" in each}
    assert leaks == {"test_leaks": 48 * MIB}
    result.stdout.fnmatch_lines(
        ["1 GPU*   peak 256.* MiB test_it.py::test_peaks", "note: GPU memory grew by 48.0 MiB in *"]
    )


def test_a_process_that_is_full_is_replaced_between_modules(run: Run) -> None:
    result = run(
        test_a="""
            import pytest
            import torch

            kept = []

            @pytest.mark.gpu
            def test_leaks(gpu_device):
                free, total = torch.cuda.mem_get_info()
                size = int(total * 0.6)
                kept.append(torch.empty(size, dtype=torch.uint8, device=gpu_device))
        """,
        test_b="""
            import pytest
            import torch

            @pytest.mark.gpu
            def test_room(gpu_device):
                free, total = torch.cuda.mem_get_info()
                assert free > total * 0.9
        """,
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["note: *so a new process went on; *in test_a.py::test_leaks"])
