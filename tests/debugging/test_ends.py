"""What ends while somebody sits at the prompt of a shipped test, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from sshd import Sshd
from warmth import Warmth

from .project import CPU, seated, write
from .seat import PROMPT, Seat

STOPS = """
    import os
    import subprocess
    import time
    import pytest

    @pytest.mark.gpu
    def test_stops():
        child = subprocess.Popen(["sleep", "600"])
        breakpoint()
        child.kill()
        child.wait()

    @pytest.mark.gpu
    def test_after():
        pass
"""


def begin(project: Path, where: str = CPU, *args: str) -> Seat:
    """Bring a session to its prompt."""
    write(project, STOPS)
    seat = seated(project, where, *args)
    seat.expect(PROMPT)
    return seat


def test_a_session_that_is_killed(project: Path, warm_home: Warmth) -> None:
    """Not even its children's children are left."""
    with begin(project) as seat:
        child = int(seat.ask("p child.pid"))
        assert not warm_home.is_tidy(within=0.2)
        seat.process.kill()
        seat.process.wait()
        assert warm_home.is_tidy()
        assert not Path(f"/proc/{child}").exists()


def test_a_session_whose_terminal_is_closed(project: Path, warm_home: Warmth) -> None:
    with begin(project) as seat:
        seat.hang_up()
        assert seat.process.wait(20) == pytest.ExitCode.INTERRUPTED
        assert warm_home.is_tidy()


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-\\"])
def test_a_session_that_is_ended(how: str, project: Path, warm_home: Warmth) -> None:
    """At once, as by Ctrl-C; the terminal is as it was."""
    with begin(project) as seat:
        if how == "SIGTERM":
            os.kill(seat.process.pid, signal.SIGTERM)
        else:
            seat.type("\x1c")
        assert seat.end() == pytest.ExitCode.INTERRUPTED, seat.text
    assert "KeyboardInterrupt" in seat.text
    assert warm_home.is_tidy()


def test_a_process_that_ends_at_the_prompt(project: Path, warm_home: Warmth) -> None:
    """Its test has crashed, and the next one runs in another process."""
    with begin(project) as seat:
        seat.type("os._exit(3)\r")
        assert seat.end() == pytest.ExitCode.TESTS_FAILED, seat.text
    assert "ended with exit status 3 while the test ran" in seat.text
    assert seat.last_line == "1 failed, 1 passed"
    assert warm_home.is_tidy()


def test_a_run_that_reaches_its_limit(project: Path, warm_home: Warmth) -> None:
    """What a run may take and cost holds at a prompt, too."""
    with begin(project, CPU, "--remote-run-timeout=3") as seat:
        assert seat.end() == pytest.ExitCode.TESTS_FAILED, seat.text
    assert "the run limit of 3 s" in seat.text
    assert warm_home.is_tidy()


SLOW = """
    import time
    import pytest

    @pytest.mark.gpu
    def test_slow():
        rest = 0
        breakpoint()
        time.sleep(rest)
"""


@pytest.mark.parametrize("rest", [0, 60])
def test_no_time_passes_at_the_prompt(rest: int, project: Path) -> None:
    """The test's limit holds before and after it."""
    write(project, SLOW)
    with seated(project, CPU, "--remote-timeout=1.5") as seat:
        seat.expect(PROMPT)
        assert seat.ask(f"rest = {rest}; time.sleep(2.5)") == ""
        seat.type("c\r")
        assert seat.end() == bool(rest), seat.text
    assert seat.last_line == ("1 failed" if rest else "1 passed")
    assert ("timed out: the test took longer than 1.5 s" in seat.text) == bool(rest)


def test_over_ssh(project: Path, gpubox: Sshd) -> None:
    """The same prompt, on another host."""
    with begin(project, "--remote=ssh:gpubox") as seat:
        assert seat.ask("p os.environ['TERM']") == "'xterm'"
        seat.type("p 'ab'\x1b[D\x1b[Dx\x05 + 'c'\r")
        assert seat.expect(PROMPT).strip().endswith("'axbc'")
        assert gpubox.living()
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "2 passed"


def test_a_connection_that_breaks(project: Path, gpubox: Sshd) -> None:
    """The test has no verdict and is tried once more, on a new worker, whose prompt comes then."""
    with begin(project, "--remote=ssh:gpubox") as seat:
        for pid in gpubox.living():
            os.kill(pid, signal.SIGKILL)
        assert "test_stops on ssh-2" in seat.expect(PROMPT)
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "2 passed"


def test_a_session_over_ssh_that_is_killed(project: Path, gpubox: Sshd) -> None:
    with begin(project, "--remote=ssh:gpubox") as seat:
        seat.process.kill()
        seat.process.wait()
        seat.settle(lambda: not gpubox.living())
