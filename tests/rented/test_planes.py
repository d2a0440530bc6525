"""The two ways of a call, of which the service chooses one: its control plane, and input planes."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from loopback import LoopbackModal
from session.running import LONG, Started, run, said, until

T4 = "--remote=modal:T4"
MIXED = """
    import os, pathlib, signal, pytest

    RAN = pathlib.Path({ran!r})

    @pytest.fixture(autouse=True)
    def noted(request):
        with RAN.open("a") as file:
            file.write(f"{{request.node.name}} ")

    @pytest.mark.gpu
    def test_passes(): print("from", os.environ["MODAL_TASK_ID"])

    @pytest.mark.gpu
    def test_fails(): assert 1 == 2

    @pytest.mark.gpu
    def test_crashes(): os.kill(os.getpid(), signal.SIGSEGV)

    @pytest.mark.gpu
    def test_ends_its_process(): os._exit(0)

    @pytest.mark.gpu
    def test_leaves(): raise SystemExit(0)

    @pytest.mark.gpu
    def test_last(): pass
"""
planes = pytest.mark.parametrize(
    "service", [False, True], ids=["control-plane", "input-plane"], indirect=True
)
plane = pytest.mark.parametrize("service", [True], ids=["input-plane"], indirect=True)


@pytest.fixture
def ran(pytester: pytest.Pytester) -> Path:
    """Give the file in which each test that begins leaves its name."""
    path = pytester.path / "ran.txt"
    pytester.makepyfile(MIXED.format(ran=str(path)))
    return path


def names(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def way(service: LoopbackModal) -> tuple[bool, bool]:
    """Say whether calls went through the control plane, and whether through an input plane."""
    return service.count("FunctionMap") > 0, service.count("AttemptStart") > 0


def taken(request: pytest.FixtureRequest) -> tuple[bool, bool]:
    """Say the same of what the parameter asks for."""
    through_input_plane = request.node.callspec.params["service"]
    return not through_input_plane, through_input_plane


@planes
def test_outcomes(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, request: pytest.FixtureRequest
) -> None:
    first = run(pytester, T4, "-rA")
    first.assert_outcomes(passed=2, failed=4)
    first.stdout.fnmatch_lines(["*SIGSEGV*", "from ta-*"], consecutive=False)
    assert len(names(ran)) == 6
    run(pytester, T4).assert_outcomes(passed=2, failed=4)
    assert len(names(ran)) == 12
    assert way(service) == taken(request)
    assert (len(service.containers), len(service.deploys), len(service.calls)) == (1, 1, 2)


@planes
def test_the_first_failure_ends_it(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, request: pytest.FixtureRequest
) -> None:
    result = run(pytester, T4, "-x")
    result.assert_outcomes(passed=1, failed=1)
    assert names(ran) == ["test_passes", "test_fails"]
    assert way(service) == taken(request)
    (rented,) = service.running
    service.wait_until(lambda: rented.current is None)


@planes
def test_a_container_is_lost(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, request: pytest.FixtureRequest
) -> None:
    """What has no verdict runs in another container; what has one does not run again."""
    service.faults.lose(after=4)
    result = run(pytester, T4, "-o", "remotegpu_collect=here")  # where it is lost while it runs
    result.assert_outcomes(passed=2, failed=4)
    assert 6 <= len(names(ran)) <= 8, names(ran)
    assert len(service.containers) == 2
    assert "was lost: " in said(result)
    assert way(service) == taken(request)


@planes
def test_a_container_is_preempted(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, request: pytest.FixtureRequest
) -> None:
    """It has half a minute, in which what has begun comes to its end; nothing runs twice."""
    service.faults.preempt(after=4)
    result = run(pytester, T4)
    result.assert_outcomes(passed=2, failed=4)
    assert len(names(ran)) == 6, names(ran)
    assert way(service) == taken(request)
    assert service.containers[0].draining


@planes
@pytest.mark.parametrize("deaf", [False, True])
def test_the_service_fails_before_a_container_has_begun(
    pytester: pytest.Pytester,
    service: LoopbackModal,
    ran: Path,
    request: pytest.FixtureRequest,
    *,
    deaf: bool,
) -> None:
    """The SDK does not try again by itself: it would not hear what a later attempt says."""
    service.faults.deaf = deaf
    service.faults.fail_inputs("INTERNAL_FAILURE", times=2)
    result = run(pytester, T4)
    result.assert_outcomes(passed=2, failed=4)
    assert len(names(ran)) == 6
    assert service.count("AttemptRetry") == 0
    assert way(service) == taken(request)
    assert "Modal has lost the container" in said(result)


@planes
def test_the_service_fails_while_a_container_works(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    service.limits.crashes_of_input = 1
    service.faults.lose(after=4)
    result = run(pytester, T4, "-o", "remotegpu_collect=here")  # where it is lost while it runs
    result.assert_outcomes(passed=2, failed=4)
    assert service.count("AttemptRetry") == 0
    runs = Counter(names(ran))  # what it runs between its loss and its end is run again elsewhere
    assert len(runs) == 6
    assert set(runs.values()) <= {1, 2}


@plane
def test_the_service_fails_for_good(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    service.faults.fail_inputs("INTERNAL_FAILURE", times=500)
    result = run(pytester, T4)
    result.assert_outcomes(errors=1)  # a file that nobody could collect
    assert result.ret == 2
    assert names(ran) == []
    assert len(service.calls) == 4
    assert "Modal has lost the container" in said(result)


@plane
@pytest.mark.timeout(150)
@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
def test_ends(pytester: pytest.Pytester, service: LoopbackModal, how: str) -> None:
    """Killed, it has the call cancelled by its id, which an input plane's calls have as well."""
    mark = pytester.path / "has-begun"
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(mark)!r})"))
    with Started(pytester, T4) as session:
        assert until(mark.exists)
        (rented,) = service.running
        session.process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
        service.wait_until(lambda: rented.current is None, 15)
        assert session.end() == (2 if how == "Ctrl-C" else -signal.SIGKILL)
    assert (service.count("FunctionCallCancel") > 0) == (how == "kill -9")
    assert [entry.output is not None for entry in service.inputs] == [True]
    assert ("1 passed" in session.text) == (how == "Ctrl-C")
    assert service.running == [rented]


ONE = "import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n"


@plane
def test_a_warm_container_outlasts_a_call_that_was_withdrawn(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    begun = pytester.path / "has-begun"
    long = LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(begun)!r})")
    pytester.makepyfile(test_a=long, test_b=ONE)
    with Started(pytester, T4, "test_a.py") as session:
        assert until(begun.exists)
        (rented,) = service.running
        service.faults.no_capacity = {"T4"}
        run(pytester, T4, "--remote-wait=2", "test_b.py").assert_outcomes(errors=1)
        session.process.send_signal(signal.SIGINT)
        session.end()
    service.wait_until(lambda: all(entry.output is not None for entry in service.inputs), 15)
    run(pytester, T4, "test_b.py").assert_outcomes(passed=1)
    assert [entry.deliveries for entry in service.inputs] == [[rented.id]] * 3


@plane
@pytest.mark.timeout(150)
@pytest.mark.parametrize("how", ["--remote-wait=2", "Ctrl-C", "kill -9"])
def test_a_call_that_nobody_wants_any_more_is_left_alone(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, how: str
) -> None:
    """It has no id by which it could be cancelled: who comes for it finds that, and goes."""
    service.faults.no_capacity = {"T4"}
    with Started(pytester, T4, *([how] if how.startswith("--") else [])) as session:
        service.wait_until(lambda: bool(service.inputs), 30)
        if not how.startswith("--"):
            time.sleep(0.5)  # the answer to the call is here
            session.process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
        session.end()
        service.wait_until(lambda: service.count("DictUpdate") > 0, 15)  # nobody else claims it
    service.faults.no_capacity = set()
    service.wait_until(lambda: any(each.pid is not None for each in service.containers), 30)
    service.wait_until(lambda: not service.running, 15)  # far less than its 60 s without work
    assert names(ran) == []


@plane
def test_more_than_a_message_holds(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.path.joinpath("weights.bin").write_bytes(bytes(range(256)) * 2**14)
    pytester.makepyfile("""
        import pathlib, pytest

        @pytest.mark.gpu
        def test_one(artifacts_dir):
            data = pathlib.Path("weights.bin").read_bytes()
            assert len(data) == 2**22
            print("x" * 3_000_000)
            (artifacts_dir / "copy.bin").write_bytes(data)
    """)
    run(pytester, T4).assert_outcomes(passed=1)
    (copy,) = pytester.path.glob(".pytest_cache/d/remotegpu/artifacts/*/copy.bin")
    assert copy.stat().st_size == 2**22
    assert way(service) == (False, True)
