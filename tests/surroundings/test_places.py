"""Projects that lie in odd places, and users without a home: the same sessions as anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .both import alike

CONFTEST = """
    import pathlib
    import pytest

    @pytest.fixture
    def data(request):
        return pathlib.Path(request.path).with_name("data.txt").read_text("utf-8")
"""
TESTS = """
    import os, pathlib
    import pytest
    from kept import VALUE

    def test_data(data):
        assert data == "kept"

    def test_module(tmp_path):
        assert VALUE == 1
        (tmp_path / "there").touch()

    @pytest.mark.parametrize("value", ["ä b", "[x]", "日本"])
    def test_value(value):
        assert value

    def test_that_fails():
        assert pathlib.Path.cwd().name == ""

    def test_unittest_path(request):
        assert request.path == pathlib.Path(__file__)
"""
ODD = (
    "with space",
    "größe-日本",
    "a'b\"c",
    "what?*",
    "-dash",
    "dollar $HOME",
    "per%20cent",
    "a:b",
    "a;b&c",
)


def project(pytester: pytest.Pytester, name: str) -> Path:
    """Make a small project in a folder of this name."""
    folder = pytester.mkdir(name)
    inner = folder / f"{name} of tests"
    inner.mkdir()
    for path, text in (
        (folder / "conftest.py", CONFTEST),
        (inner / "test_it.py", TESTS),
        (inner / "kept.py", "VALUE = 1"),
        (inner / "data.txt", "kept"),
        (folder / "pytest.ini", "[pytest]\n"),
    ):
        path.write_text("\n".join(line.removeprefix("    ") for line in text.splitlines()), "utf-8")
    return folder


@pytest.mark.parametrize("name", ODD)
def test_a_folder_with_an_odd_name(pytester: pytest.Pytester, name: str) -> None:
    assert alike(project(pytester, name)).counts == {"passed": 6, "failed": 1}


def test_a_temporary_folder_with_an_odd_name(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose name is too long for a socket in it."""
    long = pytester.mkdir("ö " * 20) / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert alike(project(pytester, "plain")).counts == {"passed": 6, "failed": 1}


def test_files_with_odd_names(pytester: pytest.Pytester) -> None:
    """They travel, and are found by their ids."""
    for name in ("test_größe.py", "test with space.py", "test_a'b.py"):
        pytester.path.joinpath(name).write_text("def test_one(): pass\ndef test_two(): pass\n")
    pytester.makeini("[pytest]\npython_files = test*.py\n")
    assert alike(pytester.path).counts == {"passed": 6}
    chosen = alike(pytester.path, "test_größe.py::test_two", "test with space.py::test_one")
    assert chosen.counts == {"passed": 2}


# who may write nothing


@pytest.mark.parametrize("home", ["/proc/nobody", "/dev/null", ""])
def test_a_home_that_can_not_be_written(pytester: pytest.Pytester, home: str) -> None:
    """No folder of the user's is left, as in many containers."""
    nowhere = {"HOME": home, "XDG_CACHE_HOME": "", "XDG_RUNTIME_DIR": "", "XDG_CONFIG_HOME": ""}
    assert alike(project(pytester, "plain"), environ=nowhere).counts == {"passed": 6, "failed": 1}


@pytest.mark.parametrize("name", ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME"])
def test_a_folder_of_the_users_that_is_none(pytester: pytest.Pytester, name: str) -> None:
    found = alike(project(pytester, "plain"), environ={name: "/proc/nobody"})
    assert found.counts == {"passed": 6, "failed": 1}


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'
OWN = "-m" if getattr(os, "geteuid", lambda: 1)() == 0 else "-rm"


def test_a_checkout_that_can_not_be_written(pytester: pytest.Pytester) -> None:
    """Not by root either: it lies on a file system that is mounted so."""
    folder = project(pytester, "größe")
    begin = ["unshare", OWN, "sh", "-c", READ_ONLY, str(folder)]
    if shutil.which("unshare") is None or subprocess.call([*begin, "true"]) != 0:
        pytest.skip("needs the right to mount")
    assert subprocess.call([*begin, "touch", "there"]) != 0
    found = alike(folder, command=[*begin, sys.executable, "-m", "pytest"])
    assert found.counts == {"passed": 6, "failed": 1}
    assert not (folder / ".pytest_cache").exists()
