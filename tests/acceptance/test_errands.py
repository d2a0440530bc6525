"""``remotegpu run`` and ``shell``: what runs on each far side, what it sees, what comes of it."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sshd
from loopback import LoopbackModal
from pytest_remotegpu import shelling
from pytest_remotegpu.errors import UsageError
from session.running import run as run_pytest
from session.running import until

CPU = "--remote=local:cpu"
PRETENDS = "command:env PYTEST_REMOTEGPU_PRETEND_GPUS=2"
HERE = ("-o", f"remotegpu_python={sys.executable}")
SAYS = """
    import os, sys
    sys.stdout.buffer.write(b"out \\xff\\n")
    sys.stderr.write("err\\n")
    sys.exit(3)
"""
LOOKS = """
    import json, os
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "REMOTEGPU_WORKER", "WANTED", "UNWANTED")
    found = {name: os.environ.get(name) for name in names}
    found["ours"] = [name for name in os.environ if name.startswith("PYTEST_REMOTEGPU")]
    found["folder"] = os.path.basename(os.getcwd())
    found["files"] = sorted(name for name in os.listdir() if name.endswith(".py"))
    print("SEEN" + json.dumps(found), flush=True)
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackModal]:
    """Have a service that Modal's client takes for the real one."""
    with LoopbackModal(tmp_path / "modal") as found:
        for name, value in found.environ.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture(params=["local", "command", "ssh", "modal"])
def far(request: pytest.FixtureRequest) -> list[str]:
    """Name each far side in turn."""
    if request.param == "local":
        return [CPU]
    if request.param == "command":
        return [f"--remote={PRETENDS}", *HERE]
    if request.param == "ssh":
        request.getfixturevalue("gpubox")
        return [f"--remote=ssh:{sshd.HOST}"]
    request.getfixturevalue("service")
    return ["--remote=modal:T4"]


Done = subprocess.CompletedProcess[bytes]


def line(*words: str) -> list[str]:
    return [sys.executable, "-m", "pytest_remotegpu", *words]


def remotegpu(*words: str, stdin: bytes = b"") -> Done:
    """Run the command as a user's shell would."""
    done = subprocess.run(line(*words), input=stdin, capture_output=True, timeout=90, check=False)
    assert b"INTERNALERROR" not in done.stderr
    return done


@pytest.mark.timeout(180)
def test_streams_and_exit_status(pytester: pytest.Pytester, far: list[str]) -> None:
    """Each stream is what the command wrote, byte by byte, and so is the exit status."""
    pytester.makepyfile(says=SAYS)
    done = remotegpu("run", *far, "--", "python", "says.py")
    assert (done.returncode, done.stdout) == (3, b"out \xff\n"), done.stderr.decode()
    assert b"err\n" in done.stderr
    assert b"remotegpu:" not in done.stderr


@pytest.mark.timeout(180)
def test_it_sees_what_a_test_sees(
    pytester: pytest.Pytester, far: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANTED", "is passed on")
    monkeypatch.setenv("UNWANTED", "stays here")
    pytester.makeini("[pytest]\nremotegpu_env = WANTED\naddopts = -p no:cacheprovider\n")
    pytester.makepyfile(looks=LOOKS)
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.gpu
        def test_it():
            import runpy
            runpy.run_path("looks.py")
        """
    )
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    done = remotegpu("run", *far, "--", "python", "looks.py")
    assert done.returncode == 0, done.stderr.decode()
    result = run_pytest(pytester, *far, "-s")
    assert result.ret == 0
    (seen,) = (text for text in result.outlines if "SEEN" in text)
    of_test, of_command = (
        json.loads(text.partition("SEEN")[2]) for text in (seen, done.stdout.decode())
    )
    assert of_command == of_test
    assert of_command["WANTED"] == "is passed on"
    assert "looks.py" in of_command["files"]


@pytest.mark.timeout(240)
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the checks need torch")
def test_a_diagnosis_comes_back(pytester: pytest.Pytester, far: list[str]) -> None:
    """The suite runs by the far interpreter, and its files are here in the end."""
    pytester.makepyfile(
        model="""
        import os, torch

        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.abspath("cache")  # torch makes one, anyway

        def make_model():
            print("here", "REMOTEGPU_WORKER" in os.environ)
            return torch.nn.Linear(8, 4)

        loss, batch = torch.nn.CrossEntropyLoss(), (torch.randn(4, 8), torch.arange(4) + 1)
        """
    )
    done = remotegpu("diagnose", *far, "model:make_model", "--only=batch")
    assert done.returncode == 1, done.stderr.decode()
    assert b"FAIL     batch" in done.stdout
    assert b"here True" in done.stderr
    assert b"label-out-of-range" in Path("remotegpu-diagnosis/report.md").read_bytes()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["sh", "-c", "exit 250"], 250),
        (["no-such-program"], 127),
        (["./says.py"], 126),
        (["cat"], 0),
        (["git", "--", "--version"], 129),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_ends(pytester: pytest.Pytester, words: list[str], status: int) -> None:
    """A signal, a number, a program that is not there, one that is none, one that reads."""
    pytester.makepyfile(says=SAYS)
    done = remotegpu("run", CPU, "--", *words, stdin=b"is not passed on")
    assert done.returncode == status, done.stderr.decode()
    assert done.stdout == b""


def test_it_is_seen_while_it_runs(pytester: pytest.Pytester) -> None:
    """Python's own output too, which it would keep for a while where nobody sits at a terminal."""
    pytester.makepyfile(
        waits="""
        import pathlib, time
        print("begun")
        while not pathlib.Path("go").exists():
            time.sleep(0.02)
        """
    )
    process = subprocess.Popen(line("run", CPU, "--", "python", "waits.py"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    assert process.poll() is None
    Path("go").touch()
    assert process.communicate(timeout=40)[0] == b""
    assert process.returncode == 0


def test_much_output_is_all_there(pytester: pytest.Pytester) -> None:
    assert pytester.path.is_dir()
    script = "import sys; sys.stdout.write('x' * 99 + '\\n'); "
    done = remotegpu("run", CPU, "--", "python", "-c", f"for _ in range(200_000): {script}")
    assert done.returncode == 0
    assert done.stdout == (b"x" * 99 + b"\n") * 200_000


@pytest.mark.timeout(180)
def test_ctrl_c(pytester: pytest.Pytester, far: list[str]) -> None:
    """The command hears of it, and is gone when the one here is."""
    mark = pytester.path / "pid"
    pytester.makepyfile(
        sleeps=f"""
        import os, pathlib, time
        pathlib.Path({str(mark)!r}).write_text(str(os.getpid()))
        try:
            time.sleep(90)
        except KeyboardInterrupt:
            print("heard", flush=True)
            raise SystemExit(0)
        """
    )
    process = subprocess.Popen(
        line("run", *far, "--", "python", "sleeps.py"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert until(lambda: mark.exists() and mark.read_text())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert out == b"heard\n"
    pid = int(mark.read_text())
    assert until(lambda: not Path(f"/proc/{pid}").exists(), 10)


def test_whoever_reads_goes_away(pytester: pytest.Pytester) -> None:
    assert pytester.path.is_dir()
    process = subprocess.Popen(line("run", CPU, "--", "yes"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(40) == 141


def test_run_limit(pytester: pytest.Pytester) -> None:
    assert pytester.path.is_dir()
    done = remotegpu("run", CPU, "--remote-run-timeout=4", "--", "sleep", "80")
    assert done.returncode == 125
    assert b"remotegpu: " in done.stderr
    assert b"4 s" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--", "true"], "--remote"),
        (["run", CPU], "no command is given; it stands behind two dashes"),
        (["run", CPU, "--"], "no command is given"),
        (["run", CPU, "--gpu-count=0", "--", "true"], "invalid number of GPUs '0'"),
        (["run", "--remote=:x", "--", "true"], "names no backend"),
        (["run", "--remote=nowhere", "--", "true"], "nowhere"),
        (["run", CPU, "--remote-run-timeout=soon", "--", "true"], "soon"),
        (["run", CPU, "--gpu-required", "--", "true"], "--gpu-required refuses"),
    ],
)
def test_what_can_not_be_meant(pytester: pytest.Pytester, words: list[str], told: str) -> None:
    assert pytester.path.is_dir()
    done = remotegpu(*words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert told in done.stderr.decode()


@pytest.mark.usefixtures("gpubox")
def test_no_far_side_to_be_had(pytester: pytest.Pytester) -> None:
    assert pytester.path.is_dir()
    done = remotegpu("run", "--remote=ssh:closedbox", "--", "true")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"Connection refused" in done.stderr


def test_what_a_project_wants_for_its_tests_is_left_out(pytester: pytest.Pytester) -> None:
    """Neither its options nor its hooks get in the way, and no test is remembered as failed."""
    pytester.makeini("[pytest]\naddopts = -vv -x -k nothing -n 2 --junitxml=junit.xml --lf\n")
    pytester.makeconftest(
        """
        def pytest_collection_modifyitems(items):
            for item in items:
                item.function.seen = True
        """
    )
    pytester.makepyfile(says=SAYS)
    done = remotegpu("run", CPU, "--", "python", "says.py")
    assert (done.returncode, done.stdout) == (3, b"out \xff\n"), done.stderr.decode()
    assert not Path("junit.xml").exists()
    assert not list(pytester.path.glob(".pytest_cache/v/cache/lastfailed"))


@pytest.mark.timeout(180)
def test_what_it_costs(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """A cap below the worst case lets nothing be rented; else there is a bill, and the document."""
    assert pytester.path.is_dir()
    far = ["--remote=modal:T4", "--remote-run-timeout=600"]
    done = remotegpu("run", *far, "--remote-max-cost=0.001", "--", "true")
    assert done.returncode == 2, done.stderr.decode()
    assert b"--remote-max-cost=0.001" in done.stderr
    assert service.apps == []
    done = remotegpu("run", *far, "--remote-max-cost=5", "--remote-json=run.json", "--", "true")
    assert done.returncode == 0, done.stderr.decode()
    assert b"cost: about $" in done.stderr
    document: Any = json.loads(Path("run.json").read_text(encoding="utf-8"))
    (test,) = document["tests"]
    assert (test["outcome"], test["gpus"]) == ("passed", 1)
    assert test["cost_usd"] > 0
    assert document["cost"]["total"] >= test["cost_usd"]


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout and stderr"])
def test_a_pipe_that_does_not_block(pytester: pytest.Pytester, *, both: bool) -> None:
    """As a parent makes it that reads when it likes: all of it comes, and nothing is cut off."""
    pytester.makepyfile(says='print("x" * 2**17 + "end")\nimport sys\nsys.exit(3)\n')
    pytester.makeconftest("""
        def pytest_terminal_summary(terminalreporter):
            for _ in range(4000):
                terminalreporter.write_line("y" * 49)
    """)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = subprocess.Popen(
        line("run", CPU, "--", "python", "says.py"),
        stdout=writer,
        stderr=writer if both else subprocess.DEVNULL,
    )
    assert until(lambda: not select.select([], [writer], [], 0)[1])  # it is full
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    os.close(writer)
    said = b""
    while data := os.read(reader, 512):
        said += data
        time.sleep(0.002)  # slower than it is written
    os.close(reader)
    assert process.wait(60) == 3, said[-2000:]
    assert b"x" * 2**17 + b"end\n" in said
    assert said.count(b"y" * 49 + b"\n") == 4000 * both
    assert b"Traceback" not in said


# a shell

SITS = b"""
echo "in $(basename "$PWD") as $REMOTEGPU_WORKER with '$WANTED'"
ls says.py
exit 7
"""


@pytest.mark.parametrize("where", ["local", "ssh"])
@pytest.mark.timeout(120)
def test_a_shell(
    pytester: pytest.Pytester,
    where: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads what is typed, is where a test would be, and its exit status is passed on."""
    far = [CPU] if where == "local" else [f"--remote=ssh:{sshd.HOST}"]
    if where == "ssh":
        request.getfixturevalue("gpubox")
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("WANTED", "it's $HOME; `false`\nand more")
    pytester.makeini("[pytest]\nremotegpu_env = WANTED\n")
    pytester.makepyfile(says=SAYS)
    done = remotegpu("shell", *far, stdin=SITS)
    text = f"in {pytester.path.name} as {where}-1 with 'it's $HOME; `false`\nand more'\nsays.py\n"
    assert (done.returncode, done.stdout.decode()) == (7, text), done.stderr.decode()
    assert b"a shell on " in done.stderr


@pytest.mark.timeout(120)
def test_a_shell_has_the_terminal(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C there is for what runs in it, and does not end the session."""
    assert pytester.path.is_dir()
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("PS1", "ready> ")
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, line("shell", CPU))  # noqa: S606 -- the child of a terminal
    said = b""

    def has(text: bytes) -> bool:
        nonlocal said
        if select.select([terminal], [], [], 0)[0]:
            said += os.read(terminal, 2**16)
        return text in said

    assert until(lambda: has(b"ready> ")), said
    # what says so itself can be interrupted by then; a shell's child may lose a signal before
    sleeps = "import time; print('sleeps', 6 * 7, flush=True); time.sleep(90)"
    os.write(terminal, f'{sys.executable} -c "{sleeps}"\n'.encode())
    assert until(lambda: has(b"sleeps 42\r\n")), said
    os.write(terminal, b"\x03")
    assert until(lambda: has(b"KeyboardInterrupt") and said.count(b"ready> ") == 2), said
    os.write(terminal, b"tty && echo still-$((40 + 2))\n")
    assert until(lambda: has(b"still-42\r\n")), said
    assert b"/dev/pts/" in said
    os.write(terminal, b"exit 5\n")
    assert until(lambda: has(b"pretend GPUs")), said
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    os.close(terminal)


@pytest.mark.timeout(120)
def test_a_shell_at_modal(
    pytester: pytest.Pytester,
    service: LoopbackModal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The vendor's command is printed; where the shell that it starts has ended, all has."""
    assert pytester.path.is_dir()
    monkeypatch.setenv("SHELL", "/bin/sh")
    process = subprocess.Popen(
        line("shell", "--remote=modal:T4"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    found = None
    while found is None:
        said = process.stderr.readline()
        assert said, "no command was printed"
        found = re.fullmatch(rb" +modal container exec --pty (\S+) (/bin/sh) (\S+)\n", said)
    container, shell, script = (part.decode() for part in found.groups())
    assert container in [each.id for each in service.containers]
    inside = subprocess.run(
        [shell, script], input=b"echo $REMOTEGPU_WORKER; exit 3", capture_output=True, check=False
    )
    assert (inside.returncode, inside.stdout) == (3, b"modal-1\n")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"")
    assert b"cost: about $" in err
    assert not Path(script).parent.exists()


def test_a_shell_ends_with_its_session(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pytester.path.is_dir()
    monkeypatch.setenv("SHELL", "/bin/cat")
    typed, typing = os.pipe()
    process = subprocess.Popen(
        line("shell", CPU, "--remote-run-timeout=4"), stdin=typed, stderr=subprocess.PIPE
    )
    _, err = process.communicate(timeout=60)
    os.close(typed)
    os.close(typing)
    assert process.returncode == 125, err.decode()
    assert b"4 s" in err


@pytest.mark.parametrize(("program", "status"), [("/nowhere/sh", 127), ("/", 126)])
def test_a_shell_that_can_not_be_started(
    pytester: pytest.Pytester, program: str, status: int
) -> None:
    assert pytester.path.is_dir()
    code = f"""if True:
        import sys
        from pytest_remotegpu import cli, shelling
        shelling.way_in = lambda spec, terminal: lambda script, _: [{program!r}, script, "alone"]
        sys.exit(cli.main())
    """
    done = subprocess.run(
        [sys.executable, "-c", code, "shell", CPU], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stderr.decode()
    assert f"remotegpu: {program} can't be started: ".encode() in done.stderr


def test_a_far_side_without_a_terminal(pytester: pytest.Pytester) -> None:
    assert pytester.path.is_dir()
    done = remotegpu("shell", f"--remote={PRETENDS}", *HERE)
    assert done.returncode == 2
    assert b"nobody knows how a terminal gets there; remotegpu run" in done.stderr


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"[]",
        b'{"enter": "/tmp/x; id", "machine": ""}',
        b'{"enter": "x", "machine": ""}',
        b'{"enter": "/tmp/x", "machine": "a b"}',
        b'{"enter": "/tmp/x\\u001b[2J", "machine": ""}',
    ],
)
def test_a_way_in_that_is_none(told: bytes) -> None:
    """A hostile machine gets nothing typed by the user that is not a path."""
    with pytest.raises(UsageError, match="names no way in"):
        shelling.read(told)
    assert shelling.read(b'{"enter": "/tmp/x-1/enter", "machine": "ta-1"}')
