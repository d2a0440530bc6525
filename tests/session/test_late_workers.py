"""Several workers where each has a machine of its own that is paid for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import fakes
from fakes import Far
from pytest_remotegpu.protocol import events, orders
from stage import FAR, Stage


def test_one_that_would_come_too_late_is_let_go(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a test is done, it is known that the rest takes less than the start of a machine."""
    monkeypatch.setattr(fakes.Scripted, "start_seconds", 10.0, raising=False)
    (stage.path / "test_more.py").write_text("import pytest\n@pytest.mark.gpu\ndef test_m(): 1\n")
    let_go = threading.Event()

    def comes_late(far: Far) -> None:
        assert far.stopped.wait(20)
        let_go.set()

    def waits(far: Far) -> None:
        far.greet()
        message: Any = far.order.run
        while isinstance(message, orders.Run):
            for place in range(message.first, message.last):
                far.run(place)
                assert let_go.wait(10)
            far.say(events.StretchEnded())
            message = far.next_run()
        far.say(events.Ended())

    played = stage.run(waits, comes_late, args=("--remote-workers=2",))
    assert played.ret == 0, played.text
    assert played.verdicts((*FAR, "test_more.py::test_m")) == ["passed"] * 4
    assert played.workers == 2
    assert "lost" not in played.text
