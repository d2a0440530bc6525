"""``--remote=ssh:HOST`` where something goes wrong: host, interpreter, connection, early end."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_remotegpu.protocol.hello import PROTOCOL, Hello
from session.running import Started, said, until
from sshd import Sshd

pytestmark = pytest.mark.usefixtures("lean")
HERE = ("-o", "remotegpu_collect=here")
"""Tests are known before anything goes wrong; of far collection its own tests know."""
BOX = ("--remote=ssh:gpubox", *HERE)
TESTS = """
    import pathlib
    import pytest

    @pytest.mark.gpu
    def test_far(): pass

    @pytest.mark.gpu(2)
    def test_two(): pass

    def test_here(): pathlib.Path("here.ran").touch()
"""


@dataclass(frozen=True)
class Unable:
    """An interpreter that can't serve.

    :ivar script: its text; ``None`` where there is no such file.
    :ivar said: patterns of what the session says of it.
    """

    script: str | None
    said: tuple[str, ...]


def greeting(**changes: object) -> str:
    """Give an interpreter that says a hello with something changed, and listens on."""
    body = json.dumps({**json.loads(Hello.here().encode()), "executable": "/far/python", **changes})
    frame = len(body).to_bytes(4, "big") + body.encode()
    return f"#!{sys.executable} -S\nimport os, sys\nos.write(1, {frame!r})\nsys.stdin.read()\n"


VERSION = re.escape(Hello.here().package)
UNABLE = {
    "missing": Unable(None, (r"No such file or directory", r"remotegpu_python")),
    "no executable": Unable("", (r"[Pp]ermission denied", r"remotegpu_python")),
    "without the package": Unable(
        f'#!/bin/sh\nexec {sys.executable} -S "$@"\n',
        (r"No module named '?pytest_remotegpu", rf"-m pip install pytest-remotegpu=={VERSION}"),
    ),
    "other Python": Unable(
        greeting(python="3.8"), (r"far Python is 3\.8 \(/far/python\)", r"remotegpu_python")
    ),
    "other pytest": Unable(
        greeting(pytest="7.4.4"), (r"far pytest is 7\.4\.4", r"/far/python -m pip install pytest==")
    ),
    "other protocol, no pytest": Unable(
        greeting(protocol=PROTOCOL + 1, pytest=""),
        (
            rf"speaks protocol {PROTOCOL + 1} ",
            r"/far/python -m pip install pytest-remotegpu==",
            r"/far/python -m pip install pytest==",
        ),
    ),
}


@pytest.mark.parametrize("name", UNABLE)
def test_an_unfit_interpreter_is_a_usage_error(
    name: str, gpubox: Sshd, pytester: pytest.Pytester, tmp_path: Path
) -> None:
    """Exit status 4 with the way out, before any test has run."""
    pytester.makepyfile(TESTS)
    python = tmp_path / "python"
    script = UNABLE[name].script
    if script is not None:
        python.write_text(script, encoding="utf-8")
        python.chmod(0o755 if script else 0o644)
    result = pytester.runpytest_inprocess(*BOX, "-o", f"remotegpu_python={python}")
    text = said(result)
    assert result.ret == pytest.ExitCode.USAGE_ERROR, text
    for pattern in UNABLE[name].said:
        assert re.search(pattern, result.stderr.str()), text
    assert "no tests ran" in text
    assert not Path("here.ran").exists()
    assert until(lambda: not gpubox.living(), 5)


@pytest.mark.parametrize(
    ("host", "why"),
    [("closedbox", "Connection refused"), ("strangebox", "Permission denied")],
)
def test_a_host_out_of_reach_is_an_error_for_each_of_its_tests(
    host: str, why: str, gpubox: Sshd, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(f"--remote=ssh:{host}", *HERE, "-rE")
    text = said(result)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=2)
    assert why in text
    summary = text.partition("remote summary")[2].partition("short test summary")[0]
    assert summary.count("cause: ") == 1
    assert summary.count(why) == 1
    assert gpubox.living() == []


def test_a_login_that_talks_is_named_as_the_cause(
    gpubox: Sshd, pytester: pytest.Pytester, tmp_path: Path
) -> None:
    """What a start-up file of the far shell prints comes before the hello."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho Welcome to gpubox\nexec {sys.executable} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(*BOX, "-o", f"remotegpu_python={python}")
    text = said(result)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=2)
    assert "Welcome to gpubox" in text
    assert until(lambda: not gpubox.living(), 5)


LONG = """
    import os
    import pathlib
    import subprocess
    import sys
    import time
    import pytest

    HOME = pathlib.Path(os.environ["HOME"], "{name}")

    @pytest.fixture(scope="module")
    def thing():
        yield
        (HOME / "torn-down").touch()

    @pytest.mark.gpu
    def test_before(thing): pass

    @pytest.mark.gpu
    def test_long(thing, tmp_path):
        deaf = "import signal, time; signal.signal(1, signal.SIG_IGN); time.sleep(600)"
        for new in (True, False):
            subprocess.Popen([sys.executable, "-c", deaf], start_new_session=new)
        again = (HOME / "has-begun").exists()
        (HOME / "has-begun").touch()
        while not again:
            time.sleep(0.02)

    @pytest.mark.gpu
    def test_after(thing): pass
"""


class Long(Started):
    """A session whose second test sleeps on the far side, with children that ignore a hang-up."""

    def __init__(self, gpubox: Sshd, pytester: pytest.Pytester) -> None:
        name = pytester.path.name
        self.there = gpubox.home / name
        self.there.mkdir()
        pytester.makepyfile(LONG.format(name=name))
        super().__init__(pytester, *BOX, "-v")
        assert until((self.there / "has-begun").exists), self.text
        assert until(lambda: len(gpubox.living()) >= 5)
        assert gpubox.leavings() != []

    def ssh(self) -> list[int]:
        """List the clients of this session."""
        return [p for p in self.living() if Path(f"/proc/{p}/comm").read_text() == "ssh\n"]


def gone(gpubox: Sshd) -> bool:
    """Whether nothing of this package is left there."""
    return not gpubox.living() and not gpubox.leavings()


def test_ctrl_c_tears_down_there_and_leaves_nothing(
    gpubox: Sshd, pytester: pytest.Pytester
) -> None:
    with Long(gpubox, pytester) as session:
        session.wait_for("::test_before PASSED")
        session.process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        assert session.end() == pytest.ExitCode.INTERRUPTED
        assert time.monotonic() - asked < 12
        assert until(lambda: gone(gpubox), 2), (gpubox.living(), gpubox.leavings())
        assert session.living() == []
        assert "::test_after" not in session.text
        assert re.search(r"1 passed in", session.text)
        assert (session.there / "torn-down").exists()


def test_a_killed_session_leaves_nothing_there(gpubox: Sshd, pytester: pytest.Pytester) -> None:
    with Long(gpubox, pytester) as session:
        session.process.kill()
        assert session.end() == -signal.SIGKILL
        assert until(lambda: gone(gpubox), 5), (gpubox.living(), gpubox.leavings())
        assert until(lambda: not session.living(), 5)


def test_a_lost_connection_costs_one_retry(gpubox: Sshd, pytester: pytest.Pytester) -> None:
    """The far side ends what ran there; the test runs once more over a new connection."""
    with Long(gpubox, pytester) as session:
        [client] = session.ssh()
        os.kill(client, signal.SIGKILL)
        assert session.end() == pytest.ExitCode.OK, session.text
        assert until(lambda: gone(gpubox), 5), (gpubox.living(), gpubox.leavings())
        assert re.search(r"3 passed in", session.text)
        assert "was lost" in session.text
        assert session.text.count("::test_long PASSED") == 1
