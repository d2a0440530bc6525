"""The lock that lets one process of this user deploy an app, and what may be in its place."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from pytest_remotegpu.backends.modal.alone import alone
from pytest_remotegpu.errors import UsageError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks of Unix")
HOLDS = """
import os, sys, time
from pytest_remotegpu.backends.modal.alone import alone
with alone("app", os.environ, lambda: None):
    print("has it", flush=True)
    time.sleep(60)
"""


def never() -> None:
    raise AssertionError("somebody else has it")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "pytest-remotegpu" / "deploying"


def test_it_is_in_a_folder_of_the_users_own_and_leaves_nothing(
    environ: dict[str, str], place: Path
) -> None:
    with alone("app", environ, never):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert [each.name for each in place.iterdir()] == ["app"]
    assert list(place.iterdir()) == []


def test_a_folder_that_others_can_reach_is_closed_to_them(
    environ: dict[str, str], place: Path
) -> None:
    place.mkdir(parents=True)
    place.chmod(0o755)
    with alone("app", environ, never):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_it_goes_with_an_error_as_well(environ: dict[str, str], place: Path) -> None:
    with pytest.raises(KeyError), alone("app", environ, never):
        raise KeyError
    with alone("app", environ, never):
        assert place.exists()


def test_one_after_the_other(environ: dict[str, str]) -> None:
    """Also where each takes the file away that the next one waits for."""
    inside, most = [], []

    def work() -> None:
        for _ in range(50):
            with alone("app", environ, lambda: None):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 200


def test_who_has_to_wait_hears_of_it(environ: dict[str, str]) -> None:
    waits = threading.Event()

    def work() -> None:
        with alone("app", environ, waits.set):
            pass

    thread = threading.Thread(target=work)
    with alone("app", environ, never):
        thread.start()
        assert waits.wait(10)
        assert thread.is_alive()
    thread.join(10)
    assert not thread.is_alive()


def test_who_is_killed_holds_nobody_up(environ: dict[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS], env={**os.environ, **environ}, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"has it\n"
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with alone("app", environ, never):
        pass


@pytest.mark.parametrize("what", ["folder", "link", "pipe"])
def test_a_strange_thing_in_its_place_is_named(
    environ: dict[str, str], place: Path, tmp_path: Path, what: str
) -> None:
    place.mkdir(parents=True)
    lock, victim = place / "app", tmp_path / "victim"
    if what == "folder":
        lock.mkdir()
    elif what == "link":
        lock.symlink_to(victim)
    else:
        os.mkfifo(lock)
    with pytest.raises(UsageError) as caught, alone("app", environ, never):
        pass
    assert str(lock) in str(caught.value)
    assert "remove it" in str(caught.value)
    assert not victim.exists()
    assert lock.is_symlink() or lock.exists()


def test_without_a_folder_for_caches_it_is_in_that_for_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    with alone("app", {"XDG_CACHE_HOME": str(tmp_path / "file")}, never):
        (folder,) = (each for each in tmp_path.iterdir() if each.is_dir())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.name == f"pytest-remotegpu-deploying-{os.getuid()}"


def test_a_folder_that_is_none_of_ours_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have made one, or a link to one, in the place that all users share."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / f"pytest-remotegpu-deploying-{os.getuid()}").symlink_to(theirs)
    with (
        pytest.raises(UsageError) as caught,
        alone("app", {"XDG_CACHE_HOME": str(tmp_path / "file")}, never),
    ):
        pass
    assert "is no folder" in str(caught.value)
    assert "XDG_CACHE_HOME" in str(caught.value)
    assert list(theirs.iterdir()) == []
    with contextlib.suppress(OSError):
        theirs.rmdir()
