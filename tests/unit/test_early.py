"""Artifacts of a running test: what is sent before its end, and what is not sent again at it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_remotegpu.outputs import Artifacts, folder_name
from pytest_remotegpu.protocol import events
from pytest_remotegpu.worker.early import QUIET, Early

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers need POSIX")
LIMIT = 4 * 2**20


class Far:
    """A test's folder on the far side, a clock, and the files as they are received."""

    def __init__(self, tmp_path: Path) -> None:
        self.base = tmp_path / "far"
        self.folder = self.base / "0"
        self.folder.mkdir(parents=True)
        self.now = 1_000_000.0
        self.said: list[events.Event] = []
        self.received = Artifacts(tmp_path / "here", LIMIT)
        self._here = tmp_path / "here" / folder_name("t")
        self.early = Early(str(self.base), LIMIT, self.take, lambda: self.now)

    def take(self, event: events.Event) -> None:
        self.said.append(event)
        if isinstance(event, events.Artifact):
            self.received.take("t", event)
        elif isinstance(event, events.Dropped):
            self.received.drop("t", event)

    def write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (self.now, self.now))

    def wait(self, seconds: float = QUIET + 0.1) -> list[str]:
        """Let time go by, and name what was sent or dropped meanwhile."""
        self.now += seconds
        before = len(self.said)
        for _ in range(50):
            self.early.turn(0)
        return self._names(before)

    def end(self) -> list[str]:
        """Let the test end."""
        before = len(self.said)
        for event in self.early.rest(0):
            self.take(event)
        assert self.received.close() == []
        return self._names(before)

    def _names(self, since: int) -> list[str]:
        found = []
        for event in self.said[since:]:
            if isinstance(event, events.Artifact) and event.last:
                found.append(event.name.decode())
            elif isinstance(event, events.Dropped):
                found.append(f"-{event.name.decode()}")
        return found

    def kept(self) -> dict[str, bytes]:
        """Give the files here."""
        return {
            path.relative_to(self._here).as_posix(): path.read_bytes()
            for path in sorted(self._here.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def far(tmp_path: Path) -> Far:
    far = Far(tmp_path)
    far.early.turn(0)
    return far


def test_what_lies_still_is_sent_once(far: Far) -> None:
    large = os.urandom(3 * 2**20 + 5)
    far.write("deep/large", large)
    far.write("small", b"1")
    assert far.wait(QUIET / 2) == []
    assert far.wait() == ["small", "deep/large"]
    assert far.wait(100) == []
    far.write("late", b"2")
    assert far.end() == ["late"]
    assert far.kept() == {"deep/large": large, "late": b"2", "small": b"1"}


def test_what_is_being_written_waits(far: Far) -> None:
    for step in range(5):
        far.write("log", b"x" * step)
        assert far.wait(QUIET - 0.1) == []
    assert far.end() == ["log"]


def test_what_changes_is_sent_again(far: Far) -> None:
    far.write("a", b"first")
    assert far.wait() == ["a"]
    far.write("a", b"second")
    assert far.wait() == ["a"]
    assert far.kept() == {"a": b"second"}
    far.write("a", b"third!")
    assert far.end() == ["-a", "a"]
    assert far.kept() == {"a": b"third!"}


def test_a_change_that_the_times_do_not_show(far: Far) -> None:
    """As one through a mapping of the file may be: the contents count, at the end."""
    far.write("a", b"first")
    far.wait()
    about = (far.folder / "a").stat()
    (far.folder / "a").write_bytes(b"other")
    os.utime(far.folder / "a", ns=(about.st_atime_ns, about.st_mtime_ns))
    assert far.end() == ["-a", "a"]
    assert far.kept() == {"a": b"other"}


def test_what_the_test_takes_away_is_not_kept(far: Far) -> None:
    far.write("one", b"1")
    far.write("two", b"2")
    far.wait()
    (far.folder / "one").unlink()
    assert far.wait() == ["-one"]
    (far.folder / "two").unlink()
    far.folder.rmdir()
    assert far.end() == ["-two"]
    assert far.kept() == {}


def test_checkpoints_that_replace_each_other_fit(far: Far) -> None:
    """All of them together would be too much, each alone is not."""
    for step in range(2):
        far.write(f"{step}.pt", bytes(LIMIT - 100))
        assert f"{step}.pt" in far.wait()
        (far.folder / f"{step}.pt").unlink()
    far.write("last.pt", bytes(LIMIT))
    assert far.end() == ["-1.pt", "last.pt"]


def test_a_file_that_always_changes_is_not_sent_for_ever(far: Far) -> None:
    sent = []
    for step in range(10):
        far.write("a", os.urandom(LIMIT - step))
        sent += far.wait()
    assert sent == ["a"] * 3
    assert far.end() == ["-a", "a"]


def test_a_file_over_the_limit_waits_for_the_end(far: Far) -> None:
    far.write("huge", bytes(LIMIT + 1))
    assert far.wait() == []
    assert far.end() == []
    (note,) = far.said
    assert isinstance(note, events.Note)
    assert b"is left out" in note.text


def test_one_piece_at_a_time_and_none_after_the_end(far: Far) -> None:
    far.write("a", bytes(3 * 2**20))
    far.now += QUIET + 1
    far.early.turn(0)
    far.early.turn(0)
    assert [type(event) for event in far.said] == [events.Artifact, events.Artifact]
    assert far.early.patience() == 0.0
    far.early.settle()
    assert far.said[-1] == events.Dropped(0, b"a")
    assert far.wait(100) == []
    assert far.early.patience() is None
    assert far.end() == ["a"]


def test_the_next_test_has_a_look_of_its_own(far: Far) -> None:
    far.write("a", bytes(2 * 2**20))
    far.now += QUIET + 1
    far.early.turn(0)
    far.early.turn(1)
    assert len(far.said) == 1  # the first test has its verdict: nothing more may be said of it
    far.early.turn(-1)
    assert far.early.patience() is None


@pytest.mark.parametrize("odd", ["fifo", "link", "vanished", "folder"])
def test_what_is_no_file_costs_nothing(far: Far, odd: str, tmp_path: Path) -> None:
    path = far.folder / "odd"
    far.write("odd", b"22")
    far.write("plain", b"1")
    far.now += QUIET + 1
    far.early.turn(0)  # it looks, and sends the smaller one
    path.unlink()
    if odd == "fifo":
        os.mkfifo(path)
    elif odd == "link":
        (tmp_path / "mine").write_text("mine")
        path.symlink_to(tmp_path / "mine")
    elif odd == "folder":
        path.mkdir()
    for _ in range(9):
        far.early.turn(0)
    assert far.kept() == {"plain": b"1"}
