"""What a scripted far side does when a run meets a limit, and what must have come of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fakes import Far, report
from pytest_remotegpu.protocol import events, orders
from stage import FAR, HERE, PASSED, Played

__all__ = ["hangs", "is_deaf", "judged", "stop_of"]


def stop_of(far: Far) -> orders.Stop:
    """Wait until the worker is told to stop."""
    message = far.message()
    while isinstance(message, orders.Finish):
        message = far.message()
    assert isinstance(message, orders.Stop)
    return message


def hangs(limit: str) -> Callable[[Far], None]:
    """Run the first test, hang in the second, and say at that limit what it did."""

    def script(far: Far) -> None:
        far.greet()
        far.run(0)
        far.say(events.Started(1), report(1, "setup"))
        stop = stop_of(far)
        assert stop.limit == limit
        assert stop.grace > 0
        far.say(
            events.Crashed(1, f"timed out: {stop.limit}", b"in test_b", b"", b"", timeout=True),
            events.Ended(),
        )

    return script


def is_deaf(far: Far) -> None:
    """Run the first test, hang in the second, and hear nothing."""
    far.greet()
    far.run(0)
    far.say(events.Started(1), report(1, "setup"))
    far.stopped.wait(30)


def judged(played: Played, limit: str, *, second: str) -> None:
    """See that the first test passed, the second failed, and the third has not run."""
    assert played.ret == pytest.ExitCode.TESTS_FAILED, played.text
    assert played.phases[FAR[0]] == PASSED
    assert second in played.texts[FAR[1]]
    assert played.texts[FAR[2]] == f"not run: {limit}"
    assert played.phases[FAR[2]] == [("setup", "failed"), ("teardown", "passed")]
    assert played.verdicts(HERE) == ["passed"] * len(HERE)
    assert played.text.count(f"cause: {limit}") == 1
