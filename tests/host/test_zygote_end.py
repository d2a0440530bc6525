"""How the process that runners are forked from ends: at once, but what asked to be told is told."""

import os
import socket
import sys
from pathlib import Path

import pytest

from pytest_remotegpu.worker.start import spawn_zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

MODULE = """\
import atexit
import pathlib

atexit.register(pathlib.Path(__file__).with_name("told").touch)
"""


def test_what_a_preloaded_module_does_at_exit_is_done(tmp_path: Path) -> None:
    (tmp_path / "tidy.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    control, other = socket.socketpair()
    with control:
        ended = spawn_zygote(
            other,
            str(tmp_path / "empty"),
            "--bare",
            "--preload=tidy",
            environ={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        assert control.recv(1)  # it is ready
    assert ended.wait(20) == 0
    assert (tmp_path / "told").exists()
