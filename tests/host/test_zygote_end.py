"""How the process that runners are forked from ends: at once, but what asked to be told is told."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_remotegpu.worker.process import REPLY, TWIN
from pytest_remotegpu.worker.start import spawn_zygote
from session.running import until
from warmth import alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

MODULE = """\
import atexit
import pathlib

atexit.register(pathlib.Path(__file__).with_name("told").touch)
"""

SLOW = """\
import pathlib
import time

here = pathlib.Path(__file__)
here.with_name("begun").touch()
while not here.with_name("go").exists():
    time.sleep(0.02)
"""


def start(tmp_path: Path, module: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start one that imports this module ahead."""
    (tmp_path / "ahead.py").write_text(module, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    control, other = socket.socketpair()
    made = spawn_zygote(
        other,
        str(tmp_path / "empty"),
        "--bare",
        "--warm",
        "--preload=ahead",
        environ={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    return made, control


def test_what_a_preloaded_module_does_at_exit_is_done(tmp_path: Path) -> None:
    ended, control = start(tmp_path, MODULE)
    with control:
        assert control.recv(1)  # it is ready
    assert ended.wait(20) == 0
    assert (tmp_path / "told").exists()


def test_one_that_nobody_needs_does_not_end_its_imports_first(tmp_path: Path) -> None:
    ended, control = start(tmp_path, SLOW)
    with control:
        assert until((tmp_path / "begun").exists)
    assert ended.wait(20) == 0
    assert not (tmp_path / "empty").exists()


def test_what_was_asked_for_before_its_imports_end_is_done(tmp_path: Path) -> None:
    ended, control = start(tmp_path, SLOW)
    near, far = socket.socketpair()
    with near:
        with control:
            assert until((tmp_path / "begun").exists)
            with far:
                socket.send_fds(control, [TWIN], [far.fileno()])
        (tmp_path / "go").touch()
        near.settimeout(20)
        word, pid, *_ = REPLY.unpack(near.recv(REPLY.size, socket.MSG_WAITALL))
        assert word == b"P"
        assert ended.wait(20) == 0
        os.kill(pid, 0)
    assert until(lambda: not alive(pid))
