"""Files of plugins come into the folders that the user has named, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events
from pytest_remotegpu.written import MANY, SLACK, Written

LIMIT = 1000


def piece(
    name: str, data: bytes, *, first: bool = True, last: bool = True, option: str = "dir"
) -> events.Written:
    """Give a piece of a file."""
    return events.Written(option.encode(), name.encode(), data, last, first)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Give a session that has named one folder, which is not there yet."""
    return Written(lambda: {"dir": tmp_path / "named"}, LIMIT)


def test_a_file_has_its_name_once_it_is_whole(written: Written, tmp_path: Path) -> None:
    written.take("w", piece("a/b.txt", b"one ", last=False))
    assert not (tmp_path / "named/a/b.txt").exists()
    written.take("w", piece("a/b.txt", b"two", first=False))
    assert (tmp_path / "named/a/b.txt").read_bytes() == b"one two"
    assert written.close() == []


def test_two_workers_do_not_mix(written: Written, tmp_path: Path) -> None:
    for worker in "vw":
        written.take(worker, piece("x", worker.encode(), last=False))
    for worker in "wv":
        written.take(worker, piece("x", worker.encode(), first=False))
    assert (tmp_path / "named/x").read_bytes() == b"vv"


def test_what_is_not_whole_is_taken_away_and_said(written: Written, tmp_path: Path) -> None:
    written.take("w", piece("x", b"half", last=False))
    assert written.close() == ["'x' of dir is missing: not all of it came"]
    assert list((tmp_path / "named").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a//b", "a\0b"])
def test_an_unsafe_name_is_refused(written: Written, tmp_path: Path, name: str) -> None:
    with pytest.raises(ProtocolError, match="unsafe"):
        written.take("w", piece(name, b"x"))
    assert not (tmp_path / "x").exists()


def test_a_folder_that_nobody_has_named_is_refused(written: Written) -> None:
    with pytest.raises(ProtocolError, match="nobody has asked"):
        written.take("w", piece("x", b"x", option="other"))


def test_a_link_in_the_folder_is_not_followed(written: Written, tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "named/link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProtocolError, match="leave its folder"):
        written.take("w", piece("link/x", b"x"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_there_is_an_end_to_it(written: Written) -> None:
    for _ in range(MANY * LIMIT // SLACK):
        written.take("w", piece("x", b""))
    with pytest.raises(ProtocolError, match="too large"):
        written.take("w", piece("x", b""))


def test_a_disk_that_refuses_costs_the_file_only(written: Written, tmp_path: Path) -> None:
    (tmp_path / "named").write_text("in the way")
    written.take("w", piece("x", b"x", last=False))
    written.take("w", piece("x", b"x", first=False))
    (said,) = written.close()
    assert said.startswith("files of dir are missing: ")
