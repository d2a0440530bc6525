"""What lies between a session and the service fails for a while: nothing is lost, all is said."""

from __future__ import annotations

import signal
import time

import pytest
from grpclib import Status

from loopback import LoopbackModal
from session.running import Started, run, until

from .test_preempting import T4, held, numbers

planes = pytest.mark.parametrize(
    "service", [False, True], ids=["control-plane", "input-plane"], indirect=True
)


@planes
@pytest.mark.timeout(120)
def test_the_network_is_away_while_a_test_runs(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """The container does not notice, and the session reads on where it was."""
    held(pytester)
    with Started(pytester, T4) as session:
        assert until(lambda: 1 in numbers(pytester))
        service.down()
        time.sleep(12)  # longer than the SDK tries by itself
        (pytester.path / "go").touch()
        assert until(lambda: 3 in numbers(pytester))
        service.up()
        assert session.end() == 0, session.text
        text = session.text
    assert "4 passed" in text, text
    assert numbers(pytester) == [0, 1, 2, 3]
    assert len(service.calls) == len(service.containers) == 1
    assert "Modal's service does not answer (" in text, text
    assert "Modal's service is there again" in text, text


@pytest.mark.timeout(120)
def test_the_network_is_away_before_a_container_has_started(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    (pytester.path / "go").touch()
    held(pytester)
    service.faults.start_delay = None
    with Started(pytester, T4) as session:
        assert until(lambda: bool(service.calls))
        service.down()
        time.sleep(12)
        service.faults.start_delay = 0.0
        service.up()
        assert session.end() == 0, session.text
        text = session.text
    assert "4 passed" in text, text
    assert numbers(pytester) == [0, 1, 2, 3]
    assert len(service.calls) == len(service.containers) == 1


@pytest.mark.timeout(120)
def test_what_is_sent_is_not_taken_for_a_while(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """The files that a worker lacks come in pieces, of which none is left out."""
    (pytester.path / "go").touch()
    held(pytester)
    service.faults.refuse("QueuePut", Status.FAILED_PRECONDITION, "no", times=7)
    result = run(pytester, T4)
    result.assert_outcomes(passed=4)
    assert len(service.calls) == 1


def test_the_wait_for_another_container_is_said_and_ends_with_the_session(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    held(pytester)
    service.faults.lose(after="claim", times=50)
    service.limits.crashes_of_input = 1
    with Started(pytester, T4) as session:
        session.wait_for("waits 1 s before another container (")
        session.wait_for("waits 4 s before another container (")
        assert "Modal has lost the container" in session.text
        calls = len(service.calls)
        session.process.send_signal(signal.SIGKILL)
        assert until(lambda: not session.living(), 2.5), session.living()
    assert len(service.calls) == calls
