"""Streams that are lent to a session: what it prints, where that goes, and when."""

from __future__ import annotations

import subprocess
import sys

PRINTS = """
import os
from pytest_remotegpu.commanding import Streams

print("before")
streams = Streams()
with streams.aside():
    print("aside")
    os.write(2, b"an error\\n")
    print("aside, too")
    print("half a line", end="")
streams.write(1, b"the command's\\n")
streams.close()
print("after")
"""


def test_what_a_session_prints_goes_to_stderr_in_its_order() -> None:
    """Also where Python holds back what goes into a file or a pipe, as it does by itself."""
    done = subprocess.run(
        [sys.executable, "-c", PRINTS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "before\nthe command's\nafter\n"
    assert done.stderr == "aside\nan error\naside, too\nhalf a line"
