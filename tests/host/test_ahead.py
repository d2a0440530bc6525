"""A worker that is asked for before it is needed: there in time, never in vain, never left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session.running import CPU, Started, run, said, until
from warmth import Warmth, descendants

pytestmark = [
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(sys.platform != "linux", reason="warm processes need Linux"),
]

FAR = """
    import os
    import pytest

    @pytest.mark.gpu
    def test_far():
        parts = os.environ["REMOTEGPU_WORKER"], os.environ.get("COLOUR")
        print("RUNS WITH", *parts)
"""
HERE = "def test_here(): pass\n"
WATCHES = """
    import os, pathlib, time
    from pytest_remotegpu import agents

    HERE = "REMOTEGPU_WORKER" not in os.environ

    def workers():
        return [worker["pid"] for agent in agents.find(os.environ) for worker in agent.workers]

    def pytest_sessionstart():
        end = time.monotonic() + 10
        while HERE and not workers() and time.monotonic() < end:
            time.sleep(0.01)
        if HERE:
            pathlib.Path("EARLY").write_text(" ".join(map(str, workers())))
"""
"""A conftest that waits for a worker before anything is collected, and notes which there is."""


@pytest.fixture
def warm(pytester: pytest.Pytester, home: Warmth) -> Warmth:
    """Have the agent keep ready all that a session would like."""
    pytester.makepyfile(test_far=FAR)
    assert run(pytester, CPU).ret == 0
    agent = home.agent  # who is asked all the time has no time to make anything ready
    assert until(lambda: [_has_more(pid) for pid in descendants(agent)] == [True], 30.0)
    (found,) = home.ask("ps")["zygotes"]
    assert found["about"].startswith("warm")
    return home


def _has_more(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"--preload=\0" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_it_is_there_before_anything_is_collected(pytester: pytest.Pytester, warm: Warmth) -> None:
    pytester.makeconftest(
        WATCHES
        + """
    def pytest_runtest_logreport():
        if HERE:  # it is still there: the far side says how it ended after its tests only
            pathlib.Path("SERVES").write_text(" ".join(map(str, workers())))
"""
    )
    result = run(pytester, CPU, "-x")
    assert result.ret == 0, said(result)
    (early,) = Path("EARLY").read_text().split()
    assert Path("SERVES").read_text() == early
    assert warm.is_tidy()
    assert warm.log() == ""


def test_nobody_needs_it(pytester: pytest.Pytester, warm: Warmth) -> None:
    """It is gone before the first test runs, and not a word is said of it."""
    Path("test_far.py").unlink()
    pytester.makeconftest(
        WATCHES
        + """
    def pytest_runtest_setup():
        end = time.monotonic() + 5
        while workers() and time.monotonic() < end:
            time.sleep(0.01)
        assert not workers()
"""
    )
    pytester.makepyfile(test_here=HERE)
    result = run(pytester, CPU)
    text = said(result)
    assert result.ret == 0, text
    assert Path("EARLY").read_text()
    lines = [line for line in text.splitlines() if line.startswith("remote")]
    assert [line.partition(",")[0] for line in lines] == ["remote: local:cpu", "remote: 1 here"]
    assert warm.is_tidy()
    assert warm.log() == ""


def test_a_session_that_is_refused(pytester: pytest.Pytester, warm: Warmth) -> None:
    pytester.makeconftest(WATCHES)
    result = run(pytester, CPU, "--pdb")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "need a terminal" in said(result)
    assert warm.is_tidy()
    assert warm.log() == ""


def test_one_that_is_killed(pytester: pytest.Pytester, warm: Warmth) -> None:
    pytester.makeconftest(WATCHES + "        time.sleep(60)\n")
    with Started(pytester, CPU) as session:
        assert until(Path("EARLY").exists)
        assert until(lambda: bool(warm.ask("ps")["workers"]))
        (worker,) = warm.ask("ps")["workers"]
        os.kill(int(worker["client"]), signal.SIGKILL)
        session.end()
    assert warm.is_tidy()
    assert warm.log() == ""


def test_a_hook_changes_what_was_asked_for(pytester: pytest.Pytester, warm: Warmth) -> None:
    """Then another worker is asked for; its tests see what the hook has made of it."""
    pytester.makeconftest(
        WATCHES
        + """
    def pytest_remotegpu_environment(environment):
        environment["COLOUR"] = "green"
"""
    )
    result = run(pytester, CPU, "-rP")
    assert result.ret == 0, said(result)
    assert "RUNS WITH local-1 green" in said(result)
    assert Path("EARLY").read_text()
    assert warm.is_tidy()


class Listener:
    """Stands in the place of an agent, and refuses what it is asked.

    :ivar heard: what that was.
    """

    def __init__(self, path: Path) -> None:
        self.heard: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, connection.makefile("rwb") as stream:
                    self.heard.append(json.loads(stream.readline()))
                    stream.write(b'{"error": "nothing is ready for that"}\n')

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener(pytester: pytest.Pytester, home: Warmth) -> Iterator[Listener]:
    pytester.makepyfile(test_far=FAR)
    assert run(pytester, CPU).ret == 0
    (path,) = home.sockets
    home.ask("stop")
    assert until(lambda: not path.exists(), 10.0)
    made = Listener(path)
    yield made
    made.close()
    path.unlink()


QUIET = {
    "collects": ["--collect-only", CPU],
    "helps": ["--help", CPU],
    "names its version": ["--version", CPU],
    "shows markers": ["--markers", CPU],
    "shows fixtures": ["--fixtures", CPU],
    "plans": ["--remote-plan", CPU],
    "is fresh": ["--remote-fresh", CPU],
    "misspells": ["--remote=local:cp"],
    "has no far side": ["-k", "none"],
}


@pytest.mark.parametrize("args", QUIET.values(), ids=QUIET)
def test_a_session_that_asks_for_none(
    args: list[str], pytester: pytest.Pytester, listener: Listener
) -> None:
    said(run(pytester, *args))
    assert not listener.heard


def test_an_agent_that_has_nothing_ready_is_asked_again(
    pytester: pytest.Pytester, listener: Listener
) -> None:
    result = run(pytester, CPU)
    assert result.ret == 0, said(result)
    first, second = listener.heard
    assert first.pop("ahead")
    assert "ahead" not in second
    assert first | {"about": second["about"]} == second


def test_a_zygote_is_started_for_nobody(pytester: pytest.Pytester, home: Warmth) -> None:
    """What is asked for ahead comes from what is warm; else the session asks once it has to."""
    pytester.makepyfile(test_far=FAR)
    assert run(pytester, CPU).ret == 0
    before = home.zygotes()
    Path("test_far.py").unlink()
    pytester.makepyfile(test_here=HERE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "7")  # no zygote has that
        assert run(pytester, CPU).ret == 0
    assert set(home.zygotes()) <= set(before) | set(_later(home, before))
    assert home.is_tidy()


def _later(home: Warmth, before: list[int]) -> list[int]:
    """List zygotes that import more for the first session, which may be there by now."""
    return [pid for pid in home.zygotes() if pid not in before and _has_more(pid)]
