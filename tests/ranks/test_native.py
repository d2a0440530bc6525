"""Native frames of ranks that hang, as py-spy tells them where it is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .test_sessions import block, run

TESTS = """
    import time
    import pytest
    pytestmark = pytest.mark.gpu(2, launcher="torchrun")

    def test_hangs(rank):
        if rank: raise ValueError("one leaves")
        time.sleep(60)

    @pytest.mark.gpu(timeout=2)
    def test_too_late(rank): time.sleep(60)

    def test_well(): pass
"""
SAID = """
Thread $4 (idle): "MainThread"
    clock_nanosleep (libc.so.6)
    pysleep (timemodule.so)
    test_it (test_it.py:3)
"""


def test_native_frames_stand_below_the_stack_of_each_rank(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pytester.mkdir("bin")
    tool = Path(folder, "py-spy")
    tool.write_text(f'#!/bin/sh\ntest "$1 $2 $3" = "dump --native --pid" && cat <<END\n{SAID}END\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    pytester.makepyfile(TESTS)
    text = run(pytester, "-p", "no:cacheprovider", "--remote-artifacts=kept")
    assert "2 failed, 1 passed" in text
    for test, count in (("test_hangs", 1), ("test_too_late", 2)):
        said = block(text, test)
        assert said.count("in native code (innermost frame first):\n  clock_nanosleep") == count
        assert "test_it.py:3" not in said
        assert f" in {test}\n" in said
        kept = [*pytester.path.glob(f"kept/*{test}*/rank*.native.txt")]
        assert len(kept) == count
        assert "Thread " in kept[0].read_text()
