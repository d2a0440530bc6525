"""Zygotes that an agent lets go: who was promised a fork of one gets it, and no folder stays."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_remotegpu.worker.pool import Pool, Warm, Wish
from pytest_remotegpu.worker.process import REPLY
from session.running import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="warm processes need Linux")

WAITS = """
import pathlib, time
while not pathlib.Path({go!r}).exists():
    time.sleep(0.02)
"""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A file for which each interpreter waits when it starts."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text(WAITS.format(go=str(tmp_path / "go")))
    return tmp_path / "go"


@pytest.fixture
def wish(tmp_path: Path) -> Wish:
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}
    return Wish(environ, str(tmp_path / "project"), ("json",))


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(lambda _zygote: None, lambda _zygote: None)
    yield made
    for zygote in list(made.zygotes):
        made.drop(zygote)
        zygote.process.wait(20)


def answer(twin: socket.socket) -> tuple[bytes, int]:
    """Read the first word of a fork: which kind, and its process id."""
    twin.settimeout(30)
    kind, pid, *_ = REPLY.unpack(twin.recv(REPLY.size, socket.MSG_WAITALL))
    return kind, pid


def gone(zygote: Warm) -> Callable[[], bool]:
    return lambda: zygote.process.poll() is not None and not Path(zygote.folder).exists()


def test_one_that_is_let_go_while_it_starts(pool: Pool, wish: Wish, go: Path) -> None:
    zygote = pool.find(wish)
    with pool.twin(zygote) as twin:
        pool.drop(zygote)
        assert zygote.process.pid in pool.processes()
        go.touch()
        kind, pid = answer(twin)
        assert (kind, pid > 0) == (b"P", True)
    assert until(gone(zygote))


def test_one_that_starts_is_not_replaced(pool: Pool, wish: Wish, go: Path) -> None:
    """Another one is ready that has imported more; somebody waits for this one."""
    go.touch()
    pool.find(wish)
    pool.warm_up()
    plain, more = pool.zygotes
    assert more.preload
    while not more.inventory:
        assert more.read()
    pool.settle()
    assert pool.zygotes == [plain, more]
    while not plain.inventory:
        assert plain.read()
    pool.settle()
    assert pool.zygotes == [more]
    assert until(gone(plain))


def test_what_is_out_of_date_serves_nobody(pool: Pool, wish: Wish, go: Path) -> None:
    """Whom it would not have served anyway does not look at thousands of files for that."""
    go.touch()
    old = pool.find(wish)
    while not old.inventory:
        assert old.read()
    assert old.is_pure()
    file = next(iter(old.inventory["files"]))
    old.inventory["files"][file] = [0, 0]
    other = pool.find(Wish({**wish.environ, "PYTHONHASHSEED": "7"}, wish.root, wish.preload))
    assert pool.zygotes == [old, other]
    new = pool.find(wish)
    assert pool.zygotes == [other, new]
    assert until(gone(old))
