"""Builds of images as a user sees them: what is said, when, and what of it with ``-q``."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from loopback import LoopbackModal
from session.running import Started, run, said, until

T4 = ("--remote=modal:T4", "-o", "remotegpu_collect=here")
ONE = "import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n"
STEP = "uv pip install"
SLOW = 4.0


def test_lines_come_while_it_builds(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step as it begins, and where one is silent, at intervals how long it has taken."""
    service.faults.slow_build = {STEP: SLOW}
    monkeypatch.setenv("REMOTEGPU_PROGRESS", "1")
    pytester.makepyfile(ONE)
    with Started(pytester, *T4) as session:
        assert session.end() == 0
        text = session.text
        step, built = session.at(STEP), session.at("deployed rgpu-")
        assert text.index("builds rgpu-") < text.index(STEP)  # perhaps read at one go
        assert session.at("builds rgpu-") <= step < built - SLOW / 2
        ticks = [line for line in text.splitlines() if "builds the image (" in line]
        assert len(ticks) >= 2
        assert step < session.at(ticks[0]) <= session.at(ticks[1]) <= built
        assert all(line.startswith("remote: builds the image (") for line in ticks)
        seconds = [int(line.partition("(")[2].partition(" s)")[0]) for line in ticks]
        assert seconds == sorted(set(seconds))
        assert "\r" not in text.replace("\r\n", "\n")
        assert "\x1b" not in text


def test_quiet_says_why_and_no_more(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.faults.slow_build = {STEP: SLOW / 2}
    monkeypatch.setenv("REMOTEGPU_PROGRESS", "0.5")
    pytester.makepyfile(ONE)
    text = said(run(pytester, *T4, "-q"))
    assert "1 passed" in text
    assert "builds rgpu-" in text
    assert "builds the image" not in text
    assert STEP not in text


def test_a_failing_build_shows_its_last_lines_even_then(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    service.faults.build_failure = "no such package: flosh-attn"
    pytester.makepyfile(ONE)
    result = run(pytester, *T4, "-q")
    result.assert_outcomes(errors=1)
    assert "no such package: flosh-attn" in said(result)


def test_an_interval_that_is_none(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOTEGPU_PROGRESS", "often")
    pytester.makepyfile(ONE)
    result = run(pytester, *T4)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*REMOTEGPU_PROGRESS='often' is no number of seconds*"])
    assert not service.calls


# how long it takes


def start_of(pytester: pytest.Pytester, record: Path) -> dict[str, float]:
    """Run with a record, and give the seconds of each phase of the worker."""
    result = run(pytester, *T4, f"--remote-json={record}", "--remote-timeline")
    result.assert_outcomes(passed=1)
    data = json.loads(record.read_text())
    assert [each["name"] for each in data["phases"]["here"]] == ["collection here", "snapshot"]
    (worker,) = data["workers"]
    for each in worker["phases"]:
        row = f"{worker['name']} *{each['start']:.3f} s *{each['seconds']:.3f} s  {each['name']}"
        result.stdout.fnmatch_lines_random([row])
    return {each["name"]: each["seconds"] for each in worker["phases"]}


def test_each_part_of_a_start_is_measured_apart(
    pytester: pytest.Pytester, service: LoopbackModal, tmp_path: Path
) -> None:
    """In the second session, which finds all that, they are 0 or left out."""
    service.faults.slow_build = {STEP: 2.0}
    service.faults.start_delay = 1.5
    pytester.makepyfile(ONE)
    pytester.makeini("[pytest]\nremotegpu_exclude = std*\n")  # where the session's own words go
    cold = start_of(pytester, tmp_path / "run.json")
    assert cold["image and app"] >= 2.0
    assert cold["container start"] >= 1.5
    assert cold["files"] > 0
    assert {"service", "hello", "process", "files and their imports", "tests"} <= set(cold)
    warm = start_of(pytester, tmp_path / "run.json")
    assert "image and app" not in warm
    assert "files" not in warm
    assert warm["container start"] == 0
    assert {"service", "hello", "process", "files and their imports", "tests"} <= set(warm)


# ends in the midst of it


def couriers(session: Started) -> list[int]:
    """List the couriers of a session, which is gone or not."""
    return [
        pid
        for pid in session.living()
        if b"modal.courier" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("ephemeral", [False, True], ids=["deployed", "ephemeral"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_who_ends_a_session_that_builds_waits_for_nothing(
    pytester: pytest.Pytester,
    service: LoopbackModal,
    monkeypatch: pytest.MonkeyPatch,
    how: signal.Signals,
    ephemeral: bool,
) -> None:
    """Neither processes, nor locks, nor files of it stay, and the next session builds."""
    caches, temporary = pytester.mkdir("caches"), pytester.mkdir("temporary")
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    monkeypatch.setenv("TMPDIR", str(temporary))
    service.faults.slow_build = {STEP: 300.0}
    pytester.makepyfile(ONE)
    with Started(pytester, *T4, *["--remote-ephemeral"] * ephemeral) as session:
        session.wait_for(STEP)
        session.process.send_signal(how)
        assert until(lambda: session.process.poll() is not None, 12)
        assert until(lambda: not session.living(), 8)
        session.end()
        text = session.text
    if how != signal.SIGKILL:
        assert "was still being built: no machine is rented" in text
        assert "left running: nothing" in text
    assert list(caches.glob("pytest-remotegpu/deploying/*")) == []
    assert not list(temporary.glob("remotegpu-*"))
    assert not service.calls
    if ephemeral and how != signal.SIGKILL:
        assert not any(app.live for app in service.apps)


def test_couriers_that_are_killed_while_they_build_leave_no_lock(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """The next session finds none in its way; what is said of them is tested with couriers."""
    service.faults.slow_build = {STEP: SLOW}
    pytester.makepyfile(ONE)
    with Started(pytester, *T4) as session:
        session.wait_for(STEP)
        (courier,) = couriers(session)
        os.kill(courier, signal.SIGKILL)
        assert until(lambda: session.text.count(STEP) == 2), session.text
        (courier,) = couriers(session)
        os.kill(courier, signal.SIGKILL)
        assert session.end() == 1
        assert "left running: nothing" in session.text
    run(pytester, *T4).assert_outcomes(passed=1)
    assert len(service.deploys) == 1
