"""What travels to a container: changed files alone, another commit's tree, and what is left out."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from loopback import LoopbackModal
from session.checkout import check_out, commit, git, recorded
from session.running import run, said

T4 = "--remote=modal:T4"
BIG = 2**18
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def sent(pytester: pytest.Pytester, record: Path, *args: str) -> tuple[int, int]:
    """Run, and give how many files were sent and how many bytes."""
    run(pytester, T4, f"--remote-json={record}", *args).assert_outcomes(passed=1)
    data: dict[str, Any] = json.loads(record.read_text())
    return data["sent"]["files"], data["sent"]["bytes"]


def carried(service: LoopbackModal) -> int:
    """Count the bytes that went into queues so far, beside the size of each message."""
    return sum(
        len(value)
        for each in service.requests
        if each.method == "QueuePut"
        for value in each.request.values
    )


def test_a_second_session_sends_what_has_changed(
    pytester: pytest.Pytester,
    service: LoopbackModal,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """And nothing where nothing has."""
    record = tmp_path / "run.json"
    for name in ("one.bin", "two.bin"):
        (pytester.path / name).write_bytes(os.urandom(BIG))
    (pytester.path / "value.txt").write_text("1")
    pytester.makepyfile("""
        import os, pathlib, pytest

        @pytest.mark.gpu
        def test_one():
            here = pathlib.Path("value.txt").read_text()
            assert here == os.environ["VALUE"]
            assert pathlib.Path("one.bin").stat().st_size == pathlib.Path("two.bin").stat().st_size
    """)
    own = "remotegpu_exclude = std*\n"  # where the session's own words go
    pytester.makeini(f"[pytest]\nremotegpu_env = VALUE\n{own}")
    monkeypatch.setenv("VALUE", "1")
    files, size = sent(pytester, record)
    first = carried(service)
    assert files >= 4
    assert size >= 2 * BIG
    assert first >= 2 * BIG
    assert sent(pytester, record) == (0, 0)
    second = carried(service)
    (pytester.path / "value.txt").write_text("22")
    monkeypatch.setenv("VALUE", "22")
    assert sent(pytester, record) == (1, 2)
    third = carried(service)
    assert len({each.id for each in service.containers}) == 1
    assert second - first < BIG / 4
    assert third - second < BIG / 4


@pytest.fixture
def project(
    pytester: pytest.Pytester,
    service: LoopbackModal,  # noqa: ARG001 -- what the client finds
) -> pytest.Pytester:
    """Give a checkout with a first commit, in which the value is 1, and files that git ignores."""
    pytester.mkdir("data").joinpath("x.bin").touch()
    check_out(pytester, "data/*.bin")
    return pytester


@needs_git
def test_another_commit_is_run_and_what_has_run_is_on_record(project: pytest.Pytester) -> None:
    first = git(project.path, "rev-parse", "HEAD")
    (project.path / "value.py").write_text("VALUE = 2\n", encoding="utf-8")
    second = commit(project.path, "two")
    (project.path / "value.py").write_text("VALUE = 3\n", encoding="utf-8")
    (project.path / "untracked.py").touch()
    status = git(project.path, "status", "--porcelain")
    for ref, there, value in (("HEAD~1", first, 1), ("HEAD", second, 2)):
        found, text = recorded(project, T4, f"--remote-rev={ref}")
        assert found == there
        assert f"the value is {value}" in text
    changed, text = recorded(project, T4)
    assert changed.startswith(f"{second}-dirty-")
    assert "the value is 3" in text
    (project.path / "value.py").write_text("VALUE = 4\n", encoding="utf-8")
    again, text = recorded(project, T4)
    assert again.startswith(f"{second}-dirty-")
    assert again != changed
    assert "the value is 4" in text
    assert git(project.path, "status", "--porcelain") == status


@needs_git
def test_a_file_that_is_here_and_did_not_travel_is_named(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import pytest
        pytestmark = pytest.mark.gpu

        def test_data(): open("data/x.bin")
        def test_nowhere(): open("data/none.bin")
    """
    )
    result = run(project, T4)
    result.assert_outcomes(failed=2)
    glob = "git ignores it; to send it, add 'data/x.bin' to remotegpu_include"
    assert said(result).count(glob) == 1
    before, after = said(result).split("_ test_nowhere _", 1)
    assert glob in before
    assert "Missing on the far side" not in after
    run(project, T4, "-o", "remotegpu_include=data/*.bin", "-k", "data").assert_outcomes(passed=1)
