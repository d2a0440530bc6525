"""Both ends of a lent terminal: what a far one shows and takes, and who may have the near one."""

from __future__ import annotations

import os
import selectors
import sys
import termios
import tty
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_remotegpu.desk import Desk
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.worker.desk import Desk as FarDesk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux")


class Far:
    """A far desk, with the runner's side of its pseudo-terminal, and what it has said."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.selector = selectors.DefaultSelector()
        self.heard: list[bool] = []
        self.written = b""
        self.desk = FarDesk(self.selector, self._take, self.hear)
        options = orders.Options(args=[], argv=[], files=[], terminal="xterm", screen=(7, 33))
        self.path = self.desk.set_up(options)
        self.terminal = os.open(self.path, os.O_RDWR | os.O_NOCTTY)

    def _take(self, *said: Any) -> None:
        self.said += said

    def hear(self) -> None:
        """Hear whether the runner's debugger has the terminal; it writes there meanwhile."""
        heard, self.heard = self.heard, []
        written, self.written = self.written, b""
        os.write(self.terminal, written)
        for place, debugs in enumerate(heard):
            self.desk.follow(debugs=debugs, place=place)

    def turn(self) -> None:
        """Let it do what is to be done now."""
        while ready := self.selector.select(0.2):
            for key, _ in ready:
                key.data()

    @property
    def shown(self) -> bytes:
        """What has been shown."""
        return b"".join(each.data for each in self.said if isinstance(each, events.Screen))

    def close(self) -> None:
        os.close(self.terminal)
        self.desk.close()
        self.selector.close()


@pytest.fixture
def far() -> Iterator[Far]:
    """Give one that is set up."""
    found = Far()
    yield found
    found.close()


def test_the_mark_is_not_shown(far: Far) -> None:
    """However it is cut, and what only begins like it is."""
    far.desk.follow(debugs=True, place=4)
    for part in (b"one\n\0remote", b"gpu: no\n", b"two\n" + events.SHOWN[:5]):
        os.write(far.terminal, part)
        far.turn()
    os.write(far.terminal, events.SHOWN[5:])
    far.desk.follow(debugs=False, place=4)
    assert far.shown == b"one\n\0remotegpu: no\ntwo\n"
    assert far.said[0] == events.Attached(4)
    assert far.said[-1] == events.Detached()


def test_the_rest_is_awaited(far: Far) -> None:
    """What was written before the terminal was given back is shown before that is said."""
    far.desk.follow(debugs=True, place=-1)
    os.write(far.terminal, b"x" * 3000 + events.SHOWN)
    far.desk.follow(debugs=False, place=-1)
    assert far.shown == b"x" * 3000
    assert far.said[-1] == events.Detached()


def test_two_debuggers_in_a_row(far: Far) -> None:
    """What the second shows is not the first one's, though all of it is there at once."""
    far.desk.follow(debugs=True, place=7)
    os.write(far.terminal, b"one" + events.SHOWN + b"two" + events.SHOWN + b"(Pdb) ")
    far.turn()
    far.desk.follow(debugs=False, place=7)
    far.desk.follow(debugs=True, place=8)
    far.desk.follow(debugs=False, place=8)
    far.desk.follow(debugs=True, place=9)
    expected: list[Any] = [events.Attached(7), events.Screen(b"one"), events.Detached()]
    expected += [events.Attached(8), events.Screen(b"two"), events.Detached()]
    assert far.said == [*expected, events.Attached(9), events.Screen(b"(Pdb) ")]


def test_the_next_words_come_with_the_last_ones(far: Far) -> None:
    """They are read as the terminal is given back, before it is known to be asked for again."""
    far.desk.follow(debugs=True, place=0)
    os.write(far.terminal, b"one")
    far.heard, far.written = [False], events.SHOWN + b"(Pdb) "
    far.turn()
    assert far.said[-1] == events.Detached()
    far.heard = [True]
    far.hear()
    assert far.said[-2:] == [events.Attached(0), events.Screen(b"(Pdb) ")]


def test_the_first_words_come_before_whose_they_are_is_known(far: Far) -> None:
    """They are shown as soon as it is; what no debugger has written is never shown."""
    os.write(far.terminal, b"a test's own\n")
    far.turn()
    assert far.said == []
    os.write(far.terminal, b"(Pdb) ")
    far.heard = [True]
    far.turn()
    assert far.said == [events.Attached(0), events.Screen(b"(Pdb) ")]


def test_more_is_typed_than_a_terminal_takes(far: Far) -> None:
    """It waits until somebody reads, and none of it is lost."""
    tty.setraw(far.terminal)
    pasted = os.urandom(10_000) * 3
    far.desk.take(orders.Keys(pasted))
    read = b""
    while len(read) < len(pasted):
        for key, _ in far.selector.select(0):
            key.data()
        read += os.read(far.terminal, 4096)
    assert read == pasted


def test_size_and_mode(far: Far) -> None:
    """The size is told; the ends of lines are the near terminal's, and no key stops a process."""
    assert os.get_terminal_size(far.terminal) == (33, 7)
    far.desk.take(orders.Window(50, 120))
    assert os.get_terminal_size(far.terminal) == (120, 50)
    far.desk.take(orders.Window(-1, 10**9))
    assert os.get_terminal_size(far.terminal) == (2**15, 0)
    mode = termios.tcgetattr(far.terminal)
    assert not mode[1] & termios.OPOST
    assert mode[3] & termios.ISIG
    assert mode[6][termios.VSUSP] == b"\0"


def test_a_runner_that_ends_gives_it_back(far: Far) -> None:
    """With its last words, and without a mark."""
    far.desk.follow(debugs=True, place=0)
    os.write(far.terminal, b"last words")
    far.desk.end()
    assert far.said == [events.Attached(0), events.Screen(b"last words"), events.Detached()]
    far.desk.take(orders.Keys(b"too late"))
    far.desk.take(orders.Window(1, 1))
    far.desk.end()
    assert far.desk.taken is False


def test_nobody_wants_one() -> None:
    """Then there is none."""
    desk = FarDesk(selectors.DefaultSelector(), lambda *_: None, lambda: None)
    assert desk.set_up(orders.Options(args=[], argv=[], files=[])) == ""
    desk.follow(debugs=True, place=0)
    assert desk.taken is False


def test_a_far_side_takes_no_terminal_that_was_not_offered(pytestconfig: pytest.Config) -> None:
    """It breaks the protocol, and is ended for that."""
    desk = Desk(pytestconfig, offered=False)
    worker: Any = SimpleNamespace(name="ssh-1")
    with pytest.raises(ProtocolError, match="a terminal is asked for that was not offered"):
        desk.takes(worker, events.Attached(0))
    assert not desk.takes(worker, events.Collected(0.1, b""))
    assert not desk.busy


def test_nothing_is_shown_of_who_has_no_terminal(
    pytestconfig: pytest.Config, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor is anything given back by such a worker."""
    desk = Desk(pytestconfig, offered=True)
    worker: Any = SimpleNamespace(name="ssh-1")
    desk.take(worker, events.Screen(b"surprise"))
    desk.take(worker, events.Detached())
    assert "surprise" not in capfd.readouterr().out
    assert not desk.busy
