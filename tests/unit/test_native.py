"""Native stacks of ranks: which frames are shown; a tool that is slow, fails or is not there."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from pytest_remotegpu.worker.ranks import native

SAID = """Process 7: python -m pytest_remotegpu.worker.zygote 6
Python v3.11.7 (/usr/bin/python3.11)

Thread 9 (idle): "pt_store"
    epoll_wait (libc.so.6)
    run (store.py:1)
Thread 7 (idle): "MainThread"
    __futex_abstimed_wait_common (libc.so.6)
    gloo::transport::tcp::UnboundBuffer::waitRecv(int*, (anonymous)) (libtorch_cpu.so)
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    pybind11::dispatcher (libtorch_python.so)
    test_it (test_it.py:3)

Thread 8 (active): "other"
    clone3 (libc.so.6)
"""


def test_only_what_the_main_thread_does_below_python_is_shown() -> None:
    assert native.innermost(SAID).splitlines() == [
        "in native code (innermost frame first):",
        "  __futex_abstimed_wait_common (libc.so.6)",
        "  gloo::transport::tcp::UnboundBuffer::waitRecv(int*, (anonymous)) (libtorch_cpu.so)",
    ]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Error: Permission denied",
        SAID.replace("MainThread", "x"),
        SAID.partition("Thread 7")[0],
    ],
)
def test_without_such_frames_there_is_nothing(said: str) -> None:
    assert native.innermost(said) == ""


def test_a_deep_stack_is_cut() -> None:
    frames = "".join(f"    f{number} (lib.so)\n" for number in range(40))
    lines = native.innermost(f'Thread 7 (idle): "MainThread"\n{frames}').splitlines()
    assert len(lines) == native.MOST_FRAMES + 2
    assert lines[-1] == f"  ... and {40 - native.MOST_FRAMES} more"


def test_a_wide_frame_is_cut() -> None:
    wide = f"{'std::f<' * 200} (lib.so)"
    _, line = native.innermost(f'Thread 7 (idle): "MainThread"\n    {wide}\n').splitlines()
    assert line == f"  {wide[: native.WIDEST - 3]}..."


def tool(folder: Path, text: str) -> str:
    """Put a tool into a folder; give what PATH then is."""
    path = folder / native.TOOL
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


posix = pytest.mark.skipif(os.name == "nt", reason="ranks run on Linux")


@posix
def test_each_process_is_asked_and_who_is_late_or_fails_has_no_stack(tmp_path: Path) -> None:
    path = tool(tmp_path, 'case "$4" in 2) exec sleep 60;; 3) exit 1;; esac; echo "$@"')
    began = time.monotonic()
    found = native.stacks({0: 1, 1: 2, 2: 3, 3: 4}, path)
    assert time.monotonic() - began < native.PATIENCE + 5
    assert found == {0: "dump --native --pid 1\n", 3: "dump --native --pid 4\n"}


def test_a_host_without_the_tool_has_no_native_stacks(tmp_path: Path) -> None:
    assert native.stacks({0: os.getpid()}, str(tmp_path)) == {}


def test_the_tool_beside_the_interpreter_comes_first() -> None:
    first, rest = native.places({"PATH": "/somewhere"}).split(os.pathsep)
    assert (Path(first), rest) == (Path(sys.executable).parent, "/somewhere")
    assert native.places({}).endswith(os.defpath)
