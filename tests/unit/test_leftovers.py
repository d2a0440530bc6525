"""What killed workers leave: their folders, and the shared memory that notes in these tell of."""

from __future__ import annotations

import secrets
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_remotegpu import leftovers


def made(*paths: Path) -> None:
    for path in paths:
        path.touch()


def test_shared_memory_goes_with_its_note_and_no_other(tmp_path: Path) -> None:
    folder, shared = tmp_path / "folder", tmp_path / "shared"
    folder.mkdir()
    shared.mkdir()
    job = 0x46B1_0001
    leftovers.note_shared(folder, job)
    of_job = [
        shared / f"{kind}_segment.host.0.46b10001.{n}" for kind in ("vader", "sm") for n in "01"
    ]
    others = [
        shared / "vader_segment.host.0.46b10002.0",
        shared / "sem.46b10001",
        shared / "46b10001",
    ]
    made(*of_job, *others)
    leftovers.free_shared(folder, str(shared))
    assert sorted(shared.iterdir()) == sorted(others)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["mpi-job-", "mpi-job-*", "mpi-job-zz", "mpi-job-1.2", "job-1"])
def test_a_note_that_names_no_job_frees_nothing(name: str, tmp_path: Path) -> None:
    folder, shared = tmp_path / "folder", tmp_path / "shared"
    folder.mkdir()
    shared.mkdir()
    made(folder / name, shared / "vader_segment.host.0.1.2", shared / "vader_segment.host.0..2")
    leftovers.free_shared(folder, str(shared))
    assert len(list(shared.iterdir())) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="MPI's shared memory lies in a folder on Linux")
def test_a_sweep_frees_what_a_killed_worker_has_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = tmp_path / f"{leftovers.PREFIX}999999999-abc"
    gone.mkdir()
    job = secrets.randbits(60)
    segment = Path(leftovers.SHARED, f"vader_segment.host.0.{job:x}.0")
    made(segment)
    leftovers.note_shared(gone, job)
    assert leftovers.sweep() == [gone]
    assert not segment.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    leftovers.note_shared(tmp_path / "none", 1)
    leftovers.free_shared(tmp_path / "none")
    leftovers.remove(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
