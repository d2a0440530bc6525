"""A fault is of the phase that it is found after; a failed test holds on to no GPU memory."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from fake_cuda import GIB, MIB, CudaTorch, Library, OutOfMemoryError
from pytest_remotegpu.protocol import events
from pytest_remotegpu.worker.cuda import Driver
from pytest_remotegpu.worker.gpu_state import GpuState

PHASES = ("setup", "call", "teardown")


def nothing() -> None:
    """Do nothing."""


def report_of(call: pytest.CallInfo[None]) -> pytest.TestReport:
    """Make a report as pytest does, with less of a text."""
    error = call.excinfo
    skipped = error is not None and error.errisinstance(pytest.skip.Exception)
    return pytest.TestReport(
        "t.py::t",
        ("t.py", 0, "t"),
        keywords={},
        outcome="passed" if error is None else "skipped" if skipped else "failed",
        longrepr=None if error is None else str(error.value),
        when=call.when,  # type: ignore[arg-type]
    )


@dataclass
class Bench:
    """Runs phases as pytest does, with the plugin around them and a card that is none."""

    library: Library = field(default_factory=Library)

    def __post_init__(self) -> None:
        self.library.active = {0}
        self.state = GpuState(lambda: Driver(self.library))

    def breaks(self, status: int = 710, *, lasts: bool = True) -> None:
        """Have a kernel fail on the device."""
        self.library.faults = {1: status}
        self.library.sticky = {1} if lasts else set()

    def phase(self, when: str, body: Callable[[], None] = nothing) -> pytest.TestReport:
        """Run a phase of a test and give its report."""

        def run() -> None:
            body()
            getattr(self.state, f"pytest_runtest_{when}")()

        call = pytest.CallInfo.from_call(run, when)  # type: ignore[arg-type]
        hook: Generator[None, Any, Any] = self.state.pytest_runtest_makereport(call)
        next(hook)
        report = report_of(call)
        with pytest.raises(StopIteration) as end:
            hook.send(report)
        assert end.value.value == report
        return report

    def outcomes(self, **bodies: Callable[[], None]) -> list[tuple[str, str, Any]]:
        """Run all phases; give each one's outcome and error."""
        self.state.begin("t.py::t")
        reports = [self.phase(when, bodies.get(when, nothing)) for when in PHASES]
        return [(one.when or "", one.outcome, one.longrepr) for one in reports]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> CudaTorch:
    made = CudaTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.mark.parametrize("when", PHASES)
def test_a_fault_fails_the_phase_that_it_is_found_after(bench: Bench, when: str) -> None:
    found = bench.outcomes(**{when: bench.breaks})
    assert [outcome for _, outcome, _ in found] == [
        "failed" if phase == when else "passed" for phase in PHASES
    ]
    text = next(text for phase, _, text in found if phase == when)
    assert text.startswith("CUDA_ERROR_ASSERT: device-side assert triggered (device 0)\n")
    assert (
        f"asynchronous: this fault was found when the devices were synchronised after the {when}"
        in text
    )
    assert "can't use CUDA any more" in text
    assert bench.state.poisoned == "CUDA_ERROR_ASSERT: device-side assert triggered (device 0)"
    assert bench.state.end(0) == []


def test_a_fault_that_does_not_last_spoils_nothing(bench: Bench) -> None:
    found = bench.outcomes(call=lambda: bench.breaks(2, lasts=False))
    assert [outcome for _, outcome, _ in found] == ["passed", "failed", "passed"]
    assert "any more" not in found[1][2]
    assert bench.state.poisoned == ""


def test_a_tests_own_error_stays_and_the_fault_is_noted(bench: Bench) -> None:
    def body() -> None:
        bench.breaks()
        raise ValueError("its own")

    report = bench.phase("call", body)
    assert (report.outcome, report.longrepr) == ("failed", "its own")
    ((name, text),) = report.sections
    assert name == "CUDA fault"
    assert "CUDA_ERROR_ASSERT" in text
    assert bench.state.poisoned


def test_a_skip_is_no_excuse_and_an_expected_failure_is_one(bench: Bench) -> None:
    def skips() -> None:
        bench.breaks()
        pytest.skip("half way")

    report = bench.phase("call", skips)
    assert report.failed
    assert "CUDA_ERROR_ASSERT" in str(report.longrepr)

    other = Bench()

    def fails() -> None:
        other.breaks()
        pytest.xfail("as known")

    report = other.phase("call", fails)
    assert "as known" in str(report.longrepr)
    assert [name for name, _ in report.sections] == ["CUDA fault"]


def test_a_fault_that_a_hook_has_caused_after_the_test(bench: Bench) -> None:
    """As wrappers around the phase may: it is found when the report is made."""
    call = pytest.CallInfo.from_call(nothing, "call")
    bench.breaks()
    next(bench.state.pytest_runtest_makereport(call))
    assert call.excinfo is not None
    assert "after the call phase" in str(call.excinfo.value)


def test_a_fault_that_no_report_can_tell_of_fails_the_session(bench: Bench) -> None:
    bench.outcomes()
    bench.breaks()
    (said,) = bench.state.end(0)
    assert isinstance(said, events.SessionEnded)
    assert said.status == 1
    assert b"CUDA_ERROR_ASSERT" in said.text
    assert b"found after t.py::t had ended" in said.text
    assert bench.state.poisoned


def test_a_graph_that_is_recorded_is_not_disturbed(bench: Bench, torch: CudaTorch) -> None:
    torch.cuda.capturing = True
    bench.outcomes()
    assert bench.library.waited == []
    torch.cuda.capturing = False
    bench.outcomes()
    assert bench.library.waited


@pytest.mark.parametrize("lost", [True, False])
def test_errors_at_the_end_are_explained_by_a_lost_context(bench: Bench, lost: bool) -> None:
    if lost:
        bench.outcomes(call=bench.breaks)
    assert bench.state.explains(RuntimeError("CUDA error: device-side assert triggered")) is lost
    assert not bench.state.explains(ValueError("its own"))


# ---------------------------------------------------------------- memory


def lacks() -> None:
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total")


def test_a_lack_of_memory_is_told_apart(bench: Bench, torch: CudaTorch) -> None:
    bench.state.begin("t.py::t")

    def body() -> None:
        torch.cuda.allocate(300 * MIB)
        lacks()

    reports = [bench.phase("setup"), bench.phase("call", body), bench.phase("teardown")]
    (section,) = reports[1].sections
    text = (
        "device 0\nasked for: 8.0 GiB\n"
        "peak of this test: 300.0 MiB allocated, 300.0 MiB reserved\n"
        "the card: 3.0 GiB free of 4.0 GiB\n"
        "hint: gpu(min_memory_gib=16) asks for a card with more memory"
    )
    assert section == ("GPU out of memory", text)
    assert [report.user_properties for report in reports] == [
        [],
        [("remotegpu_needs_gib", 16), ("remotegpu_out_of_memory", True)],
        [("remotegpu_out_of_memory", True)],
    ]
    assert bench.phase("setup").user_properties == []


def test_a_lack_that_was_expected_is_none(bench: Bench) -> None:
    def body() -> None:
        try:
            lacks()
        except OutOfMemoryError:
            pytest.skip("too small a card")

    report = bench.phase("call", body)
    assert (report.outcome, report.sections, report.user_properties) == ("skipped", [], [])


class Tensor:
    """Something on a card."""


@pytest.mark.parametrize("used", [True, False])
def test_a_failed_tests_tensors_go_although_its_error_is_kept(
    bench: Bench, torch: CudaTorch, used: bool
) -> None:
    kept: list[BaseException] = []
    tensors: list[weakref.ref[Tensor]] = []
    bench.library.active = {0} if used else set()

    def body() -> None:
        tensor = Tensor()
        tensors.append(weakref.ref(tensor))
        kept.append(ValueError(f"with {tensor}"))
        raise kept[0]

    bench.outcomes(call=body)
    bench.state.end(0)
    assert kept[0].__traceback__ is not None
    assert (tensors[0]() is None) is used
    assert torch.cuda.emptied == (1 if used else 0)


def test_a_test_that_passes_is_left_alone(bench: Bench, torch: CudaTorch) -> None:
    bench.outcomes()
    bench.state.end(0)
    assert torch.cuda.emptied == 0


def test_nothing_is_asked_of_torch_once_the_context_is_lost(bench: Bench, torch: CudaTorch) -> None:
    bench.outcomes(call=bench.breaks)
    (told,) = bench.state.end(3)
    assert told == events.Memory(3, 0, 0, 0, 0, 0)
    assert torch.cuda.emptied == 0
    assert bench.state.outgrown() == ""


@pytest.mark.parametrize(("scope", "leaked"), [("function", 5 * MIB), ("module", 0)])
def test_memory_of_a_test_and_its_fixtures(
    bench: Bench, torch: CudaTorch, scope: str, leaked: int
) -> None:
    def setup() -> None:
        fixture: Any = SimpleNamespace(scope=scope)
        bench.state.pytest_fixture_setup(fixture)
        torch.cuda.allocate(5 * MIB)

    bench.outcomes(setup=setup)
    assert bench.state.end(2) == [events.Memory(2, 5 * MIB, 5 * MIB, leaked, 3 * GIB, 4 * GIB)]


def test_a_process_that_holds_too_much_says_so(bench: Bench, torch: CudaTorch) -> None:
    bench.outcomes(call=lambda: torch.cuda.allocate(3 * GIB))
    bench.state.end(0)
    assert "3.0 GiB of 4.0 GiB" in bench.state.outgrown()
