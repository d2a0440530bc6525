"""Commands side by side: their lines under their names, their ends, and what ends them all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_remotegpu import sidebyside

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals need POSIX")

RUNS = """
import sys
from pytest_remotegpu import sidebyside

names = sys.argv[1:]
calls = {name: [sys.executable, "-c", code] for name, code in zip(names[::2], names[1::2])}
print(sidebyside.run(calls), flush=True)
"""
WAITS = """
import pathlib, signal, sys, time
try:
    pathlib.Path(NAME).touch()
    time.sleep(60)
except KeyboardInterrupt:
    print("heard", flush=True)
    sys.exit(130)
"""


def start(*calls: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUNS, *calls],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*calls: str) -> tuple[list[str], list[str]]:
    process = start(*calls)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.splitlines(), err.splitlines()


def test_lines_stand_under_their_names() -> None:
    code = "import sys; print('a\\nb'); print('c', end='', file=sys.stderr); sys.exit(3)"
    out, err = run("one", code, "longer", "import os; os.kill(os.getpid(), 9)")
    assert out == ["[one]    a", "[one]    b", "{'one': 3, 'longer': 137}"]
    assert err == ["[one]    c"]


def test_much_output_of_all_is_whole_lines() -> None:
    code = "for n in range(5000): print('x' * 99)"
    out, _ = run("a", code, "b", code)
    lines = out[:-1]
    assert len(lines) == 10_000
    assert {line[3:] for line in lines} == {" " + "x" * 99}


def test_what_can_not_be_shown_does_not_stop_it() -> None:
    out, _ = run("a", "import os; os.write(1, b'\\xff\\n'[1:]); print('end')")
    assert out[:2] == ["[a] ", "[a] end"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_all_hear_of_the_end_once(tmp_path: Path, number: signal.Signals) -> None:
    marks = [tmp_path / name for name in "ab"]
    calls = [word for mark in marks for word in (mark.name, WAITS.replace("NAME", repr(str(mark))))]
    process = start(*calls)
    while not all(mark.exists() for mark in marks):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=50)
    assert sorted(out.splitlines()) == ["[a] heard", "[b] heard", "{'a': 130, 'b': 130}"]
    assert err == ""


def test_who_does_not_listen_is_killed_when_it_is_said_again(tmp_path: Path) -> None:
    mark = tmp_path / "deaf"
    code = WAITS.replace("NAME", repr(str(mark))).replace(
        "try:", "signal.signal(signal.SIGINT, signal.SIG_IGN)\ntry:"
    )
    process = start("deaf", code)
    while not mark.exists():
        assert process.poll() is None
        time.sleep(0.02)
    began = time.monotonic()
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert time.monotonic() - began < sidebyside.PATIENCE
    assert process.communicate()[0] == "{'deaf': 137}\n"


def test_who_has_nobody_to_read_it_is_told(tmp_path: Path) -> None:
    """The pipe of each is closed, so that nothing goes on, unread and paid for."""
    mark = tmp_path / "ended"
    code = (
        "import pathlib, time\n"
        "try:\n"
        "    while True:\n"
        "        print('x' * 1000, flush=True)\n"
        "        time.sleep(0.01)\n"
        "except BrokenPipeError:\n"
        f"    pathlib.Path({str(mark)!r}).touch()\n"
    )
    process = start("a", code)
    assert process.stdout is not None
    assert process.stdout.readline() == "[a] " + "x" * 1000 + "\n"
    process.stdout.close()
    process.wait(30)
    assert process.stderr is not None
    process.stderr.close()
    assert mark.exists()


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("modal:A100-80GB,H100!", "modal-A100-80GB-H100"),
        ("ssh:gpu box", "ssh-gpu-box"),
        ("local", "local"),
        (":", "it"),
        ("..", "it"),
    ],
)
def test_folders_are_named(name: str, folder: str) -> None:
    assert sidebyside.label(name) == folder
    assert os.sep not in folder


@pytest.mark.parametrize(
    ("statuses", "status"),
    [([0, 0], 0), ([0, 5], 5), ([1, 5], 1), ([2, 1], 2), ([125, 130, 1], 130), ([5, 77], 77)],
)
def test_the_status_that_says_most(statuses: list[int], status: int) -> None:
    assert sidebyside.worst(statuses) == status
