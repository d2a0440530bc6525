"""How the process that runners are forked from ends: at once, and what asked to be told is told."""

import os
import socket
import sys
from pathlib import Path

import pytest

from pytest_remotegpu.worker.start import spawn_zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

MODULE = """\
import atexit
import os
import pathlib

HERE = pathlib.Path(__file__).parent
atexit.register(HERE.joinpath("told").touch)


FILE = os.open(HERE / "taken-apart", os.O_WRONLY | os.O_CREAT)


class Held:
    def __del__(self, write=os.write, file=FILE):
        write(file, b"yes")


HELD = Held()
"""


def test_a_zygote_ends_without_taking_apart_what_it_has_imported(tmp_path: Path) -> None:
    (tmp_path / "heavy_as_torch.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    control, other = socket.socketpair()
    with control:
        ended = spawn_zygote(
            other,
            str(tmp_path / "empty"),
            "--bare",
            "--preload=heavy_as_torch",
            environ={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        assert control.recv(1)  # it is ready
    assert ended.wait(20) == 0
    assert (tmp_path / "told").exists()
    assert (tmp_path / "taken-apart").read_bytes() == b""
