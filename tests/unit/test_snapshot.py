"""What a snapshot holds: real folders and real git repositories, nothing mocked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.snapshot import Rules, Snapshot, SnapshotError, globs, take

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git on the PATH")
posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX links, pipes and modes")
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs names that aren't UTF-8")

MANY = 1 << 30
ALL = Rules(include=(), exclude=(), max_bytes=MANY)


def rules(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> Rules:
    return Rules(include=include, exclude=exclude, max_bytes=MANY)


def write(root: Path, *paths: str, content: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")


def git(folder: Path, *arguments: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)  # noqa: S607 -- the git under test


def paths(snapshot: Snapshot) -> list[str]:
    return [entry.path for entry in snapshot.entries]


@pytest.fixture(autouse=True)
def no_git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings and the surroundings of whoever runs the tests out of them."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", tempfile.gettempdir())


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    git(root, "init", "-q")
    return root


# --- what git lists


@needs_git
def test_tracked_and_untracked_but_not_ignored(repo: Path) -> None:
    write(repo, "tracked.py", "new.py", "data/big.bin", "pkg/keep.log", "pkg/drop.log")
    write(repo, ".gitignore", content="data/\n")
    write(repo, "pkg/.gitignore", content="drop.log\n")
    git(repo, "add", "tracked.py")
    snapshot = take(repo, ALL)
    assert paths(snapshot) == [
        ".gitignore",
        "new.py",
        "pkg/.gitignore",
        "pkg/keep.log",
        "tracked.py",
    ]
    assert (snapshot.left_out, snapshot.notes, snapshot.size) == ((), (), 6 + 1 + 9 + 1 + 1)


@needs_git
def test_ignored_but_tracked_travels_with_uncommitted_content(repo: Path) -> None:
    write(repo, "a.bin", content="committed")
    write(repo, ".gitignore", content="*.bin\n")
    git(repo, "add", "-f", "a.bin")
    git(repo, "commit", "-qm", "m")
    write(repo, "a.bin", content="edited")
    (entry,) = [entry for entry in take(repo, ALL).entries if entry.path == "a.bin"]
    assert take(repo, ALL).read(entry.digest) == b"edited"


@needs_git
def test_root_may_be_a_folder_of_the_checkout(repo: Path) -> None:
    write(repo, "outside.py", "sub/inside.py", "sub/deep/new.py", "sub/no.bin")
    write(repo, ".gitignore", content="*.bin\n")
    git(repo, "add", "outside.py", "sub/inside.py")
    assert paths(take(repo / "sub", ALL)) == ["deep/new.py", "inside.py"]


@needs_git
def test_deleted_or_replaced_tracked_files(repo: Path) -> None:
    write(repo, "gone.py", "kept.py", "swap", "folder/f.py")
    git(repo, "add", ".")
    (repo / "gone.py").unlink()
    (repo / "swap").unlink()
    shutil.rmtree(repo / "folder")
    write(repo, "swap/new.py", "folder")
    assert paths(take(repo, ALL)) == ["folder", "kept.py", "swap/new.py"]


@needs_git
@posix
def test_tracked_files_behind_a_link_are_the_links_business(repo: Path) -> None:
    write(repo, "real/f.py", "alias/f.py")
    git(repo, "add", ".")
    shutil.rmtree(repo / "alias")
    (repo / "alias").symlink_to("real")
    snapshot = take(repo, ALL)
    assert (paths(snapshot), snapshot.left_out) == (["alias", "real/f.py"], ())


@needs_git
@posix
def test_tracked_file_behind_a_circle_of_links_is_reported(repo: Path) -> None:
    write(repo, "loop/f.py")
    git(repo, "add", ".")
    shutil.rmtree(repo / "loop")
    (repo / "loop").symlink_to("loop")
    snapshot = take(repo, ALL)
    assert (paths(snapshot), [path for path, _ in snapshot.left_out]) == (["loop"], ["loop/f.py"])


@needs_git
def test_submodules_and_nested_checkouts_by_their_own_rules(repo: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    git(library, "init", "-q")
    write(library, "lib.py", "built.so")
    write(library, ".gitignore", content="*.so\n")
    git(library, "add", ".")
    git(library, "commit", "-qm", "m")
    git(repo, "submodule", "add", "-q", str(library), "vendor/lib")
    write(repo, "vendor/lib/new.py", "vendor/lib/built.so", "main.py")
    git(repo / "nested", "init", "-q")
    write(repo, "nested/n.py", "nested/n.log")
    write(repo, "nested/.gitignore", content="*.log\n")
    git(repo, "clone", "-q", str(library), "absent")
    git(repo, "add", "absent")
    shutil.rmtree(repo / "absent")
    (repo / "absent").mkdir()
    snapshot = take(repo, ALL)
    assert paths(snapshot) == [
        ".gitmodules",
        "main.py",
        "nested/.gitignore",
        "nested/n.py",
        "vendor/lib/.gitignore",
        "vendor/lib/lib.py",
        "vendor/lib/new.py",
    ]
    ((path, reason),) = snapshot.left_out
    assert path == "absent"
    assert "git submodule update --init" in reason
    shutil.rmtree(repo / "absent")
    assert take(repo, ALL).left_out == ()


@needs_git
def test_submodule_without_its_git_is_walked(repo: Path) -> None:
    git(repo / "sub", "init", "-q")
    git(repo / "sub", "commit", "-q", "--allow-empty", "-m", "m")
    git(repo, "add", "sub")
    write(repo, "sub/f.py", "sub/.gitignore")
    shutil.rmtree(repo / "sub" / ".git")
    assert paths(take(repo, ALL)) == ["sub/.gitignore", "sub/f.py"]
    write(repo, "sub/.git", content="gitdir: ../nowhere\n")
    snapshot = take(repo, ALL)
    assert paths(snapshot) == ["sub/.gitignore", "sub/f.py"]
    assert "'sub', so ignored files are sent too" in snapshot.notes[0]


@needs_git
def test_nested_checkout_that_is_left_out_is_not_entered(repo: Path) -> None:
    git(repo / "nested", "init", "-q")
    write(repo, "a.py", "nested/n.py")
    write(repo, "nested/.git/config", content="[broken")
    snapshot = take(repo, rules(exclude=("nested",)))
    assert paths(snapshot) == ["a.py"]
    assert snapshot.left_out == (("nested", "matches 'nested' in remotegpu_exclude"),)


@needs_git
def test_variables_of_a_git_hook_do_not_mislead(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    git(other, "init", "-q")
    write(other, "other.py")
    git(other, "add", ".")
    write(repo, "mine.py", "mine.bin")
    write(repo, ".gitignore", content="*.bin\n")
    git(repo, "add", "-f", "mine.bin")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert paths(take(repo, ALL)) == [".gitignore", "mine.bin", "mine.py"]


# --- where git has nothing to say


def test_without_a_repository_all_is_walked(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "d/e/f.bin", ".hidden", "d/.gitignore")
    snapshot = take(tmp_path, ALL)
    assert paths(snapshot) == [".hidden", "a.py", "d/.gitignore", "d/e/f.bin"]
    assert snapshot.notes == ()
    assert take(tmp_path, rules(exclude=("**",))).entries == ()


@needs_git
def test_without_git_a_checkout_is_walked_and_the_user_told(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(repo, "a.py", "ignored.bin")
    write(repo, ".gitignore", content="*.bin\n")
    monkeypatch.setenv("PATH", str(repo))
    snapshot = take(repo, ALL)
    assert paths(snapshot) == [".gitignore", "a.py", "ignored.bin"]
    assert snapshot.left_out == ((".git", "is version control data, which never travels"),)
    (note,) = snapshot.notes
    assert note.startswith("git can't be run (")
    assert note.endswith("so ignored files are sent too")


@needs_git
def test_root_that_an_outer_repository_ignores_is_walked(repo: Path) -> None:
    write(repo, "build/project/test_a.py")
    write(repo, ".gitignore", content="build/\n")
    snapshot = take(repo / "build" / "project", ALL)
    assert paths(snapshot) == ["test_a.py"]
    assert snapshot.notes == ("git lists no file under the project root, so ignored ones are sent",)


@needs_git
def test_broken_repository_is_an_error_in_gits_words(repo: Path) -> None:
    write(repo, ".git/config", content="[broken")
    with pytest.raises(UsageError, match=r"can't list the files of '.*repo'.*bad config"):
        take(repo, ALL)


def test_root_must_be_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "file")
    with pytest.raises(UsageError, match=r"'.*file' is not a folder"):
        take(tmp_path / "file", ALL)


# --- globs


@pytest.mark.parametrize(
    ("glob", "path", "covered"),
    [
        ("*.bin", "a.bin", True),
        ("*.bin", "d/a.bin", False),
        ("**/*.bin", "a.bin", True),
        ("**/*.bin", "d/e/a.bin", True),
        ("d/**/a", "d/a", True),
        ("d/**/a", "d/e/f/a", True),
        ("d/**/a", "e/a", False),
        ("d", "d/e/f", True),
        ("d/", "d/e/f", True),
        ("./d/**", "d/e", True),
        ("d", "dd/e", False),
        ("d/*/f", "d/e/f/g", True),
        ("d/*/f", "d/f", False),
        ("*", ".hidden", True),
        ("A", "a", False),
        ("[ab]?.py", "b1.py", True),
        ("[!ab].py", "a.py", False),
        ("x[[]1].py", "x[1].py", True),
        ("x[1].py", "x[1].py", True),
        ("**", "a/b", True),
        ("a/b/c", "a/b", False),
    ],
)
def test_globs(glob: str, path: str, covered: bool) -> None:
    (pattern,) = globs.parse("remotegpu_include", [glob])
    parts = tuple(path.split("/"))
    assert globs.covers(pattern, parts) is covered
    if covered:
        assert all(globs.reaches(pattern, parts[:end]) for end in range(len(parts)))


def test_walks_do_not_go_where_no_glob_leads() -> None:
    assert not globs.reaches(("data", "*.bin"), ("src",))
    assert not globs.reaches(("*.bin",), ("src",))
    assert globs.reaches(("data", "*", "x"), ("data", "a"))


@pytest.mark.parametrize("glob", ["/abs", "../x", "a/../../x", "", "."])
@pytest.mark.parametrize("option", ["include", "exclude"])
def test_globs_stay_in_the_root(tmp_path: Path, option: str, glob: str) -> None:
    given = rules(include=(glob,)) if option == "include" else rules(exclude=(glob,))
    with pytest.raises(UsageError) as caught:
        take(tmp_path, given)
    assert f"remotegpu_{option} has {glob!r}" in str(caught.value)


@needs_git
def test_include_brings_ignored_files_and_exclude_wins(repo: Path) -> None:
    write(repo, "a.py", "data/x.bin", "data/deep/y.bin", "data/z.txt", "other/x.bin")
    write(repo, ".gitignore", content="data/\n*.bin\n")
    snapshot = take(repo, rules(include=("data/**/*.bin", "other"), exclude=("**/y.bin",)))
    assert paths(snapshot) == [".gitignore", "a.py", "data/x.bin", "other/x.bin"]
    assert snapshot.left_out == (("data/deep/y.bin", "matches '**/y.bin' in remotegpu_exclude"),)
    both = take(repo, rules(include=("data/x.bin",), exclude=("data/x.bin",)))
    assert "data/x.bin" not in paths(both)


def test_an_excluded_folder_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "data/1", "data/2", "data/d/3", "b.log")
    snapshot = take(tmp_path, rules(exclude=("data/**", "*.log")))
    assert paths(snapshot) == ["a.py"]
    assert [path for path, _ in snapshot.left_out] == ["b.log", "data"]


# --- odd names


@needs_git
@linux
@pytest.mark.parametrize("tracked", [True, False])
def test_odd_names(repo: Path, tracked: bool) -> None:
    good = ["new\nline", "tab\tand 'quote\"", " lead", "-rf", "ünï✓", "back\\slash", "[1]*?"]
    write(repo, *good, "C:drive")
    Path(os.fsdecode(os.fsencode(repo) + b"/caf\xe9")).touch()
    (repo / "to-odd").symlink_to(os.fsdecode(b"\xff"))
    if tracked:
        git(repo, "add", ".")
    snapshot = take(repo, ALL)
    assert paths(snapshot) == sorted(good)
    odd = "has a name, or links to one, that isn't UTF-8"
    assert snapshot.left_out == (
        ("C:drive", "looks like a path on a drive of its own"),
        ("caf\\xe9", odd),
        ("to-odd", odd),
    )
    assert "isn't UTF-8" in str(snapshot.why_left_out(os.fsdecode(b"caf\xe9")))


# --- size


def test_too_much_names_the_largest_files_and_the_way_out(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"f{number:02}").write_bytes(b"x" * (number + 1) * 1024)
    limit = 70 * 1024
    with pytest.raises(UsageError) as caught:
        take(tmp_path, Rules(include=(), exclude=(), max_bytes=limit))
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "the 12 files to send come to 78.0 KiB (79872 bytes), over the limit of 70.0 KiB"
        " (71680 bytes); the largest are"
    )
    assert [line.split() for line in lines[1:-1]] == [
        [f"{number + 1}.0", "KiB", f"'f{number:02}'"] for number in range(11, 1, -1)
    ]
    assert "remotegpu_exclude" in lines[-1]
    assert "remotegpu_max_upload" in lines[-1]
    assert len(take(tmp_path, Rules((), (), 78 * 1024)).entries) == 12
    assert len(take(tmp_path, Rules((), ("f11",), limit)).entries) == 11


# --- reading it again


def test_contents_are_checked_when_they_are_read(tmp_path: Path) -> None:
    write(tmp_path, "a", "twin", content="same")
    write(tmp_path, "b", content="was")
    snapshot = take(tmp_path, ALL)
    digests = {entry.path: entry.digest for entry in snapshot.entries}
    assert digests["a"] == digests["twin"]
    wanted = [digests["b"], digests["a"]]
    assert list(snapshot.blobs(wanted)) == [(digests["b"], b"was"), (digests["a"], b"same")]
    write(tmp_path, "b", content="was longer afterwards")
    assert snapshot.read(digests["b"]) == b"was", "a log that grows still begins with what it was"
    write(tmp_path, "b", content="changed")
    with pytest.raises(SnapshotError, match="'b' changed after the snapshot was taken; run again"):
        snapshot.read(digests["b"])
    (tmp_path / "b").unlink()
    with pytest.raises(SnapshotError, match=r"'b' can't be read any more \(No such file"):
        snapshot.read(digests["b"])


@posix
def test_only_what_the_snapshot_holds_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "link").symlink_to("a")
    snapshot = take(tmp_path, ALL)
    for digest in ("", "../a", "0" * 64):
        with pytest.raises(SnapshotError, match=f"has no content {digest!r}"):
            snapshot.read(digest)


# --- why a file is missing over there


@needs_git
@posix
def test_why_a_path_was_left_out(repo: Path, tmp_path: Path) -> None:
    write(tmp_path, "elsewhere.txt", "disk/x.bin")
    write(repo, "sent/a.py", "data/x[1].bin", "cfg/.env", "excl/e.txt", "venv/bin/python")
    write(repo, "venv/pyvenv.cfg", "logs/a.log", "mixed/.env", "mixed/ok")
    write(repo, ".gitignore", content="data/\n*.log\n")
    (repo / "empty").mkdir()
    (repo / "disk").symlink_to(tmp_path / "disk")
    (repo / "alias").symlink_to("data")
    (repo / "also").symlink_to("sent")
    snapshot = take(repo, rules(exclude=("excl/**",)))
    write(repo, "later.py")
    add = "; to send it, add {!r} to remotegpu_include"
    for path, reason in {
        "data/x[1].bin": "git ignores it" + add.format("data/x[[]1].bin"),
        "data": "git ignores it" + add.format("data"),
        "alias/x[1].bin": "git ignores it" + add.format("data/x[[]1].bin"),
        "cfg/.env": "'cfg/.env' may hold a secret" + add.format("cfg/.env"),
        "cfg": "'cfg/.env' may hold a secret, and nothing else in it travels",
        "venv/bin/python": "'venv' is a virtual environment" + add.format("venv/bin/python"),
        "excl/e.txt": "'excl' matches 'excl/**' in remotegpu_exclude",
        "empty": "it is empty, or git ignores what it holds" + add.format("empty"),
        "logs": "it is empty, or git ignores what it holds" + add.format("logs"),
        "later.py": "it is newer than the snapshot; run again",
        "disk/x.bin": "'disk' is a symbolic link that leaves the project root",
        "../elsewhere.txt": f"'{tmp_path}/elsewhere.txt' is outside the project root '{repo}'",
    }.items():
        assert snapshot.why_left_out(path) == f"{path!r} was not sent: {reason}"
        assert snapshot.why_left_out(str(repo / path)) == f"'{repo / path}' was not sent: {reason}"
    for path in ("sent/a.py", "sent", "mixed", ".", "nowhere.txt", "alias", "also/a.py"):
        assert snapshot.why_left_out(path) is None


@needs_git
@posix
@pytest.mark.parametrize(
    "path", ["data/x[1].bin", "cfg/.env", "venv/bin/python", "logs", "n\n.log", ":!x.log"]
)
def test_the_advice_works(repo: Path, path: str) -> None:
    write(repo, "data/x[1].bin", "cfg/.env", "venv/bin/python", "venv/pyvenv.cfg", "logs/a.log")
    write(repo, "n\n.log", ":!x.log")
    write(repo, ".gitignore", content="data/\n*.log\n.env\n")
    answer = take(repo, ALL).why_left_out(path)
    assert answer is not None
    advice = answer.partition("; to send it, add ")[2].partition(" to remotegpu_include")[0]
    after = take(repo, rules(include=(advice[1:-1].replace("\\n", "\n"),)))
    assert after.why_left_out(path) is None
    assert any(entry.path.startswith(path) for entry in after.entries)


def test_lfs_pointers_are_named(tmp_path: Path) -> None:
    head = "version https://git-lfs.github.com/spec/v1\n"
    write(tmp_path, "data/model.pkl", "b.bin", content=head + "oid sha256:0\nsize 12\n")
    write(tmp_path, "prose.md", content=head + "x" * 2000)
    snapshot = take(tmp_path, ALL)
    assert snapshot.lfs_pointers == ("b.bin", "data/model.pkl")
    assert snapshot.notes == (
        (
            "2 of the files sent are Git LFS pointers without their content,"
            " for instance 'b.bin'; run git lfs pull"
        ),
    )
    assert "data/model.pkl" in paths(snapshot)
