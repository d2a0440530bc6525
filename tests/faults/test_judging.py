"""The judge of sessions finds what is wrong: sessions that lie, and what is left on a machine."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .catalogue import KINDS
from .judging import Result, complaints
from .kinds import Expected, repeated
from .running import Home, home, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

ONE = "test_a.py::test_one"
EXPECTED = Expected((1,), {ONE: ("FAILED",)}, says=("SIGSEGV",), never=("oh no",))
TEXT = f"{ONE} FAILED [100%]\nkilled by SIGSEGV\n"
JUNIT = '<testsuites><testsuite><testcase classname="test_a" name="test_one">{}</testcase>'
JUNIT += "</testsuite></testsuites>"
FAILURE = JUNIT.format("<failure/>")


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path) as made:
        yield made


def judged(folder: Path, text: str, junit: str, status: int, *, readable: bool = True) -> list[str]:
    """Judge a session that has come to this."""
    (folder / "j.xml").write_text(junit)
    result = Result(status, text, "", folder / "project", readable=readable)
    return complaints(result, EXPECTED)


def test_what_is_as_it_must_be(tmp_path: Path) -> None:
    assert judged(tmp_path, TEXT, FAILURE, 1) == []
    assert judged(tmp_path, "killed by SIGSEGV", FAILURE, 1, readable=False) == []


@pytest.mark.parametrize(
    ("text", "junit", "status", "complaint"),
    [
        (TEXT, FAILURE, 0, "its exit status is 0"),
        (TEXT.replace("FAILED", "PASSED"), JUNIT.format(""), 1, "is 'PASSED', and should be"),
        (TEXT + f"{ONE} FAILED\n", FAILURE, 1, "is 'FAILED FAILED', and should be"),
        ("killed by SIGSEGV", FAILURE, 1, "is '', and should be"),
        (TEXT + "test_b.py::test_two PASSED\n", FAILURE, 1, "test_b.py::test_two is there"),
        (TEXT.replace("SIGSEGV", ""), FAILURE, 1, "does not say 'SIGSEGV'"),
        (TEXT + "oh no", FAILURE, 1, "it says 'oh no'"),
        (TEXT + "INTERNALERROR> x", FAILURE, 1, "it says INTERNALERROR"),
        (TEXT, JUNIT.format(""), 1, "junit has [('test_a.py::test_one', 'passed')] too much"),
        (TEXT, "<testsuites/>", 1, "junit lacks [('test_a.py::test_one', 'failure')]"),
    ],
)
def test_what_is_not(text: str, junit: str, status: int, complaint: str, tmp_path: Path) -> None:
    found = judged(tmp_path, text, junit, status)
    assert any(complaint in each for each in found), found


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        ("", []),
        ("Exception ignored in atexit callback: <f>\nTraceback (most recent call last):\n", []),
        ("Traceback (most recent call last):\n  File x\n", ["it ends with a traceback"]),
        ("Exception in thread T:\nTraceback (most recent", ["it ends with a traceback"]),
    ],
)
def test_tracebacks(errors: str, found: list[str], tmp_path: Path) -> None:
    """One that Python ignores is the project's, whose exit handlers write to stderr under -s."""
    (tmp_path / "j.xml").write_text(FAILURE)
    assert complaints(Result(1, TEXT, errors, tmp_path / "project"), EXPECTED) == found


def test_in_the_file_alone(tmp_path: Path) -> None:
    """Where no terminal shows them, verdicts are read there."""
    passed = judged(tmp_path, "SIGSEGV", JUNIT.format(""), 1, readable=False)
    assert passed == [f"{ONE} is 'passed', and should be one of ('failure',)"]
    missing = judged(tmp_path, "SIGSEGV", "<testsuites/>", 1, readable=False)
    assert missing == [f"{ONE} is '', and should be one of ('failure',)"]


def test_what_is_left(ours: Home) -> None:
    assert ours.left() == []
    (ours.temporary / "remotegpu-1-x").mkdir()
    lock = ours.leases / ours.uuids[1]
    ours.leases.mkdir(exist_ok=True, mode=0o1777)
    command = ["/bin/sh", "-c", "exec setsid sleep 77"]
    with lock.open("w") as file, subprocess.Popen(command, env=ours.environ()) as sleeper:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert until(lambda: any("sleep 77" in text for text in ours.litter()))
        found = ours.litter()
        ours.close()
        assert sleeper.wait(10) == -signal.SIGKILL
    assert "the folder remotegpu-1-x" in found
    assert f"the card {ours.uuids[1]} is leased" in found
    assert len(found) == 3
    assert ours.litter() == ["the folder remotegpu-1-x"]


def test_a_hundred_hold_each_kind_twice() -> None:
    kinds = list(KINDS.values())
    drawn = repeated(7, kinds, 100)
    names = [kind.name for kind, _ in drawn]
    assert {names.count(kind.name) for kind in kinds} <= {2, 3}
    assert drawn == repeated(7, kinds, 100)
    assert drawn != repeated(8, kinds, 100)
    assert all(kind.draw(draw.seed) == draw for kind, draw in drawn)
