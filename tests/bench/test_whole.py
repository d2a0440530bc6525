"""Files are put in their places whole, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_remotegpu.bench import whole

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_of_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        whole.put(tmp_path / "new", b"text")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o640
    assert (tmp_path / "new").read_bytes() == b"text"


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"before")
    path.chmod(0o604)
    whole.put(path, b"after")
    assert (mode(path), path.read_bytes()) == (0o604, b"after")


def test_what_fails_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"before")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        whole.put(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_no_device_becomes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(FileExistsError, match="it is there and is no file"):
        whole.put(path, b"")
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        whole.put(tmp_path / "missing" / "file", b"")
