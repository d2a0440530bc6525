"""GPU memory of tests, in whole sessions: what is told of it, and what becomes of it.

First with a far side that follows a script; then with real runners, torch's allocator and a driver
that only count.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import fake_cuda
from fake_cuda import GIB, MIB
from fakes import Far, report
from junit_properties import properties
from pytest_remotegpu.protocol import events
from stage import FAR, Played, Stage, each

from .running import CPU, said

PHASES = ("setup", "call", "teardown")


# ---------------------------------------------------------------- told by a script


def told(*memories: events.Memory | None) -> list[events.Event]:
    """Give what is said of tests that pass, one after the other, with the memory of each."""
    said: list[events.Event] = []
    for place, memory in enumerate(memories):
        said += [events.Started(place), *(report(place, when) for when in PHASES)]
        said += [memory] if memory is not None else []
        said.append(events.Finished(place))
    return said


def test_it_is_in_the_junit_file_and_in_the_summary(stage: Stage) -> None:
    def script(far: Far) -> None:
        far.greet()
        far.say(
            *told(
                events.Memory(0, 2 * GIB, 3 * GIB, 1288490189, GIB, 4 * GIB),
                events.Memory(1, 5 * MIB, 8 * MIB, -5, GIB, 4 * GIB),
                None,
            )
        )
        far.end()

    played = stage.run(script, args=("--junitxml=junit.xml", "-o", "junit_family=xunit1"))
    assert played.ret == 0, played.text
    found = properties(stage.path / "junit.xml")
    assert found["test_a"] == {
        "peak_allocated": str(2 * GIB),
        "peak_reserved": str(3 * GIB),
        "leaked": "1288490189",
    }
    assert found["test_b"] == {"peak_allocated": str(5 * MIB), "peak_reserved": str(8 * MIB)}
    assert found["test_c"] == {}
    assert "   peak 2.0 GiB test_far.py::test_a\n" in played.text
    assert "note: GPU memory grew by 1.2 GiB in test_far.py::test_a and stayed" in played.text
    assert "memory grew" not in played.text.replace("memory grew by 1.2 GiB", "")


LIES: dict[str, tuple[events.Memory, ...]] = {
    "has not begun": (events.Memory(1, 1, 1, 0, 1, 1),),
    "was not handed out": (events.Memory(9, 1, 1, 0, 1, 1),),
    "came twice": (events.Memory(0, 1, 1, 0, 1, 1), events.Memory(0, 1, 1, 0, 1, 1)),
    "than cards can have": (events.Memory(0, 2**63, 1, 0, 1, 1),),
    "cards can have": (events.Memory(0, 1, 1, -(2**60), 1, 1),),
}


def test_what_cannot_be_true_is_not_believed(stage: Stage) -> None:
    def says(*lies: events.Memory) -> object:
        def script(far: Far) -> None:
            far.greet()
            far.say(events.Started(0), *(report(0, when) for when in PHASES), *lies)
            far.say(events.Finished(0))
            far.run(1, 2)
            far.end()

        return script

    def check(words: str, played: Played) -> None:
        played.caught(said=words, guilty=FAR)

    each(stage.run_lanes({words: says(*lies) for words, lies in LIES.items()}), check)  # type: ignore[misc]


# ---------------------------------------------------------------- real runners

CONFTEST = """
    import ctypes
    import os
    import sys
    import pytest

    sys.path.insert(0, os.environ["FAKES"])
    kept = []

    if "REMOTEGPU_WORKER" in os.environ:
        import fake_cuda

        ctypes.CDLL(os.environ["STAND_IN"]).device_is(1, 0)
        torch = sys.modules["torch"] = fake_cuda.CudaTorch()
        MIB = fake_cuda.MIB

    class Tensor:
        def __init__(self, size):
            self.size = size
            torch.cuda.allocate(size)

        def __del__(self):
            torch.cuda.allocate(-self.size)

    @pytest.fixture
    def cuda():
        return torch.cuda

    @pytest.fixture
    def tensor():
        return Tensor

    @pytest.fixture(scope="module")
    def weights():
        return Tensor(40 * MIB)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(call):
        kept.append(call.excinfo)
        return (yield)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("STAND_IN", str(fake_cuda.build(pytester.mkdir("stand-in"))))
    monkeypatch.setenv("FAKES", str(Path(fake_cuda.__file__).parent))
    pytester.makeconftest(CONFTEST)
    return pytester


def test_peaks_and_leaks_of_each_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        pytestmark = pytest.mark.gpu
        MIB = 2**20
        kept = []

        def test_passes(tensor):
            tensor(30 * MIB)
            one = tensor(20 * MIB)

        def test_small(tensor):
            tensor(MIB)

        def test_leaks(tensor):
            kept.append(tensor(3 * MIB))

        def test_makes_weights(weights, tensor):
            tensor(3 * MIB)

        def test_uses_weights(weights):
            pass
    """
    )
    result = project.runpytest_inprocess(CPU, "--junitxml=junit.xml", "-o", "junit_family=xunit1")
    result.assert_outcomes(passed=5)
    found = properties(project.path / "junit.xml")
    peaks = {name: int(each["peak_allocated"]) // MIB for name, each in found.items()}
    assert peaks == {
        "test_passes": 30,
        "test_small": 1,
        "test_leaks": 3,
        "test_makes_weights": 46,
        "test_uses_weights": 43,
    }
    assert {n: e["leaked"] for n, e in found.items() if "leaked" in e} == {
        "test_leaks": str(3 * MIB)
    }
    text = said(result)
    assert "   peak 46.0 MiB test_it.py::test_makes_weights\n" in text
    assert "note: GPU memory grew by 3.0 MiB in test_it.py::test_leaks and stayed" in text


def test_a_failed_test_gives_its_memory_back_whoever_keeps_its_error(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        pytestmark = pytest.mark.gpu
        MIB = 2**20

        @pytest.mark.parametrize("n", range(2))
        def test_fails(tensor, cuda, n):
            assert cuda.allocated == 0
            activations = tensor(3000 * MIB)
            weights = [tensor(10 * MIB)]
            weights.append(weights)
            raise cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB. ...")

        def test_after(cuda):
            assert cuda.allocated == 0
            assert cuda.emptied == 2
            assert cuda.held == 0
    """
    )
    args = (CPU, "--junitxml=junit.xml", "-o", "junit_family=xunit1")
    result = project.runpytest_inprocess(*args)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*GPU out of memory*",
            "device 0",
            "asked for: 8.0 GiB",
            "peak of this test: 2.9 GiB allocated, 2.9 GiB reserved",
            "the card: 3.0 GiB free of 4.0 GiB",
            "hint: gpu(min_memory_gib=16) asks for *",
        ]
    )
    found = properties(project.path / "junit.xml")
    assert found["test_fails[0]"]["out_of_memory"] == "True"
    assert "leaked" not in found["test_fails[0]"]
    assert "out_of_memory" not in found["test_after"]


def test_a_process_that_is_full_is_replaced_between_modules(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_a="""
        import pytest

        pytestmark = pytest.mark.gpu
        kept = []

        @pytest.mark.parametrize("n", range(3))
        def test_leaks(tensor, cuda, n):
            assert cuda.allocated == len(kept) * 2**30, "no new process within a module"
            kept.append(tensor(2**30))
    """,
        test_b="""
        import pytest

        @pytest.mark.gpu
        def test_room(cuda):
            assert cuda.allocated == 0
    """,
    )
    result = project.runpytest_inprocess(CPU)
    result.assert_outcomes(passed=4)
    text = said(result)
    assert "3.0 GiB of 4.0 GiB of GPU memory were still allocated" in text
    assert "it grew most, by 1.0 GiB, in test_a.py::test_leaks[2]" in text
    assert result.ret == 0


def test_weights_of_a_session_stay_where_they_are(project: pytest.Pytester) -> None:
    once = """
        import pytest

        pytestmark = pytest.mark.gpu

        def test_uses(model, cuda):
            assert cuda.allocated == 3 * 2**30
    """
    project.makeconftest(
        CONFTEST
        + """
    @pytest.fixture(scope="session")
    def model():
        with open("made.log", "a") as log:
            log.write("once ")
        return Tensor(3 * 2**30)
    """
    )
    project.makepyfile(test_a=once, test_b=once)
    result = project.runpytest_inprocess(CPU)
    result.assert_outcomes(passed=2)
    assert (project.path / "made.log").read_text() == "once "
    assert "new process" not in said(result)


def test_settings_of_torch_are_the_next_invocations_own(pytester: pytest.Pytester) -> None:
    if importlib.util.find_spec("torch") is None:  # never imported in this process
        pytest.skip("needs torch")
    pytester.makepyfile(
        test_it="""
        import os
        import random
        import pytest
        import torch

        pytestmark = pytest.mark.gpu

        def test_finds_defaults():
            assert torch.get_default_dtype() is torch.float32
            assert not torch.are_deterministic_algorithms_enabled()
            assert torch.initial_seed() != 7
            assert "MINE" not in os.environ
            with open("drawn.log", "a") as log:
                print(random.random(), file=log)

        def test_changes_them():
            torch.set_default_dtype(torch.float64)
            torch.use_deterministic_algorithms(True)
            torch.manual_seed(7)
            random.seed(7)
            os.environ["MINE"] = "1"
    """
    )
    for _ in range(2):
        pytester.runpytest_subprocess(CPU).assert_outcomes(passed=2)
    first, second = (pytester.path / "drawn.log").read_text().split()
    assert first != second
