"""How sessions end at the service: nothing is rented after them, and what stays is said."""

from __future__ import annotations

import signal

import pytest

from loopback import LoopbackModal
from session.running import Started, run, said

T4 = "--remote=modal:T4"
ONE = "import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n"


def nobody_comes(service: LoopbackModal) -> None:
    """Give the card back that nobody could have, and see that no machine is taken for it."""
    service.faults.no_capacity = set()
    service.wait_until(lambda: not service.running, 15)
    assert [each.id for each in service.containers if each.pid is not None] == []


# calls for which no container has come


@pytest.mark.parametrize("limit", ["--remote-wait=2", "--remote-run-timeout=3"])
def test_what_was_not_waited_for_does_not_come_later(
    pytester: pytest.Pytester, service: LoopbackModal, limit: str
) -> None:
    service.faults.no_capacity = {"T4"}
    pytester.makepyfile(ONE)
    result = run(pytester, T4, limit)
    result.assert_outcomes(errors=1)
    assert [entry.output is not None for entry in service.inputs] == [True]
    nobody_comes(service)


@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
def test_what_nobody_needs_any_more_does_not_come_later(
    pytester: pytest.Pytester, service: LoopbackModal, how: str
) -> None:
    service.faults.no_capacity = {"T4"}
    pytester.makepyfile(ONE)
    with Started(pytester, T4) as session:
        service.wait_until(lambda: service.inputs, 30)
        session.process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
        session.end()
    service.wait_until(lambda: all(entry.output is not None for entry in service.inputs), 15)
    nobody_comes(service)
