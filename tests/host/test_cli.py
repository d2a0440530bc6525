"""The command ``remotegpu`` beside real sessions: what it lists, what it ends, what it prints."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cardfile
from cardfile import GIB, fake_card
from pytest_remotegpu import locks
from session.running import CPU, Started, run, until
from warmth import Warmth, alive, descendants

from .conftest import HOLDS

pytestmark = pytest.mark.usefixtures("home")

TRIVIAL = """
    import pytest

    @pytest.mark.gpu
    def test_far(): pass
"""


@pytest.fixture
def warm(pytester: pytest.Pytester, home: Warmth) -> Warmth:
    """An agent that has served a session."""
    pytester.makepyfile(test_far=TRIVIAL)
    assert run(pytester, CPU).ret == 0
    assert home.is_tidy()
    return home


def command(*words: str, status: int = 0) -> str:
    """Run the command, and give what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest_remotegpu", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    assert "Traceback" not in said
    return said


def data(*words: str, status: int = 0) -> dict[str, Any]:
    """Run the command with ``--json``."""
    found: dict[str, Any] = json.loads(command(*words, "--json", status=status))
    return found


def test_where_nothing_runs() -> None:
    assert "no agent runs for this user\n" in command("ps")
    assert command("stop") == "no agent runs for this user\n"
    assert command("logs") == "no agent of this user has left a log\n"
    assert data("ps")["agents"] == []


def test_an_agent_at_rest(warm: Warmth) -> None:
    agent, zygote = warm.agent, warm.zygotes()[0]
    text = command("ps")
    assert f"agent {agent}, {sys.executable}, for " in text
    assert "ends after 10 min 0 s idle" in text
    assert f"  zygote {zygote}: " in text
    (found,) = data("ps")["agents"]
    assert (found["agent"], found["state"], found["workers"]) == (agent, "serves", [])
    assert found["socket"] == str(warm.sockets[0])
    assert found["stale"] is False
    everybody = [agent, *descendants(agent)]
    assert command("stop") == f"agent {agent} has ended\n"
    assert not any(map(alive, everybody))
    assert warm.sockets == []


def test_an_agent_at_work_is_ended_only_if_that_is_meant(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_far=HOLDS)
    with Started(pytester, CPU) as session:
        assert until(Path("BEGUN").exists)
        (found,) = data("ps")["agents"]
        (worker,) = found["workers"]
        assert worker["client"] == session.process.pid
        line = f"  worker {worker['pid']} for session {session.process.pid}, for "
        (shown,) = (text for text in command("ps").splitlines() if text.startswith(line))
        assert shown.endswith(f": 1 GPU, {pytester.path}")
        agent = found["agent"]
        said = f"agent {agent} was left alone: it has 1 worker for running sessions; --all ends"
        assert command("stop", status=1).startswith(said)
        assert alive(agent)
        Path("GO").touch()
        assert session.end() == 0
        assert until(lambda: not data("ps")["agents"][0]["workers"])
        Path("GO").unlink()
        Path("BEGUN").unlink()
    with Started(pytester, CPU) as session:
        assert until(Path("BEGUN").exists)
        agent = data("ps")["agents"][0]["agent"]
        everybody = [agent, *descendants(agent)]
        said = f"agent {agent} has ended, and with it 1 worker for running sessions\n"
        assert command("stop", "--all") == said
        assert not any(map(alive, everybody))
        Path("GO").touch()  # the test is tried once more, by another agent
        assert session.end() == 0


def test_a_killed_agent_leaves_a_socket(warm: Warmth) -> None:
    agent = warm.agent
    (path,) = warm.sockets
    os.kill(agent, signal.SIGKILL)
    assert until(lambda: not alive(agent))
    assert f"agent is dead: {path} is left of it" in command("ps")
    assert data("ps")["agents"][0]["state"] == "dead"
    assert warm.sockets == [path]
    assert command("stop") == f"{path}, left of a dead agent, was removed\n"
    assert warm.sockets == []


def test_a_silent_agent_is_killed_with_a_word(pytester: pytest.Pytester, home: Warmth) -> None:
    pytester.makepyfile(test_far=HOLDS)
    with Started(pytester, CPU) as session:
        assert until(Path("BEGUN").exists)
        agent = home.agent
        (worker,) = data("ps")["agents"][0]["workers"]
        os.kill(agent, signal.SIGSTOP)
        (found,) = data("ps", status=1)["agents"]
        assert (found["state"], found["agent"]) == ("silent", agent)
        assert [one["pid"] for one in found["workers"]] == [worker["pid"]]
        text = command("stop")
        assert f"agent {agent} does not answer and is killed\n" in text
        assert f"agent {agent} has ended, and with it 1 worker" in text
        assert not alive(agent)
        assert home.sockets == []
        assert until(lambda: not alive(int(worker["pid"])))
        Path("GO").touch()
        assert session.end() == 0


def test_logs(warm: Warmth) -> None:
    log = warm.sockets[0].with_suffix(".log")
    assert command("logs") == f"==> {log} <==\nnothing to tell\n"
    log.write_text("".join(f"line {number}\n" for number in range(30)))
    text = command("logs")
    assert text.startswith(f"==> {log} <==\nline 10\n")
    assert text.endswith("line 29\n")
    assert command("logs", "-n", "2") == f"==> {log} <==\nline 28\nline 29\n"
    assert "invalid" in command("logs", "-n", "0", status=2)
    command("stop")
    assert command("logs", "-n", "1") == f"==> {log} <==\nline 29\n"  # it may say why it ended


def test_logs_are_followed(home: Warmth) -> None:
    folder = home.runtime / "pytest-remotegpu"
    folder.mkdir(mode=0o700)
    log = folder / "0123456789ab.log"  # no agent writes into it
    log.write_text("first\n")
    shown = home.runtime / "shown.txt"
    words = [sys.executable, "-m", "pytest_remotegpu", "logs", "-f"]
    with shown.open("wb") as out:
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}  # each line is there at once
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environ)
    text = f"==> {log} <==\nfirst\n"
    try:
        assert until(lambda: shown.read_text() == text), shown.read_text()
        with log.open("a") as more:
            more.write("second\n")
        text += "second\n"
        assert until(lambda: shown.read_text() == text), shown.read_text()
        log.write_text("anew\n")
        text += "anew\n"
        assert until(lambda: shown.read_text() == text), shown.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert shown.read_text() == text
    finally:
        process.kill()
        process.wait()


# cards

TORCH = """
__version__ = "9.9.0"
class version: cuda, hip = {cuda!r}, None
class cuda:
    is_available = staticmethod(lambda: {cuda!r} is not None)
    get_arch_list = staticmethod(lambda: ["sm_90"])
    class nccl: version = staticmethod(lambda: (2, 27, 5))
class distributed: is_available = is_nccl_available = staticmethod(lambda: {cuda!r} is not None)
"""


@pytest.fixture
def torch_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Give the command a torch that is built for a CUDA, or for none, and quickly imported."""
    folder = tmp_path / "torch"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)

    def make(cuda: str | None) -> None:
        (folder / "torch.py").write_text(TORCH.format(cuda=cuda))

    make(None)
    return make


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of cards that the command sees."""
    path = tmp_path / "cards.json"
    for name, value in cardfile.environment(path).items():
        monkeypatch.setenv(name, value)
    return path


def test_cards_and_their_holders(host: Path, torch_for: Callable[[str | None], None]) -> None:
    own = os.getpid()
    free, held = fake_card(os.getpid() * 10), fake_card(os.getpid() * 10 + 1)
    held["processes"] = [[own, 3 * GIB]]
    free["processes"] = [[own, GIB]]
    held["used"] = 4 * GIB
    cardfile.write_cards(host, [free, held])
    locks.FOLDER.mkdir(exist_ok=True)
    locks.FOLDER.chmod(0o1777)
    path, wanted = locks.file_of(held["uuid"]), locks.file_of(held["uuid"], locks.WANTED)
    with path.open("w") as lease, wanted.open("w") as wish:
        fcntl.flock(lease, fcntl.LOCK_EX)
        fcntl.flock(wish, fcntl.LOCK_SH)
        text = command("ps")
        first, second = data("ps")["cards"]
        torch_for("13.0")
        diagnosis = command("doctor")
    path.unlink()
    wanted.unlink()
    assert f"card 1, NVIDIA H200 ({held['uuid'][:12]}), 4.0 of 140.5 GiB in use\n" in text
    assert f"  leased by process {own} of " in text
    assert f"  wanted by process {own} of " in text
    assert f"  used without a lease by process {own} of " in text
    assert text.count("used without a lease") == 1
    assert second["lease"] == {"held": True, "by": [own], "wanted_by": [own]}
    assert [user["pid"] for user in second["tenants"]] == [own]
    assert (second["strangers"], first["lease"]["held"]) == ([], False)
    assert [user["pid"] for user in first["strangers"]] == [own]
    assert "warn  card " in diagnosis
    assert "-> a lease can't keep such a process away" in diagnosis


def test_free_cards_and_broken_ones(host: Path) -> None:
    cardfile.write_cards(host, [fake_card(os.getpid())])
    assert "GiB in use\n  free\n" in command("ps")
    cardfile.write_cards(host, [], broken="Driver/library version mismatch")
    assert "no card: NVIDIA's management library can't be used: Driver/lib" in command("ps")


# doctor


def test_doctor_of_a_healthy_host(host: Path, torch_for: Callable[[str | None], None]) -> None:
    cardfile.write_cards(host, [fake_card(os.getpid()), fake_card(1 + os.getpid())])
    torch_for("13.0")
    text = command("doctor")
    assert f"ok    pytest            {pytest.__version__}\n" in text
    assert "ok    torch             9.9.0, built for CUDA 13.0\n" in text
    assert "ok    nccl              2.27.5\n" in text
    assert text.splitlines()[-1].startswith("0 FAIL, ")
    found = data("doctor")
    assert found["wrong"] == 0
    assert {"name", "state", "text", "fix"} == set(found["checks"][0])


def test_doctor_of_a_host_whose_torch_is_for_the_cpu(
    host: Path, torch_for: Callable[[str | None], None]
) -> None:
    cardfile.write_cards(host, [fake_card(os.getpid())], cuda=12040)
    torch_for(None)
    text = command("doctor", status=1)
    assert "FAIL  torch             9.9.0, built for the CPU: no test can use a card" in text
    assert "-m pip install --force-reinstall --no-cache-dir torch" in text
    assert "this driver serves up to 12.4" in text
    assert text.splitlines()[-1].startswith("1 FAIL, ")


@pytest.mark.usefixtures("torch_for")
def test_doctor_tries_a_far_side(home: Warmth) -> None:
    text = command("doctor", "--remote=local:cpu:3")
    assert f"ok    remote            local:cpu: {os.uname().nodename}, Python 3." in text
    assert "warn  remote            local:cpu pretends 3 GPUs and uses none" in text
    assert home.sockets == []
    failed = command("doctor", "--remote=local:cpu", "--python=/nowhere/python", status=1)
    assert "FAIL  remote            local:cpu can't be started" in failed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "required: COMMAND"),
        (("nonsense",), "invalid choice"),
        (("doctor", "--remote=foo"), "remotegpu: there is no backend 'foo'"),
        (("doctor", "--remote=:"), "names no backend"),
        (("doctor", "--remote=modal:A1000"), "did you mean A100"),
        (("doctor", "--wait=0"), "invalid number of seconds '0'; write more than 0, such as 300"),
        (("doctor", "--wait=soon"), "invalid number of seconds 'soon'"),
        (
            ("logs", "-n", "-5"),
            "-n/--lines: invalid number of lines '-5'; write 1 or more, such as 20",
        ),
        (("logs", "-n", "0"), "invalid number of lines '0'"),
        (("logs", "--lines=\u0663"), "invalid number of lines"),
        (("logs", "--lines=1_0"), "invalid number of lines"),
        (("stop", "--al"), "unrecognized arguments: --al"),
        (("ps", "--js"), "unrecognized arguments: --js"),
        (("doctor", "--rem=local:cpu"), "unrecognized arguments: --rem=local:cpu"),
    ],
)
def test_command_lines_that_can_not_be_meant(words: tuple[str, ...], said: str) -> None:
    assert said in command(*words, status=2)


@pytest.mark.usefixtures("torch_for")
def test_a_folder_that_others_can_enter(home: Warmth) -> None:
    (home.runtime / "pytest-remotegpu").mkdir(mode=0o755)
    for word in ("ps", "stop", "logs"):
        assert "remotegpu: " in command(word, status=1)
    assert "warn  socket" in command("doctor")


def shell(words: str) -> tuple[str, str]:
    """Have a shell run the command, called ``remotegpu``; give what was on stdout and stderr."""
    called = f'remotegpu() {{ "{sys.executable}" -m pytest_remotegpu "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-c", called + words],  # noqa: S607 -- whichever shell there is
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout, done.stderr


@pytest.mark.usefixtures("torch_for")
@pytest.mark.parametrize("word", ["ps", "stop", "logs", "doctor", "--help", "ps --help"])
def test_whoever_reads_may_leave(word: str) -> None:
    """The status is that of a process which the signal for this has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "pytest_remotegpu", *word.split()],
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.usefixtures("torch_for")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("word", ["ps", "ps --json", "stop", "doctor", "--help"])
def test_output_that_can_not_be_written(word: str) -> None:
    stdout, stderr = shell(f"remotegpu {word} >/dev/full; echo $?")
    assert stdout == "1\n"
    assert stderr == (
        "remotegpu: the output can't be written: [Errno 28] No space left on device\n"
    )


@pytest.mark.usefixtures("torch_for")
@pytest.mark.parametrize("word", ["ps", "stop", "doctor", "--help"])
def test_output_that_is_closed(word: str) -> None:
    assert shell(f"remotegpu {word} >&-; echo $?") == (
        "1\n", "remotegpu: the standard output is closed\n",
    )  # fmt: skip
    assert shell(f"remotegpu {word} >&- 2>&-; echo $?") == ("1\n", "")
