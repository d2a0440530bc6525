"""The fixtures: what a test sees of its GPUs, under pretend ones and without a far side."""

from __future__ import annotations

import importlib.util

import pytest

from .running import CPU, run, said

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: pip install torch"
)


@needs_torch
def test_pretend_gpus_are_the_cpu(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.gpu
        def test_one(gpu, gpu_device, gpu_devices):
            import torch
            cpu = torch.device("cpu")
            assert (gpu.type, gpu.count, gpu.memory) == ("pretend", 1, None)
            assert gpu_device == cpu
            assert gpu_devices == list(gpu.devices) == [cpu]
            assert torch.ones(2, device=gpu_device).sum() == 2
            assert torch.cuda.device_count() == 0

        @pytest.mark.gpu(2)
        def test_two(gpu, gpu_device, gpu_devices):
            assert gpu.count == len(gpu_devices) == 2
            assert gpu_devices[0] == gpu_device
            assert os.environ["CUDA_VISIBLE_DEVICES"] == ""

        def test_here(): pass
    """)
    result = run(pytester, CPU)
    result.assert_outcomes(passed=3)


@needs_torch
def test_without_a_gpu_the_fixtures_say_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.makeini("[pytest]\nmarkers = gpu: registered here, so that nothing is skipped\n")
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu(2)
        def test_marked(gpu_device): pass

        def test_unmarked(gpu): pass
    """)
    result = run(pytester)
    result.assert_outcomes(errors=2)
    assert "2 GPUs were promised and torch sees 0" in said(result)
    assert "for tests with the gpu mark" in said(result)


def test_a_test_without_a_mark_has_no_gpu_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_unmarked(gpu_devices): pass
    """)
    for args in ([], [CPU, "--remote-all"]):
        result = pytester.runpytest_inprocess(*args)
        result.assert_outcomes(errors=1)
        assert "for tests with the gpu mark" in said(result)


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="needs a host without torch"
)
def test_without_torch_the_fixtures_skip(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_one(gpu): pass
    """)
    result = pytester.runpytest_inprocess(CPU, "-rs")
    result.assert_outcomes(skipped=1)
    assert "torch" in said(result)


def test_a_projects_own_fixtures_stand_over_ours(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture
        def gpu(): return "ours"

        @pytest.fixture
        def artifacts_dir(): return "mine"
    """)
    pytester.makepyfile("""
        import pytest

        def test_here(gpu, artifacts_dir): assert (gpu, artifacts_dir) == ("ours", "mine")

        test_far = pytest.mark.gpu(test_here)
    """)
    pytester.runpytest_inprocess(CPU).assert_outcomes(passed=2)


def test_fixtures_of_every_scope_live_once_in_a_worker(pytester: pytest.Pytester) -> None:
    """Set-ups and tear-downs are those of one session, and the last tear-down is reported."""
    pytester.makeconftest("""
        import os
        import pathlib
        import pytest

        def note(text):
            side = "far" if "REMOTEGPU_WORKER" in os.environ else "here"
            with pathlib.Path(f"trace-{side}").open("a") as file:
                print(text, file=file)

        def make(scope):
            @pytest.fixture(scope=scope, name=scope + "_thing")
            def thing():
                note("+" + scope)
                yield
                note("-" + scope)
            return thing

        session_thing, package_thing, module_thing, class_thing, function_thing = map(
            make, ["session", "package", "module", "class", "function"])

        @pytest.fixture
        def things(session_thing, package_thing, module_thing, class_thing, function_thing): pass
    """)
    far = """
        import pytest
        pytestmark = pytest.mark.gpu

        class TestOne:
            def test_a(self, things): pass
            def test_b(self, things): pass

        def test_c(things): pass
    """
    pytester.makepyfile(test_1=far, test_2="def test_here(things): pass", test_3=far)
    pytester.runpytest_inprocess(CPU).assert_outcomes(passed=7)
    trace = pytester.path.joinpath("trace-far").read_text().split()
    assert trace.count("+session") == trace.count("-session") == 1
    assert trace.count("+package") == trace.count("-package") == 1
    assert trace.count("+module") == trace.count("-module") == 2
    assert trace.count("+class") == trace.count("-class") == 4
    assert trace.count("+function") == trace.count("-function") == 6
    assert trace[-1] == "-session"
    here = pytester.path.joinpath("trace-here").read_text().split()
    scopes = ["session", "package", "module", "class", "function"]
    assert here == [f"+{scope}" for scope in scopes] + [f"-{scope}" for scope in reversed(scopes)]
