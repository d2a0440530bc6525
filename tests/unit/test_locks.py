"""Who has a card, who wants it, and which processes are on it by right: read, never taken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fcntl")

import fcntl

from pytest_remotegpu import locks
from pytest_remotegpu.locks import Lock

UUID = "MIG-GPU-5/1/0"
FREE = Lock(held=False, by=(), wanted_by=())


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[int]:
    """A card that this process has leased."""
    path = locks.file_of(UUID, folder=tmp_path)
    path.touch()
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield fd
    os.close(fd)


def test_nobody_has_a_card_that_was_never_leased(tmp_path: Path) -> None:
    assert locks.look(UUID, tmp_path) == FREE
    assert locks.look(UUID, tmp_path / "nothing") == FREE
    locks.file_of(UUID, folder=tmp_path).touch()
    assert locks.look(UUID, tmp_path) == FREE
    assert not locks.descends(os.getpid(), UUID, tmp_path)


def test_a_look_takes_nothing(lease: int, tmp_path: Path) -> None:
    own = os.getpid()
    assert locks.look(UUID, tmp_path) == Lock(held=True, by=(own,), wanted_by=())
    fcntl.flock(lease, fcntl.LOCK_UN)
    assert locks.look(UUID, tmp_path) == FREE
    fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_all_who_wait_are_named(tmp_path: Path) -> None:
    path = locks.file_of(UUID, locks.WANTED, tmp_path)
    path.touch()
    code = "import fcntl, sys; fcntl.flock(int(sys.argv[1]), fcntl.LOCK_SH); print(); input()"
    with path.open() as wish, path.open() as other:
        fcntl.flock(wish, fcntl.LOCK_SH)
        child = subprocess.Popen(
            [sys.executable, "-u", "-c", code, str(other.fileno())],
            pass_fds=[other.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        other.close()
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"\n"
            assert set(locks.look(UUID, tmp_path).wanted_by) == {os.getpid(), child.pid}
            child.communicate(b"\n")
        assert locks.look(UUID, tmp_path).wanted_by == (os.getpid(),)


def test_the_lease_of_one_who_left_it_to_a_child(lease: int, tmp_path: Path) -> None:
    """The child has the lock open, and so have its own children a right to the card."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    inner = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, inner],
        pass_fds=[lease],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert locks.descends(grandchild, UUID, tmp_path)
        assert locks.descends(child.pid, UUID, tmp_path)
        assert not locks.descends(os.getppid(), UUID, tmp_path)
        child.communicate()
    assert not locks.descends(grandchild, UUID, tmp_path)


def test_processes_in_words() -> None:
    text = locks.about(os.getpid())
    assert text.startswith(f"process {os.getpid()} of ")
    assert "python" in text
    assert locks.about(2**22 + 1) == f"process {2**22 + 1}"
