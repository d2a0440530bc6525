"""The notice of a container's end: heard once, told to all who ask, and raised after all."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from pytest_remotegpu.backends.modal.notice import Notice

PATIENCE = 10.0


def told() -> tuple[threading.Event, threading.Event]:
    return threading.Event(), threading.Event()


def test_it_is_heard_and_raised_once_the_call_has_ended() -> None:
    first, second = told()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 -- it is raised later on
        with Notice(farewell=0.05) as notice:
            notice.then(first.set)
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            assert first.wait(PATIENCE)
            assert notice.came
            notice.then(second.set)  # too late, and told nevertheless
            assert second.wait(PATIENCE)
        threading.Event().wait(PATIENCE)


def test_without_one_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGINT)
    first, _ = told()
    with Notice() as notice:
        notice.then(first.set)
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
    assert not notice.came
    assert not first.is_set()


def test_in_another_thread_than_the_main_one() -> None:
    """Signals are none of its business there."""
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def serve() -> None:
        with Notice():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(PATIENCE)
    assert seen == [before]
