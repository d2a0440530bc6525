"""Signals that end a session: real ones, sent to this process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_remotegpu.signals import Interrupts

ENDINGS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if os.name == "posix" else [])]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals as POSIX has them")


@pytest.fixture(autouse=True)
def _as_a_shell_starts_us() -> Iterator[None]:
    """Give each signal what a process has for it that nobody told otherwise."""
    defaults = dict.fromkeys(ENDINGS, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, does) for number, does in defaults.items()}
    yield
    for number, does in before.items():
        signal.signal(number, does)


def send(number: int) -> None:
    """Send this process a signal, and let it come."""
    signal.raise_signal(number)


@pytest.mark.parametrize("number", ENDINGS)
def test_a_signal_becomes_an_interrupt_that_names_it(number: signal.Signals) -> None:
    name = "" if number == signal.SIGINT else number.name
    with Interrupts(), pytest.raises(KeyboardInterrupt, match=f"^{name}$"):
        send(number)


def test_what_held_before_holds_after() -> None:
    before = [signal.getsignal(number) for number in ENDINGS]
    with Interrupts():
        assert [signal.getsignal(number) for number in ENDINGS] != before
    assert [signal.getsignal(number) for number in ENDINGS] == before


def test_what_others_handle_or_ignore_is_left_alone() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts():
        send(signal.SIGTERM)
        send(signal.SIGHUP)
    assert seen == [signal.SIGTERM]


def test_a_signal_waits_for_the_end_of_what_holds_it() -> None:
    reached: list[str] = []
    interrupts = Interrupts()

    def hold() -> None:
        with interrupts.held():
            with interrupts.held():
                send(signal.SIGTERM)
            reached.append("the inner end")

    with interrupts, pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        hold()
    assert reached == ["the inner end"]
    with interrupts, interrupts.held():
        pass


def test_a_second_one_waits_for_nothing() -> None:
    reached: list[str] = []
    interrupts = Interrupts()

    def hold() -> None:
        with interrupts.held():
            send(signal.SIGINT)
            reached.append("after the first")
            send(signal.SIGTERM)
            reached.append("after the second")

    with interrupts, pytest.raises(KeyboardInterrupt):
        hold()
    assert reached == ["after the first"]
    with interrupts, interrupts.held():
        pass


def test_a_terminal_is_lost_once_only() -> None:
    """A shell that ends says it a second time, in the midst of the reports."""
    interrupts = Interrupts()
    with interrupts, pytest.raises(KeyboardInterrupt):
        send(signal.SIGHUP)
    send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_terminal_that_is_gone_is_written_to_in_vain() -> None:
    """Copies of its descriptor, such as captures keep, are pointed elsewhere as well."""
    ours, theirs = os.openpty()
    saved = [os.dup(fd) for fd in (1, 2)]
    copy = os.dup(theirs)
    interrupts = Interrupts()
    try:
        os.dup2(theirs, 2)
        with interrupts:
            os.close(ours)
            with pytest.raises(OSError, match="error"):
                os.write(2, b"x")
            with pytest.raises(KeyboardInterrupt):
                send(signal.SIGHUP)
        assert [os.write(fd, b"x") for fd in (2, theirs, copy)] == [1, 1, 1]
    finally:
        for number, fd in enumerate(saved, 1):
            os.dup2(fd, number)
        for fd in (*saved, theirs, copy):
            os.close(fd)


def test_other_threads_have_no_signals() -> None:
    before = [signal.getsignal(number) for number in ENDINGS]
    found: list[Any] = []

    def look() -> None:
        with Interrupts():
            found.extend(signal.getsignal(number) for number in ENDINGS)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == before
