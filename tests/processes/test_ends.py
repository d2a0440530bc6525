"""``-n N`` together with ``--remote``: what is told to end, and what is killed.

Real processes and signals; what must not be left is looked for in the whole system.
"""

from __future__ import annotations

import re
import signal
import sys
import time

import pytest

from session.running import CPU, LONG, Started, until
from warmth import Warmth

from .test_sessions import SECTION, cases

pytest.importorskip("xdist")

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupt_keeps_what_arrived_and_leaves_nothing(
    number: signal.Signals, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_it=LONG)
    with Started(pytester, CPU, "--remote-fresh", "-n1", "-v", "--junitxml=j.xml") as session:
        assert until((pytester.path / "has-begun").exists), session.text
        session.wait_for("PASSED test_it.py::test_before")
        session.process.send_signal(number)
        assert session.end() == pytest.ExitCode.INTERRUPTED
        assert until(lambda: not session.living(), 5), session.living()
        text = session.text
    assert "INTERNALERROR" not in text
    assert "1 passed" in text
    assert "::test_after" not in text
    assert list(cases(pytester.path / "j.xml")) == ["test_it::test_before"]
    assert (pytester.path / "torn-down").exists()
    assert len(re.findall(SECTION.format("remote summary"), text, re.MULTILINE)) == 1
    assert re.search(r"^1 GPU   1 worker   1 test ", text, re.MULTILINE)


DEAF = """
    import pathlib
    import time
    import pytest

    @pytest.mark.gpu
    @pytest.mark.parametrize("n", range(2))
    def test_deaf(n):
        pathlib.Path(f"has-begun-{n}").touch()
        while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass
"""


def both_begun(pytester: pytest.Pytester) -> bool:
    return all((pytester.path / f"has-begun-{n}").exists() for n in range(2))


@linux
def test_a_second_interrupt_ends_at_once(pytester: pytest.Pytester) -> None:
    """Also where it comes to the user's process alone, as from an editor's stop button."""
    one_here = "[pytest.param(0, marks=pytest.mark.gpu), 1]"
    project = DEAF.replace("    @pytest.mark.gpu\n", "").replace("range(2)", one_here)
    pytester.makepyfile(test_it=project)
    with Started(pytester, CPU, "--remote-fresh", "-n2", "--junitxml=j.xml") as session:
        assert until(lambda: both_begun(pytester)), session.text
        session.process.send_signal(signal.SIGINT)
        time.sleep(1.5)  # the processes would take it for the same within the first second
        session.process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        assert session.end() == pytest.ExitCode.INTERRUPTED
        assert time.monotonic() - asked < 10  # the processes would have had fifteen
        assert until(lambda: not session.living(), 5), session.living()
    # pytest-xdist leaves an empty case for a local test that it has begun
    assert set(cases(pytester.path / "j.xml")) <= {"None::None"}


@linux
def test_a_session_that_is_killed_keeps_no_warm_worker(
    pytester: pytest.Pytester, warm_home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI")
    pytester.makepyfile(test_it=DEAF)
    with Started(pytester, CPU, "-n2") as session:
        assert until(lambda: both_begun(pytester)), session.text
        assert len(warm_home.ask("ps")["workers"]) == 2
        session.process.kill()
        assert session.end() == -signal.SIGKILL
        assert warm_home.is_tidy()


@linux
def test_a_session_that_is_killed_leaves_nothing_behind(pytester: pytest.Pytester) -> None:
    """Its processes notice that nobody hands them tests any more."""
    pytester.makepyfile(test_it=DEAF)
    with Started(pytester, CPU, "--remote-fresh", "-n2") as session:
        assert until(lambda: both_begun(pytester)), session.text
        assert len(session.living()) > 5
        session.process.kill()
        assert session.end() == -signal.SIGKILL
        assert until(lambda: not session.living(), 5), session.living()


@linux
@pytest.mark.parametrize("times", [1, 2])
def test_processes_that_ship_nothing_end_as_they_would_anyhow(
    times: int, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_it=LONG.replace("@pytest.mark.gpu", ""))
    with Started(pytester, CPU, "-n2", "-v", "--junitxml=j.xml") as session:
        assert until((pytester.path / "has-begun").exists), session.text
        for _ in range(times):
            session.process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert session.end() == pytest.ExitCode.INTERRUPTED
        assert until(lambda: not session.living(), 5), session.living()
    assert "INTERNALERROR" not in session.text
    assert (pytester.path / "torn-down").exists() or times == 2
