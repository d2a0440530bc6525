"""Faults on a real card: each fails the test that caused it, and no other."""

from __future__ import annotations

import re

import pytest

from . import Run

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

POKE = '''
    """Launches a kernel that writes where nothing is, by the driver alone."""

    import ctypes

    PTX = b"""
    .version 7.0
    .target sm_75
    .address_size 64
    .visible .entry poke(.param .u64 where)
    {
        .reg .b64 %address;
        .reg .b32 %value;
        ld.param.u64 %address, [where];
        mov.u32 %value, 1;
        st.global.u32 [%address], %value;
        ret;
    }
    """

    def check(status):
        assert status == 0, f"the driver answers {status}"

    def own_context(make):
        """Start the driver without any library."""
        cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        check(cuda.cuInit(0))
        check(cuda.cuDeviceGet(ctypes.byref(device), 0))
        if make:
            check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
        else:
            check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
            check(cuda.cuCtxSetCurrent(context))

    def poke(address):
        cuda = ctypes.CDLL("libcuda.so.1")
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"poke"))
        where = ctypes.c_uint64(address)
        given = (ctypes.c_void_p * 1)(ctypes.addressof(where))
        one = [ctypes.c_uint(1)] * 6
        check(cuda.cuLaunchKernel(function, *one, 0, None, given, None))
'''
ASSERTS = """
    import pytest
    import torch

    pytestmark = pytest.mark.gpu

    def picks_too_far(device):
        index = torch.tensor([7], device=device)
        return torch.zeros(3, device=device)[index]

    def works(device):
        assert torch.ones(2, device=device).sum().item() == 2.0

    def test_first(gpu_device):
        works(gpu_device)

    def test_launches(gpu_device):
        picks_too_far(gpu_device)

    def test_after_it(gpu_device):
        works(gpu_device)

    def test_waits(gpu_device):
        picks_too_far(gpu_device).sum().item()

    def test_after_that(gpu_device):
        works(gpu_device)

    @pytest.fixture
    def early(gpu_device):
        picks_too_far(gpu_device)

    def test_setup(early):
        raise AssertionError("it ran")

    @pytest.fixture
    def late(gpu_device):
        yield
        picks_too_far(gpu_device)

    def test_teardown(late): pass

    def test_fails_anyhow(gpu_device):
        picks_too_far(gpu_device)
        assert False, "its own reason"

    @pytest.mark.xfail(reason="known", strict=True)
    def test_known(gpu_device):
        picks_too_far(gpu_device)

    def test_last(gpu_device):
        works(gpu_device)
"""


def test_an_assert_on_the_device(run: Run) -> None:
    result = run(test_it=ASSERTS)
    text = result.stdout.str()
    result.assert_outcomes(passed=5, failed=3, errors=2, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "*::test_first PASSED*",
            "*::test_launches FAILED*",
            "*::test_after_it PASSED*",
            "*::test_waits FAILED*",
            "*::test_after_that PASSED*",
            "*::test_setup ERROR*",
            "*::test_teardown PASSED*",
            "*::test_teardown ERROR*",
            "*::test_fails_anyhow FAILED*",
            "*::test_known XFAIL*",
            "*::test_last PASSED*",
        ]
    )
    assert "it ran" not in text
    assert re.search(r"^E +AssertionError: its own reason", text, re.MULTILINE)
    launched = text.partition("_ test_launches _")[2].partition("\n____")[0]
    assert launched.splitlines()[1].startswith("CUDA_ERROR_ASSERT: device-side assert triggered")
    assert "was asynchronous" in launched
    assert re.search(r"-+ Captured std(out|err) call -+\n.*Assertion", launched, re.DOTALL), (
        launched
    )
    assert "gpu_state" not in text


@pytest.mark.parametrize("how", ["torch", "primary", "own"])
def test_an_illegal_address(run: Run, how: str) -> None:
    """Whoever has made the context: torch, or nobody but the driver."""
    result = run(
        poke=POKE,
        conftest=f"""
            import pytest

            @pytest.fixture
            def address(gpu_device):
                import poke
                if {how == "torch"}:
                    import torch
                    return lambda: torch.ones(1, device=gpu_device).data_ptr()
                poke.own_context(make={how == "own"})
                return lambda: 16 # never read
        """,
        test_it="""
            import pytest
            from poke import poke

            pytestmark = pytest.mark.gpu

            def test_pokes(address):
                address()
                poke(16)

            def test_after(address):
                address()

            def test_pokes_and_skips(address):
                address()
                poke(16)
                pytest.skip("no matter")

            def test_last(address):
                address()
        """,
    )
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["CUDA_ERROR_ILLEGAL_ADDRESS: *"])


def test_a_kernel_of_triton(run: Run) -> None:
    pytest.importorskip("triton")
    result = run(
        test_it="""
            import pytest, torch, triton
            import triton.language as tl

            pytestmark = pytest.mark.gpu

            @triton.jit
            def add(x, y, out, far, size: tl.constexpr):
                at = tl.arange(0, size)
                tl.store(out + far + at, tl.load(x + at) + tl.load(y + at))

            def launch(device, far):
                x = torch.arange(64, device=device, dtype=torch.float32)
                out = torch.empty_like(x)
                try:
                    add[(1,)](x, x, out, far, size=64)
                except Exception as error:
                    if "compiler" not in str(error):
                        raise
                    pytest.skip(f"triton can build nothing here: {error}")
                return x, out

            def test_adds(gpu_device):
                x, out = launch(gpu_device, 0)
                assert torch.equal(out, x + x)

            def test_writes_elsewhere(gpu_device):
                launch(gpu_device, 1 << 40)

            def test_adds_again(gpu_device):
                x, out = launch(gpu_device, 0)
                assert torch.equal(out, x + x)
        """
    )
    outcomes = result.parseoutcomes()
    if "skipped" in outcomes:
        pytest.skip("triton can build nothing here")
    assert outcomes == {"passed": 2, "failed": 1}, result.stdout.str()
    result.stdout.fnmatch_lines(["*::test_writes_elsewhere FAILED*", "CUDA_ERROR_ILLEGAL_ADDRESS*"])


def test_fixtures_of_a_lost_context(run: Run) -> None:
    result = run(
        test_it="""
            import pytest
            import torch

            pytestmark = pytest.mark.gpu

            @pytest.fixture(scope="module")
            def weights():
                made = torch.ones(8, device="cuda")
                yield made
                assert made.sum().item() == 8

            def test_breaks(weights, gpu_device):
                weights[torch.tensor([9], device=gpu_device)]

            def test_after(weights):
                assert weights.sum().item() == 8
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["note: after CUDA_ERROR_ASSERT*fixtures could not be torn down*"])


def test_the_budget_of_failures(run: Run) -> None:
    result = run("--maxfail=2", test_it=ASSERTS)
    result.assert_outcomes(passed=2, failed=2)
