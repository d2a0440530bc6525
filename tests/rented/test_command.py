"""The command remotegpu sees what a session has at Modal, and ends that and nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import modal
import pytest

from loopback import LoopbackModal
from session.running import LONG, Started, run, said, until

ROOT = Path(__file__).parents[2]
T4 = "--remote=modal:T4"


def remotegpu(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_remotegpu", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_a_session_is_seen_and_ended(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    modal.App("rgpu-of-somebody-else", include_source=False).deploy(name="rgpu-of-somebody-else")
    mark = pytester.path / "has-begun"
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(mark)!r})"))
    session = Started(pytester, T4)
    assert until(mark.exists)
    seen = remotegpu("ps")
    (ours,) = re.findall(r"\S*rgpu-[0-9a-f]{12}\S*(?=,)", seen)
    assert "somebody-else" not in seen
    assert "left alone" in remotegpu("stop")
    assert session.process.poll() is None
    remotegpu("stop", ours)
    assert session.process.wait(40) == 1
    living = [app.name for app in service.apps if not app.stopped_at]
    assert living == ["rgpu-of-somebody-else"]
    session.end()
    assert "ended without an answer" in session.text


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["in order", "kill -9", "Ctrl-C while it builds"])
def test_after_a_session_nothing_is_called_in_use(
    pytester: pytest.Pytester, service: LoopbackModal, how: str
) -> None:
    """What counts is said: whether a container is up, which is paid for."""
    mark = pytester.path / "has-begun"
    pytester.makeini("[pytest]\nremotegpu_idle = 12\n")
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(mark)!r})"))
    if "builds" in how:
        service.faults.slow_build = {"uv pip install": 300.0}
    with Started(pytester, T4, *["-k", "before"] * (how == "in order")) as session:
        if how == "kill -9":
            assert until(mark.exists)
            session.process.send_signal(signal.SIGKILL)
        elif "builds" in how:
            session.wait_for("uv pip install")
            session.process.send_signal(signal.SIGINT)
        session.end()
    if how == "in order":
        assert "1 container is up, at work or kept warm: paid for\n" in remotegpu("ps")
        told = remotegpu("stop")
        assert "was left alone: 1 container is up, at work or kept warm: paid for; --all" in told
    service.wait_until(lambda: not service.running, 60)
    seen = remotegpu("ps")
    assert "no container is up: nothing is paid for, it " in seen
    assert "in use" not in seen
    assert ("a deployment that is not complete, https://" in seen) == ("builds" in how)
    told = remotegpu("stop")
    assert re.search(
        r"^modal:\S+ was left alone: no container is up: .*; --all", told, re.MULTILINE
    )


def the_command() -> str:
    """Give the very command with which the workflow ends what is left."""
    text = (ROOT / ".github" / "workflows" / "gpu-tests.yml").read_text(encoding="utf-8")
    _, _, step = text.partition("- name: End what is left\n")
    found = re.search(r"^        run: (.*)$", step, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.timeout(180)
def test_the_workflow_ends_what_a_killed_session_has_left(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session and its courier are killed; its app goes by the run's id, another run's stays."""
    sessions = []
    for name in ("github-1-1-3.11", "github-1-1-3.12"):
        monkeypatch.setenv("PYTEST_REMOTEGPU_RUN", name)
        folder = pytester.mkdir(name)
        mark = folder / "begun"
        (folder / "test_it.py").write_text(
            textwrap.dedent(LONG).replace('Path("has-begun")', f"Path({str(mark)!r})")
        )
        sessions.append(Started(pytester, folder, f"--rootdir={folder}", T4, "--remote-ephemeral"))
        assert until(mark.exists), sessions[-1].text
    assert len([app for app in service.apps if app.live]) == 2
    seen = remotegpu("ps")
    assert re.findall(r"modal:ap-\w+, a session's own, run (\S+), https://", seen) == [
        "github-1-1-3.11",
        "github-1-1-3.12",
    ]
    sessions[0].close()
    monkeypatch.setenv("PYTEST_REMOTEGPU_RUN", "github-1-1-3.11")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = subprocess.run(
        ["/usr/bin/env", "bash", "-e", "-c", the_command()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"modal:ap-\w+ has ended\n", done.stdout)
    (living,) = [app for app in service.apps if app.live]
    assert living.tags["pytest-remotegpu-run"] == "github-1-1-3.12"
    assert sessions[1].process.poll() is None
    assert "nothing that belongs to run github-1-1-3.11 alone is left" in remotegpu(
        "stop", "--run", "github-1-1-3.11"
    )
    sessions[1].close()


def test_an_id_that_can_not_be_a_tag(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_REMOTEGPU_RUN", "a/b")
    pytester.makepyfile(LONG)
    result = run(pytester, T4)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "PYTEST_REMOTEGPU_RUN='a/b' can't be a tag at Modal" in said(result)
    assert service.apps == []


@pytest.mark.parametrize("run_id", ["", "a b", "a/b", "é", "x" * 64])
def test_no_run_is_called_ended_that_none_can_be(run_id: str) -> None:
    told = remotegpu("stop", f"--run={run_id}")
    assert f"--run={run_id!r} is no id of a run" in told
    assert "is a variable unset in the command?" in told
    assert "is left" not in told


def test_a_run_beside_all_is_refused() -> None:
    assert "--run=ci-1 names what to end; give neither" in remotegpu("stop", "--run=ci-1", "--all")
