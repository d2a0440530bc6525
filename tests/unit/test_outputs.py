"""Artifacts: names from far away lead nowhere else, and what is written is what was sent."""

from __future__ import annotations

import os
import string
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.outputs import Artifacts, clear, folder_name, in_the_way, safe_parts
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker.artifacts import collect

FINE = set(string.ascii_letters + string.digits + "_.[]-")
names = st.text() | st.lists(st.text() | st.sampled_from(["..", ".", "", "con", "a"])).map("/".join)
posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX links and names")


def piece(name: str, data: bytes = b"x", *, last: bool = True) -> events.Artifact:
    return events.Artifact(0, to_text(name), data, last)


def found(root: Path) -> dict[str, bytes]:
    """Give what lies below the one test folder in *root*."""
    (folder,) = root.iterdir()
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- names


@given(st.text(), st.text())
def test_each_test_has_a_folder_of_its_own_fit_for_any_system(one: str, other: str) -> None:
    name = folder_name(one)
    assert set(name) <= FINE
    assert 0 < len(name) <= 100
    assert "." not in (name[0], name[-1])
    assert (name == folder_name(other)) is (one == other)


@pytest.mark.parametrize(
    ("nodeid", "start"),
    [
        ("tests/test_rope.py::test_fwd[bf16]", "test_rope.py-test_fwd[bf16]-"),
        ("test_a.py::TestB::test_c", "test_a.py-TestB-test_c-"),
        ("test_a.py::test_url[https://x/y]", "test_a.py-test_url[https-x-y]-"),
        ("äöü", "-"),
    ],
)
def test_a_folder_reads_like_its_test(nodeid: str, start: str) -> None:
    assert folder_name(nodeid).startswith(start)


@given(names)
def test_no_name_leads_out(name: str) -> None:
    try:
        parts = safe_parts(name)
    except ProtocolError:
        return
    assert len(parts) == len(name.split("/"))
    for part in parts:
        assert part not in ("", ".", "..")
        assert not set(part) & set('\0/\\:*?"<>|\n\r')
        assert len(part.encode()) <= 255
        assert part[-1] not in ". "


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/etc/passwd",
        "../x",
        "a/../x",
        "a//b",
        "a/",
        "./a",
        "a/.",
        "..",
        "a\x00b",
        "/".join("a" * 21),
    ],
)
def test_unsafe_names_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="unsafe artifact name"):
        safe_parts(name)


@pytest.mark.parametrize("name", ["loss.json", "runs/1/trace.pt", ".hidden", "zwölf.txt", "a b"])
def test_ordinary_names_stay(name: str) -> None:
    assert "/".join(safe_parts(name)) == name


def test_names_that_some_system_refuses_are_changed_and_kept_apart() -> None:
    odd = [
        "a:b",
        "a*b",
        "a_b",
        "con",
        "CON.txt",
        "com1",
        "a.",
        "a ",
        "a",
        "x" * 300,
        "x" * 301,
        "...",
    ]
    made = [safe_parts(name)[0] for name in odd]
    assert len({name.lower() for name in made}) == len(odd)
    assert made[2] == "a_b"
    assert made[8] == "a"


# --- files


def test_pieces_make_up_files(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "out", 100)
    artifacts.take("t", piece("a/one", b"12", last=False))
    artifacts.take("t", piece("two", b""))
    artifacts.take("t", piece("a/one", b"34"))
    assert found(tmp_path / "out") == {"a/one": b"1234", "two": b""}
    assert artifacts.count == 2


def test_nothing_is_made_before_the_first_file(tmp_path: Path) -> None:
    Artifacts(tmp_path / "out", 100)
    assert not (tmp_path / "out").exists()


def test_tests_do_not_share_a_folder_nor_a_limit(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 3)
    for nodeid in ("t.py::a", "t.py::A"):
        artifacts.take(nodeid, piece("f", nodeid[-1:].encode() * 3))
    assert (tmp_path / folder_name("t.py::a") / "f").read_bytes() == b"aaa"
    assert (tmp_path / folder_name("t.py::A") / "f").read_bytes() == b"AAA"


def test_more_than_allowed_is_refused_before_it_is_written(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 5)
    artifacts.take("t", piece("a", b"123"))
    with pytest.raises(ProtocolError, match="larger than 5 bytes"):
        artifacts.take("t", piece("b", b"456"))
    assert found(tmp_path) == {"a": b"123"}


def test_a_file_sent_again_replaces_the_first(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 100)
    artifacts.take("t", piece("a", b"first"))
    artifacts.take("t", piece("a", b"second"))
    assert found(tmp_path) == {"a": b"second"}


def test_a_new_attempt_begins_from_nothing(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 8)
    artifacts.take("t", piece("whole", b"1"), attempt="one")
    artifacts.take("t", piece("half", b"lost", last=False), attempt="one")
    artifacts.take("t", piece("half", b"anew"), attempt="two")
    assert found(tmp_path) == {"half": b"anew"}
    assert artifacts.count == 1


@posix
def test_what_an_earlier_session_left_is_gone(tmp_path: Path) -> None:
    keep = tmp_path / "keep.txt"
    keep.write_text("mine")
    folder = tmp_path / "out" / folder_name("t")
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "old").write_text("old")
    (folder / "link").symlink_to(keep)
    (folder / "up").symlink_to(tmp_path)
    Artifacts(tmp_path / "out", 100).take("t", piece("new"))
    assert found(tmp_path / "out") == {"new": b"x"}
    assert keep.read_text() == "mine"


@posix
def test_clearing_takes_away_the_folders_of_these_tests_only(tmp_path: Path) -> None:
    root = tmp_path / "out"
    for nodeid in ("a", "b"):
        Artifacts(root, 100).take(nodeid, piece("old"))
    (tmp_path / "mine").write_text("mine")
    (root / folder_name("c")).symlink_to(tmp_path)
    clear(root, ["a", "c", "never ran"])
    assert [path.name for path in root.iterdir()] == [folder_name("b")]
    assert (tmp_path / "mine").read_text() == "mine"


def test_clearing_where_nothing_is(tmp_path: Path) -> None:
    clear(tmp_path / "none", ["a"])
    assert not (tmp_path / "none").exists()


@posix
def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "f").write_text("mine")
    root = tmp_path / "out"
    root.mkdir()
    (root / folder_name("t")).symlink_to(elsewhere)
    Artifacts(root, 100).take("t", piece("f", b"new"))
    assert (elsewhere / "f").read_text() == "mine"
    assert found(root) == {"f": b"new"}


@posix
def test_a_link_made_meanwhile_is_not_written_through(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "out", 100)
    artifacts.take("t", piece("first"))
    (folder,) = (tmp_path / "out").iterdir()
    (folder / "sub").symlink_to(tmp_path)
    (tmp_path / "mine").write_text("mine")
    (folder / "file").symlink_to(tmp_path / "mine")
    with pytest.raises(ProtocolError, match="leave its folder"):
        artifacts.take("t", piece("sub/evil"))
    artifacts.take("t", piece("file"))
    assert not (folder / "file").is_symlink()
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
def test_a_name_that_is_a_file_and_a_folder(first: str, second: str, tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 100)
    artifacts.take("t", piece(first))
    with pytest.raises(ProtocolError, match="file and a folder"):
        artifacts.take("t", piece(second))


# --- a system that refuses


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system refuse to write more than *size* bytes to any file."""
    resource = pytest.importorskip("resource", reason="needs POSIX limits")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_can_not_be_written_is_missing_and_the_others_are_there(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 2**20)
    with files_of_at_most(100):
        artifacts.take("t", piece("half", bytes(80), last=False))
        artifacts.take("t", piece("half", bytes(80), last=False))
        artifacts.take("t", piece("half", b"end"))
        artifacts.take("t", piece("small"))
        artifacts.take("u", piece("large", bytes(200)))
    artifacts.take("t", piece("later", bytes(200)))
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["later", "small"]
    assert artifacts.count == 2
    assert artifacts.troubles == [
        f"artifacts are missing: {tmp_path} can't be written to: File too large"
    ]


def test_a_file_that_was_lost_can_come_again(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 1000)
    with files_of_at_most(100):
        artifacts.take("t", piece("a", bytes(200)))
    artifacts.take("t", piece("a", b"anew"))
    assert found(tmp_path) == {"a": b"anew"}
    assert artifacts.count == 1


def test_a_file_stays_until_what_replaces_it_is_whole(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 1000)
    target = tmp_path / folder_name("t") / "a"
    artifacts.take("t", piece("a", b"first"))
    artifacts.take("t", piece("a", b"new ", last=False))
    assert (artifacts.count, target.read_bytes()) == (1, b"first")
    artifacts.take("t", piece("a", b"one"))
    assert (artifacts.count, target.read_bytes()) == (1, b"new one")
    assert artifacts.close() == []
    assert found(tmp_path) == {"a": b"new one"}


def test_a_file_that_begins_anew_is_not_mixed_with_what_came_before(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 8)
    artifacts.take("t", piece("a", b"12345", last=False))
    artifacts.take("t", events.Artifact(0, b"a", b"abcde", last=False, first=True))
    artifacts.take("t", piece("a", b"fgh"))
    assert found(tmp_path) == {"a": b"abcdefgh"}


def test_a_file_that_is_cut_keeps_what_came_under_another_name(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 100)
    artifacts.take("t", piece("deep/a", b"1234", last=False))
    artifacts.take("t", piece("none", b"", last=False))
    artifacts.take("t", piece("whole"))
    (text,) = artifacts.close()
    assert text == "artifact 'deep/a.part' of t is cut: no more than 4 bytes of it came"
    assert found(tmp_path) == {"deep/a.part": b"1234", "whole": b"x"}
    assert artifacts.names() == [f"{folder_name('t')}/whole"]


def test_a_file_that_is_dropped_is_gone(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 4)
    artifacts.take("t", piece("whole", b"1234"))
    artifacts.drop("t", events.Dropped(0, b"whole"))
    artifacts.take("t", piece("half", b"1234", last=False))
    artifacts.drop("t", events.Dropped(0, b"half"))
    artifacts.drop("t", events.Dropped(0, b"never was"))
    artifacts.take("t", piece("other", b"1234"))
    assert found(tmp_path) == {"other": b"1234"}
    assert artifacts.count == 1
    with pytest.raises(ProtocolError, match="unsafe"):
        artifacts.drop("t", events.Dropped(0, b"../x"))


def test_files_that_come_again_and_again_are_bounded(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 1000)
    for _ in range(4):
        artifacts.take("t", piece("a", bytes(1000)))
    with pytest.raises(ProtocolError, match="larger than 1000 bytes"):
        artifacts.take("t", piece("a", bytes(1000)))


def test_another_attempt_takes_away_what_the_one_before_has_sent(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 100)
    artifacts.begin("t", "one")
    artifacts.take("t", piece("a"), "one")
    artifacts.begin("t", "one")
    assert artifacts.count == 1
    artifacts.begin("t", "two")
    assert artifacts.count == 0
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_file_that_vanishes_half_way_does_not_count(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 1000)
    artifacts.take("t", piece("a", b"first half", last=False))
    (half,) = (tmp_path / folder_name("t")).iterdir()
    half.unlink()
    artifacts.take("t", piece("a", b"second half"))
    assert found(tmp_path) == {}
    assert artifacts.count == 0


@posix
def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    artifacts = Artifacts(tmp_path / "file" / "sub", 1000)
    for nodeid in ("t", "u"):
        artifacts.take(nodeid, piece("a", last=False))
        artifacts.take(nodeid, piece("a"))
    (trouble,) = artifacts.troubles
    assert f"{tmp_path / 'file' / 'sub'} can't be written to: Not a directory" in trouble
    assert artifacts.count == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limit for a path")
def test_what_can_not_be_removed_is_said(tmp_path: Path) -> None:
    root = tmp_path
    while len(str(root)) < 3800:
        root /= "x" * 200
    root /= "y" * (4080 - len(str(root)))
    root.mkdir(parents=True)
    text = f"files of an earlier run are left in {root}: File name too long"
    assert clear(root, ["t" * 50]) == text
    artifacts = Artifacts(root, 1000)
    artifacts.take("t" * 50, piece("a"))
    assert text in artifacts.troubles


def test_what_stands_in_the_way_of_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert in_the_way(file) == file
    assert in_the_way(file / "a" / "b") == file
    assert in_the_way(tmp_path) is None
    assert in_the_way(tmp_path / "new" / "er") is None


@given(st.lists(st.tuples(names, st.binary(max_size=4)), max_size=6))
def test_whatever_is_sent_stays_in_the_folder(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[str, bytes]]
) -> None:
    base = tmp_path_factory.mktemp("any")
    artifacts = Artifacts(base / "out", 1000)
    for name, data in sent:
        try:
            artifacts.take("t", piece(name, data))
        except ProtocolError:
            continue
    assert {path.name for path in base.iterdir()} <= {"out"}
    assert {path.name for path in base.glob("out/*")} <= {folder_name("t")}


# --- the far side's part


@pytest.mark.parametrize("vanishing", ["1-first", "2-second", "3-third"])
def test_a_file_that_vanishes_while_they_are_read_costs_no_other(
    vanishing: str, tmp_path: Path
) -> None:
    (tmp_path / "0").mkdir()
    for name in ("1-first", "2-second", "3-third"):
        (tmp_path / "0" / name).touch()
    found = collect(str(tmp_path), 0, 1000)
    events_ = [next(found)]
    (tmp_path / "0" / vanishing).unlink()
    events_ += list(found)
    sent = [event.name for event in events_ if isinstance(event, events.Artifact)]
    expected = {b"1-first", b"2-second", b"3-third"} - {to_text(vanishing)} | {b"1-first"}
    assert set(sent) == expected
