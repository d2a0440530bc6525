"""The history: a file that only grows, whoever writes it, and however it was put together."""

from __future__ import annotations

import multiprocessing
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.benchmarks import kept, plain
from pytest_remotegpu.bench import history
from pytest_remotegpu.bench.history import Commit

COMMIT = Commit("c0ffee", changed=False)


def add(path: Path, *times: float, when: float = 1.0, commit: Commit = COMMIT) -> int:
    """Add benchmarks of so many milliseconds."""
    return history.append(path, kept(*map(plain, times)), when=when, commit=commit)


def test_a_line_has_what_it_is_keyed_by(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert add(path, 1.0, 2.0, when=17.5, commit=Commit("abc", changed=True)) == 2
    entries, bad = history.read(path)
    assert bad == []
    assert [entry.index for entry in entries] == [0, 1]
    for entry in entries:
        assert (entry.when, entry.commit) == (17.5, Commit("abc", changed=True))
        assert entry.benchmark.environment["device"] == "NVIDIA X1"
        ((*_, timed),) = entry.benchmark.timed()
        assert timed.times == []  # the interval is enough, and a line is short
        assert timed.low < timed.ms < timed.high
    assert all(len(line) < 2000 for line in path.read_text().splitlines())


def test_it_only_grows(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    add(path, 1.0, when=1)
    before = path.read_bytes()
    add(path, 2.0, when=2)
    assert path.read_bytes().startswith(before)
    assert add(path) == 0
    assert len(history.read(path)[0]) == 2


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    add(tmp_path / "history.jsonl")
    assert not [*tmp_path.iterdir()]


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4))
def test_files_are_put_together_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    """Each session's lines count once, however often its file was in what was put together."""
    folder = tmp_path_factory.mktemp("history")
    one, whole = folder / "one", folder / "whole"
    lines = []
    for session in range(6):
        one.unlink(missing_ok=True)
        add(one, 1.0 + session, when=float(session))
        lines.append(one.read_bytes())
    whole.write_bytes(b"".join(lines[session] for part in parts for session in part))
    entries, bad = history.read(whole)
    assert bad == []
    assert [entry.when for entry in entries] == sorted({n for part in parts for n in part})


@pytest.mark.parametrize("torn", [b'{"format": "pytest-rem', b"\x00\xff", b"{}", b"[]"])
def test_a_torn_line_spoils_no_other(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "history.jsonl"
    add(path, 1.0, when=1)
    with path.open("ab") as file:
        file.write(torn)
    add(path, 2.0, when=2)
    entries, bad = history.read(path)
    assert [entry.when for entry in entries] == [1, 2]
    (line,) = bad
    assert line.startswith(f"line 2 of {path} is no benchmark: ")


@pytest.mark.parametrize(
    ("content", "may"),
    [
        (b"", True),
        (b"\n\n", True),
        (b'{"format":"pytest-rem', True),
        (history.HEAD + b',"version":2', True),
        (b"\x00\xff\n" + history.HEAD + b"}", True),
        (b'{"tests":[]}\n', False),
        (b'{\n "format": "pytest-remotegpu/benchmarks"\n', False),
        (b"\x00\xff", False),
    ],
)
def test_what_is_something_else_is_not_added_to(tmp_path: Path, content: bytes, may: bool) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(content)
    assert history.begun(path) is may
    add(path, 1.0)
    assert history.begun(path)


def test_another_version_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    add(path, 1.0)
    path.write_bytes(path.read_bytes().replace(b'history","version":1', b'history","version":2'))
    entries, (line,) = history.read(path)
    assert entries == []
    assert "in version 2" in line


@pytest.mark.parametrize("when", ["1e300", "-1", "253402300800"])
def test_a_time_that_is_none_is_told(tmp_path: Path, when: str) -> None:
    path = tmp_path / "history.jsonl"
    add(path, 1.0)
    wrong = path.read_bytes().replace(b'"when":1.0', f'"when":{when}'.encode())
    path.write_bytes(path.read_bytes() + wrong)
    (entry,), (line,) = history.read(path)
    assert entry.when == 1
    assert f"line 2 of {path} is no benchmark: " in line
    assert "is no time" in line


def test_a_line_of_any_depth_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    add(path, 1.0)
    deep = b'"environment":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b","
    wrong = path.read_bytes().replace(b'"environment":{', deep)
    path.write_bytes(wrong + path.read_bytes())
    (_,), (line,) = history.read(path)
    assert line.startswith(f"line 1 of {path} is no benchmark: ")


def _many(path: Path, writer: int) -> None:
    for number in range(20):
        add(path, 1.0, 2.0, 3.0, when=float(100 * writer + number))


def test_several_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_many, args=(path, writer)) for writer in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    entries, bad = history.read(path)
    assert bad == []
    assert len(entries) == 3 * 20 * 3


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_is_gits(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    file = tmp_path / "a.txt"
    file.write_text("a")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "a")
    head = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "new.txt").write_text("untracked")
    assert history.commit_of(tmp_path, {"GITHUB_SHA": "other"}) == Commit(head, changed=False)
    file.write_text("b")
    assert history.commit_of(tmp_path, {}) == Commit(head, changed=True)


def test_without_git_it_is_that_of_the_ci_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert history.commit_of(tmp_path, {"GITHUB_SHA": "abc"}) == Commit("abc")
    assert history.commit_of(tmp_path, {}) == Commit()
    monkeypatch.setenv("PATH", "")
    assert history.commit_of(tmp_path, {"GITHUB_SHA": "abc"}) == Commit("abc")
