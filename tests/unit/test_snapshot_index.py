"""A remembered snapshot never shows a stale file, and is not worth more than a fresh look."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_remotegpu import stamps
from pytest_remotegpu.snapshot import Rules, Snapshot, reading, take
from pytest_remotegpu.snapshot import renewing as module

pytestmark = [
    pytest.mark.skipif(not stamps.RELIABLE, reason="nothing is remembered on this system"),
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
]

GIT = (
    *("git", "-c", "user.name=u", "-c", "user.email=u@localhost", "-c", "commit.gpgsign=false"),
    *("-c", "protocol.file.allow=always", "-c", "core.autocrlf=false"),
)
RULES = Rules((), (), 2**30)
AFTER_A_TICK = 0.03
"""Seconds in which a clock of the kernel's moves on."""


def git(folder: Path, *words: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True)


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


class Project:
    """A checkout with a few files, and a memory of its snapshots."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.memory = folder / "memory"
        for name in ("a.py", "b.py", "pkg/c.py", "pkg/deep/d.py"):
            write(self.root / name, f"# {name}\n")
        git(self.root, "init", "-q")
        git(self.root, "add", ".")
        git(self.root, "commit", "-qm", "first")

    def remembered(self) -> Snapshot:
        """Take a snapshot as a session does."""
        taken = take(self.root, RULES, self.memory)
        taken.remember()
        return taken

    def settle(self) -> None:
        """Remember what is there, long enough after the last change for it to count."""
        time.sleep(AFTER_A_TICK)
        self.remembered()

    def check(self) -> Snapshot:
        """Compare a snapshot that builds on the last one with one that builds on nothing."""
        found, fresh = self.remembered(), take(self.root, RULES)
        assert list(found.manifest) == list(fresh.manifest)
        assert found.left_out == fresh.left_out
        assert found.notes == fresh.notes
        assert found.manifest.digest == fresh.manifest.digest
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a project of which a snapshot is remembered."""
    project = Project(tmp_path)
    project.settle()
    return project


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the name of each file whose content is read."""
    read: list[str] = []

    def noting(path: str, before: stamps.Stamp | None = None) -> reading.Content | str:
        read.append(Path(path).name)
        return reading.read_file(path, before)

    monkeypatch.setattr(module, "read_file", noting)
    return read


def test_only_what_changed_is_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    read = count_reads(monkeypatch)
    project.check()
    read.clear()
    project.remembered()
    assert read == []
    write(project.root / "pkg/c.py", "other")
    project.remembered()
    assert read == ["c.py"]
    read.clear()
    write(project.root / "new.py", "new")
    project.remembered()
    assert sorted(set(read)) == ["c.py", "new.py"]  # the first was changed just before


def test_a_file_as_young_as_the_memory_is_read_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project.root / "a.py", "first")
    project.remembered()
    read = count_reads(monkeypatch)
    project.remembered()
    assert read == ["a.py"]
    time.sleep(AFTER_A_TICK)
    project.remembered()
    read.clear()
    project.remembered()
    assert read == []


def same_size_and_time(root: Path) -> None:
    path = root / "a.py"
    status = path.stat()
    path.write_text("# A.py\n", encoding="utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


def renamed_over(root: Path) -> None:
    path = root / "a.py"
    status = path.stat()
    other = write(root / "other", "# A.py\n")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def written_into(root: Path) -> None:
    with (root / "a.py").open("r+b", buffering=0) as file:
        file.write(b"#!")


def branch(root: Path) -> None:
    git(root, "checkout", "-qb", "side")
    write(root / "a.py", "# side\n")
    (root / "b.py").unlink()
    write(root / "pkg/new.py", "")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "side")
    git(root, "checkout", "-q", "-")


def other_branch(root: Path) -> None:
    branch(root)
    git(root, "checkout", "-q", "side")


def executable(root: Path) -> None:
    (root / "a.py").chmod(0o755)


def into_link(root: Path) -> None:
    (root / "a.py").unlink()
    (root / "a.py").symlink_to("b.py")


def into_folder(root: Path) -> None:
    (root / "a.py").unlink()
    write(root / "a.py/inner.py", "")


def folder_into_link(root: Path) -> None:
    """Its files keep their inodes and times; only the folder is another thing."""
    (root / "pkg").rename(root / "real")
    (root / "pkg").symlink_to("real")


def ignored(root: Path) -> None:
    write(root / "junk.log", "")
    write(root / ".gitignore", "*.log\n")


def environment(root: Path) -> None:
    write(root / "pkg/pyvenv.cfg", "")


def secret(root: Path) -> None:
    write(root / "pkg/c.py", "-----BEGIN PRIVATE KEY-----\n")


def pointer(root: Path) -> None:
    write(root / "pkg/c.py", "version https://git-lfs.github.com/spec/v1\noid\n")


def deleted(root: Path) -> None:
    (root / "pkg/c.py").unlink()


def untracked(root: Path) -> None:
    write(root / "pkg/more/e.py", "")


def staged(root: Path) -> None:
    write(root / "e.py", "")
    git(root, "add", "e.py")


def assumed_unchanged(root: Path) -> None:
    git(root, "update-index", "--assume-unchanged", "a.py")
    write(root / "a.py", "# git says that nothing has changed\n")


def line_ends(root: Path) -> None:
    """Git calls both versions the same, as its filter makes the same of both."""
    git(root, "config", "core.autocrlf", "input")
    (root / "a.py").write_bytes(b"# a.py\r\n")


def unreadable(root: Path) -> None:
    (root / "a.py").unlink()
    os.mkfifo(root / "a.py")


CHANGES = (
    same_size_and_time, renamed_over, written_into, branch, other_branch, executable, into_link,
    into_folder, folder_into_link, ignored, environment, secret, pointer, deleted, untracked,
    staged, assumed_unchanged, line_ends, unreadable,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_no_change_goes_unseen(project: Project, change: Callable[[Path], None]) -> None:
    change(project.root)
    project.check()
    project.settle()
    project.check()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_no_change_goes_unseen_that_is_undone(
    project: Project, change: Callable[[Path], None], tmp_path: Path
) -> None:
    shutil.copytree(project.root, tmp_path / "kept", symlinks=True)
    change(project.root)
    project.settle()
    shutil.rmtree(project.root)
    (tmp_path / "kept").rename(project.root)
    project.check()


def test_a_deleted_file_that_comes_back_is_seen(project: Project) -> None:
    (project.root / "b.py").unlink()
    project.settle()
    assert "b.py" not in project.check().manifest.paths
    write(project.root / "b.py", "back")
    assert "b.py" in project.check().manifest.paths


def test_a_submodule_is_looked_at(project: Project, tmp_path: Path) -> None:
    git(tmp_path / "library", "init", "-q")
    write(tmp_path / "library/lib.py", "one")
    git(tmp_path / "library", "add", ".")
    git(tmp_path / "library", "commit", "-qm", "one")
    git(project.root, "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    project.settle()
    write(project.root / "lib/lib.py", "two")
    project.check()
    project.settle()
    write(project.root / "lib/more.py", "")
    assert "lib/more.py" in project.check().manifest.paths
    git(project.root, "submodule", "-q", "deinit", "-f", "lib")
    assert "lib/lib.py" not in project.check().manifest.paths


def test_where_a_link_leads_is_looked_at_each_time(project: Project, tmp_path: Path) -> None:
    (project.root / "inner").mkdir()
    (project.root / "inner/way").symlink_to("../pkg")
    (project.root / "link").symlink_to("inner/way/c.py")
    project.settle()
    assert "link" in project.check().manifest.paths
    (tmp_path / "outside").mkdir()
    (project.root / "inner/way").unlink()
    (project.root / "inner/way").symlink_to(tmp_path / "outside")
    found = project.check()
    assert not {"link", "inner/way"} & set(found.manifest.paths)


def test_another_rule_makes_another_snapshot(project: Project) -> None:
    write(project.root / ".gitignore", "*.bin\n")
    write(project.root / "data/x.bin", "")
    project.settle()
    for rules in (Rules(("data/*.bin",), (), 2**30), Rules((), ("pkg",), 2**30), RULES):
        taken = take(project.root, rules, project.memory)
        taken.remember()
        assert list(taken.manifest) == list(take(project.root, rules).manifest)
        again = take(project.root, rules, project.memory)
        assert list(again.manifest) == list(taken.manifest)


def test_what_an_include_glob_may_reach_is_walked_again(project: Project) -> None:
    rules = Rules(("data/**/*.bin",), (), 2**30)
    write(project.root / ".gitignore", "*.bin\n")
    write(project.root / "data/deep/x.bin", "")
    time.sleep(AFTER_A_TICK)
    take(project.root, rules, project.memory).remember()
    write(project.root / "data/deep/y.bin", "")
    assert "data/deep/y.bin" in take(project.root, rules, project.memory).manifest.paths


def test_without_git_unchanged_files_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "root/a.py", "a")
    write(tmp_path / "root/b.py", "b")
    time.sleep(AFTER_A_TICK)
    take(tmp_path / "root", RULES, tmp_path / "memory").remember()
    read = count_reads(monkeypatch)
    write(tmp_path / "root/b.py", "c")
    found = take(tmp_path / "root", RULES, tmp_path / "memory")
    assert read == ["b.py"]
    assert list(found.manifest) == list(take(tmp_path / "root", RULES).manifest)


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "other", "gone"])
def test_a_damaged_memory_is_none(project: Project, harm: str) -> None:
    data = bytearray(project.memory.read_bytes())
    data[len(data) // 2] ^= 1
    harmed = {
        "cut": bytes(data[:-7]),
        "flipped": bytes(data),
        "empty": b"",
        "other": b"x" * 99,
        "gone": b"",
    }
    project.memory.write_bytes(harmed[harm])
    if harm == "gone":
        project.memory.unlink()
    project.check()


def test_names_that_are_no_text_are_not_remembered(project: Project) -> None:
    try:
        Path(os.fsdecode(os.fsencode(project.root) + b"/caf\xe9.py")).touch()
    except OSError:
        pytest.skip("this file system takes text only")
    project.check()
    project.check()


def test_a_memory_that_can_not_be_written_does_no_harm(project: Project, tmp_path: Path) -> None:
    taken = take(project.root, RULES, tmp_path / "no" / "folder")
    taken.remember()
    assert taken.manifest.paths


NAMES = st.sampled_from(["a.py", "b.py", "pkg/c.py", "pkg/deep/d.py", "new.py", "pkg/n.log", "x/y"])
EDITS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.sampled_from(["one\n", "two\n", "longer\n"])),
    st.tuples(st.just("unlink"), NAMES, st.just("")),
    st.tuples(st.just("mode"), NAMES, st.just("")),
    st.tuples(st.just("link"), NAMES, st.sampled_from(["a.py", "../a.py", "/etc/passwd"])),
    st.tuples(st.just("ignore"), st.just(".gitignore"), st.sampled_from(["*.log\n", "x/\n", ""])),
    st.tuples(st.just("add"), NAMES, st.just("")),
    st.tuples(st.just("move"), NAMES, NAMES),
)


def edit(root: Path, kind: str, name: str, text: str) -> None:
    """Do one thing to a checkout, unless it can't be done."""
    path = root / name
    if kind in ("write", "ignore", "link"):
        if any(parent.is_symlink() or parent.is_file() for parent in path.parents):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link" and not os.path.lexists(path):
        path.symlink_to(text)
    elif kind in ("write", "ignore"):
        status = path.stat() if path.is_file() else None
        path.write_text(text, encoding="utf-8")
        if status is not None:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif kind == "unlink":
        path.unlink(missing_ok=True)
    elif kind == "mode" and path.is_file():
        path.chmod(path.stat().st_mode ^ 0o100)
    elif kind == "add" and path.exists():
        subprocess.run([*GIT, "add", "-f", name], cwd=root, check=False, capture_output=True)
    elif kind == "move" and path.is_file() and (root / text).parent.is_dir():
        path.replace(root / text)


@given(st.lists(st.one_of(EDITS, st.just(("look", "", ""))), max_size=12))
@settings(max_examples=25, deadline=None)
def test_whatever_is_done_a_remembered_snapshot_equals_a_fresh_one(
    steps: list[tuple[str, str, str]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        project = Project(Path(name))
        project.remembered()
        for kind, path, text in steps:
            if kind == "look":
                project.check()
            else:
                edit(project.root, kind, path, text)
        project.check()
