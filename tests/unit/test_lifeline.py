"""The line between processes: real sockets, words that arrive, ends that are noticed."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator

import pytest

from pytest_remotegpu.lifeline import AT_ONCE, GONE, HERE, IN_GOOD_ORDER, Lifeline, hold


@pytest.fixture
def line() -> Iterator[Lifeline]:
    found = Lifeline()
    yield found
    found.close()


def called(line: Lifeline, name: str) -> queue.Queue[bytes]:
    """Call as a process of that name, and wait until that is known."""
    heard: queue.Queue[bytes] = queue.Queue()
    hold(line.address, name, heard.put)
    return heard


def next_of(heard: queue.Queue[bytes]) -> bytes:
    return heard.get(timeout=10)


def test_words_go_to_whom_they_are_meant_for(line: Lifeline) -> None:
    first, second = called(line, "gw0"), called(line, "gw1")
    assert line.living() == {"gw0", "gw1"}
    line.tell(IN_GOOD_ORDER, {"gw1", "gw7"})
    line.tell(AT_ONCE, {"gw0", "gw1"})
    assert next_of(first) == AT_ONCE
    assert [next_of(second), next_of(second)] == [IN_GOOD_ORDER, AT_ONCE]


def test_the_end_of_either_side_is_noticed(line: Lifeline) -> None:
    port, token = line.address.split()
    with socket.create_connection((HERE, int(port))) as other:
        other.sendall(f"{token} gw0\n".encode())
        assert line.living() == {"gw0"}
    seen = threading.Event()
    while line.living():
        seen.wait(0.01)
    heard = called(line, "gw1")
    assert line.living() == {"gw1"}
    line.close()
    assert next_of(heard) == GONE


def test_who_called_and_was_not_taken_in_hears_of_the_end_too(line: Lifeline) -> None:
    heard = called(line, "gw0")
    line.close()
    assert next_of(heard) == GONE


@pytest.mark.parametrize("greeting", [b"", b"\n", b"0 gw0\n", b"\xff" * 300, b"{token}"])
def test_strangers_are_not_let_in(greeting: bytes, line: Lifeline) -> None:
    """Whoever says nothing holds nobody up for long."""
    port, token = line.address.split()
    with socket.create_connection((HERE, int(port))) as other:
        other.sendall(greeting.replace(b"{token}", token.encode()[:-1] + b"x gw0\n"))
        heard = called(line, "gw1")
        assert line.living() == {"gw1"}
        other.settimeout(10)
        with contextlib.suppress(ConnectionResetError):  # as where something was left unread
            assert other.recv(1) == b""
    line.tell(AT_ONCE, {"gw1"})
    assert next_of(heard) == AT_ONCE


def test_nobody_to_call(line: Lifeline) -> None:
    line.close()
    with pytest.raises(OSError):  # noqa: PT011 -- which one is the system's choice
        hold(line.address, "gw0", lambda _word: None)
