"""How a snapshot takes links, modes, special files, and files that change meanwhile."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.snapshot import Rules, Snapshot, take

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX links, pipes and modes")

ALL = Rules(include=(), exclude=(), max_bytes=1 << 30)


def write(root: Path, *paths: str, content: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")


def paths(snapshot: Snapshot) -> list[str]:
    return [entry.path for entry in snapshot.entries]


def links(snapshot: Snapshot) -> dict[str, str | None]:
    return {entry.path: entry.link for entry in snapshot.entries if entry.link is not None}


# --- links, modes, odd files


@posix
def test_links_are_kept_made_relative_or_left_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(tmp_path, "secret.txt", content="outside")
    write(root, "d/e/file", "f")
    for link, target in {
        "plain": "f",
        "slash": "./d/",
        "d/e/up": "../../f",
        "dangling": "d/none",
        "root": ".",
        "absolute": str(root / "d" / "e"),
        "d/absolute": str(root / "f"),
        "zigzag": "d/../f",
        "via": "absolute/../../f",
        "self": "self",
        "out": "../secret.txt",
        "d/out": str(tmp_path / "secret.txt"),
        "chain": "out",
        "etc": "/etc",
    }.items():
        (root / link).symlink_to(target)
    snapshot = take(root, ALL)
    assert links(snapshot) == {
        "plain": "f",
        "slash": "./d/",
        "d/e/up": "../../f",
        "dangling": "d/none",
        "root": ".",
        "absolute": "d/e",
        "d/absolute": "../f",
        "zigzag": "f",
        "via": "f",
        "self": "self",
    }
    reason = "is a symbolic link that leaves the project root"
    assert snapshot.left_out == tuple((path, reason) for path in ("chain", "d/out", "etc", "out"))
    assert [entry.path for entry in snapshot.entries if entry.link is None] == ["d/e/file", "f"]


@posix
def test_a_root_reached_by_a_link(tmp_path: Path) -> None:
    write(tmp_path, "real/a")
    (tmp_path / "alias").symlink_to("real")
    snapshot = take(tmp_path / "alias", ALL)
    assert snapshot.root == (tmp_path / "real").resolve()
    assert paths(snapshot) == ["a"]


@posix
def test_the_executable_bit_is_all_of_the_mode(tmp_path: Path) -> None:
    write(tmp_path, "run", "read", "open")
    (tmp_path / "run").chmod(0o4751)
    (tmp_path / "read").chmod(0o400)
    (tmp_path / "open").chmod(0o666)
    modes = {entry.path: entry.mode for entry in take(tmp_path, ALL).entries}
    assert modes == {"run": 0o755, "read": 0o644, "open": 0o644}


@posix
def test_special_files_stay_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "file")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    snapshot = take(tmp_path, ALL)
    assert paths(snapshot) == ["file"]
    reason = "is a pipe, a socket or a device, no file"
    assert snapshot.left_out == (("pipe", reason), ("socket", reason))


# --- files that don't hold still

_on_event: dict[str, Callable[[Path], None]] = {}


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if event in _on_event and isinstance(arguments[0], (str, Path)):
        _on_event[event](Path(arguments[0]))


sys.addaudithook(_listen)


@contextmanager
def before(event: str, path: Path, action: Callable[[], object]) -> Iterator[None]:
    """Do something to the disk each time the interpreter is about to open or list the path."""

    def act(opened: Path) -> None:
        if opened == path:
            kept = _on_event.pop(event)
            action()
            _on_event[event] = kept

    _on_event[event] = act
    try:
        yield
    finally:
        _on_event.pop(event)


def test_a_file_that_changes_once_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, "log", content="old")
    todo = ["newest", "newer"]

    def change() -> None:
        if todo:
            write(tmp_path, "log", content=todo.pop())

    with before("open", tmp_path / "log", change):
        snapshot = take(tmp_path, ALL)
    assert snapshot.read(snapshot.entries[0].digest) == b"newest"


def test_a_file_that_never_rests_stays_behind(tmp_path: Path) -> None:
    write(tmp_path, "log", "other")

    def grow() -> None:
        with (tmp_path / "log").open("a", encoding="utf-8") as log:
            log.write("more")

    with before("open", tmp_path / "log", grow):
        snapshot = take(tmp_path, ALL)
    assert paths(snapshot) == ["other"]
    assert snapshot.left_out == (("log", "kept changing while it was read"),)


def test_a_file_that_vanishes_stays_behind(tmp_path: Path) -> None:
    write(tmp_path, "brief")
    with before("open", tmp_path / "brief", (tmp_path / "brief").unlink):
        snapshot = take(tmp_path, ALL)
    assert snapshot.entries == ()
    assert snapshot.left_out == (("brief", "vanished while the snapshot was taken"),)


@posix
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("link", "can't be read (Too many levels"), ("pipe", "is a pipe, a socket or a device")],
)
def test_a_file_replaced_by_something_else_is_not_followed(
    tmp_path: Path, kind: str, reason: str
) -> None:
    root = tmp_path / "root"
    write(tmp_path, "outside", content="secret")
    write(root, "swap")

    def swap() -> None:
        if (root / "swap").is_file():
            (root / "swap").unlink()
            if kind == "link":
                (root / "swap").symlink_to("../outside")
            else:
                os.mkfifo(root / "swap")

    with before("open", root / "swap", swap):
        snapshot = take(root, ALL)
    assert snapshot.entries == ()
    ((path, why),) = snapshot.left_out
    assert path == "swap"
    assert why.startswith(reason)


@posix
def test_a_link_or_folder_that_vanishes_stays_behind(tmp_path: Path) -> None:
    write(tmp_path, "a", "folder/f")
    (tmp_path / "link").symlink_to("a")
    with before("open", tmp_path / "a", (tmp_path / "link").unlink):
        assert [path for path, _ in take(tmp_path, ALL).left_out] == ["link"]
    with before("os.scandir", tmp_path / "folder", lambda: shutil.rmtree(tmp_path / "folder")):
        ((path, reason),) = take(tmp_path, ALL).left_out
    assert path == "folder"
    assert reason.startswith("can't be read (No such file")


def test_huge_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(3 << 30)
    write(tmp_path, "small")
    with (
        before("open", tmp_path / "sparse", lambda: pytest.fail("it was opened")),
        pytest.raises(UsageError, match=r"3\.0 GiB +'sparse'\n +1 B +'small'"),
    ):
        take(tmp_path, ALL)


@posix
def test_a_nested_checkout_that_vanishes_is_reported(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git on the PATH")
    nested = tmp_path / "root" / "nested"
    for folder in (tmp_path / "root", nested):
        folder.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)  # noqa: S607 -- the git under test
    write(tmp_path / "root", "a")
    with before("os.listdir", nested, lambda: shutil.rmtree(nested)):
        snapshot = take(tmp_path / "root", ALL)
    assert [path for path, _ in snapshot.left_out] == ["nested"]
