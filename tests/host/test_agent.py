"""The warm process: found again, never stale, nobody else's, and no loss when it fails."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_remotegpu
from session.running import CPU, Started, run, said, until
from warmth import Warmth, alive, descendants

TRIVIAL = """
    import os
    import pytest

    @pytest.mark.gpu
    def test_far():
        print("RUNS IN", os.getppid())
"""


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_far=TRIVIAL)
    return pytester


def passes(pytester: pytest.Pytester, *args: str) -> str:
    result = run(pytester, CPU, "-rP", *args)
    text = said(result)
    assert result.ret == 0, text
    assert "no warm process" not in text
    return text


def test_the_second_session_finds_it(project: pytest.Pytester, home: Warmth) -> None:
    passes(project)
    agent = home.agent
    assert home.is_tidy()
    assert until(lambda: [_has_more(pid) for pid in descendants(agent)] == [True])
    (warm,) = home.zygotes()
    passes(project)
    assert (home.agent, home.zygotes()) == (agent, [warm])
    assert home.is_tidy()
    path = home.sockets[0]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert home.log() == ""


def _has_more(pid: int) -> bool:
    """Say whether a zygote imports large libraries, which the first one for a session does not."""
    with contextlib.suppress(OSError):
        return b"--preload=\0" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.usefixtures("project")
def test_an_interpreter_has_one_whatever_it_is_called(home: Warmth) -> None:
    """``pytest`` and ``python -m pytest`` of one environment often name it differently."""
    names = [path for path in Path(sys.executable).parent.glob("python*") if _is_this(path)]
    for python in (os.path.relpath(sys.executable), *map(str, names)):
        command = [python, "-m", "pytest", CPU]
        assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0
    assert len(home.sockets) == 1


def _is_this(path: Path) -> bool:
    return path.resolve() == Path(sys.executable).resolve()


@pytest.mark.parametrize("how", ["option", "CI"])
def test_fresh_sessions_use_none(
    how: str, project: pytest.Pytester, home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "CI":
        monkeypatch.setenv("CI", "true")
    passes(project, *(["--remote-fresh"] if how == "option" else []))
    assert home.sockets == []


CHANGES = {
    "source": ("test_far.py", "VALUE = 1", "VALUE = 2"),
    "conftest": ("conftest.py", "VALUE = 1", "VALUE = 2"),
    "helper": ("helper.py", "VALUE = 1", "VALUE = 2"),
    "data": ("data.txt", "VALUE = 1", "VALUE = 2"),
    "new module": ("extra.py", "", "VALUE = 2"),
    "ini": ("pytest.ini", "VALUE = 1", "VALUE = 2"),
}


def test_what_is_edited_is_seen(pytester: pytest.Pytester, home: Warmth) -> None:
    """Each kind of file in turn, and a switch of branches that touches them all."""
    pytester.makefile(".ini", pytest="[pytest]\nmarkers =\n    VALUE = 1: a number\n")
    pytester.makepyfile(
        conftest="""
            import pytest
            VALUE = 1
            @pytest.fixture
            def conftest_value():
                return VALUE
        """,
        helper="VALUE = 1",
        test_far="""
            import importlib.util
            from pathlib import Path
            import pytest
            import helper
            VALUE = 1

            @pytest.mark.gpu
            def test_far(conftest_value, pytestconfig):
                found = {
                    "source": VALUE, "conftest": conftest_value, "helper": helper.VALUE,
                    "data": int(Path("data.txt").read_text().split()[-1]),
                    "ini": int(pytestconfig.getini("markers")[0].partition(":")[0].split()[-1]),
                    "new module": 2 if importlib.util.find_spec("extra") else 1,
                }
                print("SEEN", sorted(name for name, value in found.items() if value == 2))
        """,
    )
    Path("data.txt").write_text("VALUE = 1")
    assert "SEEN []" in passes(pytester)
    changed = []
    for kind, (name, before, after) in CHANGES.items():
        path = Path(name)
        text = path.read_text() if path.exists() else ""
        path.write_text(text.replace(before, after, 1) if before else after)
        changed.append(kind)
        assert f"SEEN {sorted(changed)!r}" in passes(pytester)
    assert len(home.zygotes()) == 1


def test_an_upgraded_package_and_a_rebuilt_extension_are_seen(
    pytester: pytest.Pytester, home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the warm process itself has imported: a plugin, and what ``remotegpu_preload`` names."""
    site = pytester.mkdir("site-packages")
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    (site / "dear.py").write_text("VERSION = 1")
    (site / "some_plugin.py").write_text("VERSION = 1")
    info = site / "some_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pytest11]\nsome = some_plugin\n")
    pytester.makefile(".ini", pytest="[pytest]\nremotegpu_preload = dear\n")
    pytester.makepyfile(
        test_far="""
            import sys
            import pytest
            was_warm = "dear" in sys.modules
            import dear, some_plugin

            @pytest.mark.gpu
            def test_far():
                print("SEEN", dear.VERSION, some_plugin.VERSION)
                print("WARM", was_warm)
        """
    )
    passes(pytester)
    assert until(lambda: "SEEN 1 1\nWARM True" in passes(pytester))
    (site / "dear.py").write_text("VERSION = 'two'")
    assert "SEEN two 1" in passes(pytester)
    (site / "some_plugin.py").write_text("VERSION = 'three'")
    assert "SEEN two three" in passes(pytester)
    (site / "another_plugin.py").write_text("def pytest_report_header():\n    print('NEW ONE')\n")
    other = site / "another_plugin-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: another-plugin\nVersion: 1\n")
    (other / "entry_points.txt").write_text("[pytest11]\nanother = another_plugin\n")
    assert "NEW ONE" in passes(pytester)
    assert until(lambda: len(home.zygotes()) <= 2)


def test_nothing_leaks_into_the_next_session(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        test_far="""
            import locale, os, random, signal, sys, time
            import pytest

            def look():
                return {
                    "cwd": os.getcwd(), "umask": os.umask(0o22), "name": os.environ.get("NAME"),
                    "path": sys.path[-1], "switch": sys.getswitchinterval(), "zone": time.tzname,
                    "recursion": sys.getrecursionlimit(), "modules": "made_up" in sys.modules,
                    "handler": str(signal.getsignal(signal.SIGTERM)),
                }

            @pytest.mark.gpu
            def test_far():
                print("LOOK", look())
                print("RANDOM", random.random())
                os.chdir("/"), os.umask(0), sys.path.append("/nowhere")
                sys.setrecursionlimit(99999)
                os.environ["NAME"] = "leaked"
                sys.setswitchinterval(0.5)
                sys.modules["made_up"] = sys
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                random.seed(7)
        """
    )
    looks = [
        [line for line in passes(pytester).splitlines() if line.startswith(("LOOK", "RANDOM"))]
        for _ in range(2)
    ]
    assert looks[0][0] == looks[1][0]
    assert looks[0][1] != looks[1][1]
    monkeypatch.setenv("NAME", "given")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    text = passes(pytester)
    assert "'name': 'given'" in text
    assert "'JST'" in text


def test_variables_that_are_read_at_start(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a variable of the session, or of one test's mark, gets a zygote of its own."""
    pytester.makepyfile(
        test_far="""
            import sys
            import pytest

            @pytest.mark.gpu
            def test_far():
                print("DEV", sys.flags.dev_mode)

            @pytest.mark.gpu(env={"PYTHONDEVMODE": "1", "OTHER": "x"})
            def test_own():
                print("OWN", sys.flags.dev_mode)
        """
    )
    text = passes(pytester)
    assert "DEV False" in text
    assert "OWN True" in text
    monkeypatch.setenv("PYTHONDEVMODE", "1")
    assert "DEV True" in passes(pytester)


def test_variables_that_nobody_reads_at_start(
    project: pytest.Pytester, home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each terminal and editor has such: they share a zygote, and tests see their session's."""
    project.makepyfile(
        test_far="""
            import os
            import pytest

            @pytest.mark.gpu
            def test_far():
                print("WINDOW", os.environ.get("WINDOW_OF_TERMINAL"))
        """
    )
    monkeypatch.setenv("WINDOW_OF_TERMINAL", "1")
    assert "WINDOW 1" in passes(project)
    agent = home.agent
    assert until(lambda: [_has_more(pid) for pid in descendants(agent)] == [True], 30.0)
    before = home.zygotes()
    monkeypatch.setenv("WINDOW_OF_TERMINAL", "2")
    assert "WINDOW 2" in passes(project)
    monkeypatch.delenv("WINDOW_OF_TERMINAL")
    assert "WINDOW None" in passes(project)
    assert home.zygotes() == before


def test_a_project_that_is_itself_a_plugin(
    pytester: pytest.Pytester, home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No module of the project is warm: each session imports it anew."""
    root = pytester.path
    (root / "ours.py").write_text("VERSION = 1\n")
    info = root / "ours-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pytest11]\nours = ours\n")
    monkeypatch.setenv("PYTHONPATH", str(root), prepend=os.pathsep)
    pytester.makepyfile(
        test_far="""
            import sys
            import pytest
            import ours
            modules = sorted(name for name in sys.modules if name == "xdist")

            @pytest.mark.gpu
            def test_far(pytestconfig):
                print("SEEN", ours.VERSION, pytestconfig.pluginmanager.hasplugin("ours"))
        """
    )
    for version in ("1", "'two'", "'three'"):
        (root / "ours.py").write_text(f"VERSION = {version}\n")
        shown = version.strip("'")
        assert f"SEEN {shown} True" in passes(pytester)
    assert home.is_tidy()


# trouble with the agent


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\xff" * 1000 + b"\n",
        b'{"word": "open"}\n',
        b'{"word": "open", "environ": 3, "root": 1, "preload": 2, "idle": "x"}\n',
        b"[" * 100_000 + b"\n",
        b'{"word": ["ps"]}\n',
        b'{"word": "open", "environ',
    ],
    ids=["nothing", "http", "bytes", "empty", "types", "deep", "list", "half"],
)
def test_garbage_on_its_socket(words: bytes, project: pytest.Pytester, home: Warmth) -> None:
    passes(project)
    agent = home.agent
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(home.sockets[0]))
        connection.sendall(words)
        passes(project)
    assert home.agent == agent
    assert home.is_tidy()


def test_who_says_nothing_is_dismissed(project: pytest.Pytester, home: Warmth) -> None:
    passes(project)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(home.sockets[0]))
        connection.sendall(b'{"word": ')
        assert json.loads(connection.recv(2**16)) == {"error": "no request came in time"}
        assert connection.recv(1) == b""


@pytest.mark.usefixtures("project")
def test_many_start_it_at_once(home: Warmth) -> None:
    texts: list[str] = []
    command = [sys.executable, "-m", "pytest", CPU, "-p", "no:cacheprovider"]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(4)
    ]
    texts = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4, texts
    assert not any("no warm process" in text for text in texts)
    assert len(home.sockets) == 1
    assert home.is_tidy()


HANGS = """
    import pathlib, subprocess, sys, time
    import pytest

    @pytest.fixture(scope="session")
    def teardown():
        yield
        pathlib.Path("TORN").touch()

    @pytest.mark.gpu
    def test_first(): pass

    @pytest.mark.gpu
    def test_far(teardown):
        subprocess.Popen(["setsid", "sleep", "1000"], start_new_session=True)
        with open("ATTEMPTS", "a") as file:
            file.write("x")
        pathlib.Path("BEGUN").touch()
        while not pathlib.Path("GO").exists():
            time.sleep(0.02)

    @pytest.mark.gpu
    def test_last(): pass
"""


@pytest.mark.parametrize("whom", ["agent", "zygote", "supervisor", "twin", "runner"])
def test_somebody_is_killed(whom: str, pytester: pytest.Pytester, home: Warmth) -> None:
    """The session ends as it should, and nothing is left: no process, no folder."""
    pytester.makepyfile(test_far=TRIVIAL)
    passes(pytester)
    pytester.makepyfile(test_far=HANGS)
    with Started(pytester, CPU, "-v") as session:
        assert until(Path("BEGUN").exists)
        found = home.ask("ps")
        agent, zygote = int(found["agent"]), int(found["zygotes"][0]["pid"])
        supervisor = int(found["workers"][0]["pid"])
        twin = next(pid for pid in descendants(zygote) if _parent(pid) == zygote)
        runner = next(pid for pid in descendants(twin) if _parent(pid) == twin)
        involved = [supervisor, twin, runner, *descendants(twin)]
        Path("BEGUN").unlink()
        named = {"agent": agent, "zygote": zygote, "supervisor": supervisor}
        os.kill(named.get(whom) or {"twin": twin, "runner": runner}[whom], signal.SIGKILL)
        if whom in ("supervisor", "twin"):  # the worker is lost: the running test is tried again
            assert until(Path("BEGUN").exists), session.text
        Path("GO").touch()
        status = session.end()
    if whom == "runner":
        assert status == 1
        assert "test_far.py::test_far FAILED" in session.text
        assert "SIGKILL" in session.text
    else:
        assert status == 0, session.text
        assert "3 passed" in session.text
    times = 2 if whom in ("supervisor", "twin") else 1
    assert Path("ATTEMPTS").read_text() == "x" * times, session.text
    assert until(lambda: not any(map(alive, involved)), 5.0)
    pytester.makepyfile(test_far=TRIVIAL)
    Path("GO").unlink()
    passes(pytester)
    assert home.is_tidy()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_an_agent_that_hangs_is_gone_around(project: pytest.Pytester, home: Warmth) -> None:
    passes(project)
    agent = home.agent
    os.kill(agent, signal.SIGSTOP)
    try:
        result = run(project, CPU)
    finally:
        os.kill(agent, signal.SIGCONT)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*no warm process was used: the agent gives no answer*"])
    assert home.is_tidy()


def test_a_folder_that_others_can_enter(project: pytest.Pytester, home: Warmth) -> None:
    folder = home.runtime / "pytest-remotegpu"
    folder.mkdir(mode=0o755)
    result = run(project, CPU)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*no warm process was used: *must be a folder of this user's*"])


def test_its_own_upgrade(
    project: pytest.Pytester, home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new version of the package is served by a new agent; what the old one runs goes on."""
    package = Path(pytest_remotegpu.__file__).parent
    copy = project.mkdir("copied") / "pytest_remotegpu"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(copy.parent), prepend=os.pathsep)
    project.makepyfile(test_far=HANGS)
    with Started(project, CPU, "-v") as session:
        assert until(Path("BEGUN").exists)
        old = home.agent
        Path("BEGUN").unlink()
        with (copy / "worker" / "supervisor.py").open("a") as file:
            file.write("# newer\n")
        Path("GO").touch()
        assert session.end() == 0, session.text
    passes(project)
    assert home.agent != old
    assert until(lambda: not alive(old))


def test_it_ends_when_nobody_needs_it(pytester: pytest.Pytester, home: Warmth) -> None:
    pytester.makefile(".ini", pytest="[pytest]\nremotegpu_idle = 0.5\n")
    pytester.makepyfile(test_far=TRIVIAL)
    passes(pytester)
    assert until(lambda: home.sockets == [])


def test_it_ends_when_told(project: pytest.Pytester, home: Warmth) -> None:
    passes(project)
    agent = home.agent
    everybody = [agent, *descendants(agent)]
    assert home.ask("stop")["agent"] == agent
    assert until(lambda: not any(map(alive, everybody)))
    assert home.sockets == []
    passes(project)


def test_limits_of_the_session_hold_for_its_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_far="""
            import os, resource
            import pytest

            @pytest.mark.gpu
            def test_far():
                print("FILES", resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0))
        """
    )
    passes(pytester)
    command = f"ulimit -Sn 234; exec taskset -c 0 {sys.executable} -m pytest {CPU} -rP"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert "FILES (234," in done.stdout, done.stdout + done.stderr
    assert "{0}" in done.stdout
    assert "(234," not in passes(pytester)


def test_an_agent_under_hard_limits_serves_no_session_without_them(
    pytester: pytest.Pytester, home: Warmth
) -> None:
    """No process can give another one more than it has, nor can root in a usual container."""
    pytester.makepyfile(
        test_far="""
            import resource
            import pytest

            @pytest.mark.gpu
            def test_far():
                print("SIZE", resource.getrlimit(resource.RLIMIT_FSIZE))
        """
    )
    command = f"ulimit -f 16384; exec {sys.executable} -m pytest {CPU} -rP"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    limited = f"SIZE {(2**23, 2**23)}"
    assert limited in done.stdout, done.stdout + done.stderr
    text = passes(pytester)
    assert f"SIZE {resource.getrlimit(resource.RLIMIT_FSIZE)}" in text
    assert limited not in text
    assert len(home.sockets) == 2


@pytest.fixture
def full() -> Iterator[Path]:
    """Give a folder on a disk without room."""
    made = Path(tempfile.mkdtemp(prefix="rt-full-"))
    mount = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=2", "tmpfs", str(made)],
        capture_output=True,
        check=False,
    )
    if mount.returncode:
        made.rmdir()
        pytest.skip("only root may mount a small disk")
    try:
        with contextlib.suppress(OSError), (made / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield made
    finally:
        subprocess.run(["/bin/umount", "-l", str(made)], check=True)
        made.rmdir()


def test_no_room_for_the_socket(
    pytester: pytest.Pytester, home: Warmth, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(full))
    pytester.makepyfile(test_far=TRIVIAL)
    result = run(pytester, CPU)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["note: no warm process was used: *No space left on device*"])
    assert home.sockets == []


def test_the_folder_for_temporary_files_may_go(
    project: pytest.Pytester, home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent goes on with another one."""
    temporary = project.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    passes(project)
    agent = home.agent
    shutil.rmtree(temporary)
    monkeypatch.delenv("TMPDIR")
    passes(project)
    assert home.agent == agent


def test_options_of_the_interpreter_and_signals(pytester: pytest.Pytester, home: Warmth) -> None:
    """What the agent ignores, and the options that it lacks, are the session's business."""
    pytester.makepyfile(
        test_far="""
            import signal, sys, warnings
            import pytest

            @pytest.mark.gpu
            def test_far():
                print("OPTIONS", sys.flags.bytes_warning, sys.flags.safe_path, sys.warnoptions)
                print("HANGUP", signal.getsignal(signal.SIGHUP).name)
                with pytest.raises(UserWarning) if sys.warnoptions else pytest.warns(UserWarning):
                    warnings.warn("far", UserWarning)
        """
    )
    for options, seen in (("", "0 False []"), ("-bb -W error", "2 False ['error', ")):
        words = [sys.executable, *options.split(), "-m", "pytest", CPU, "-rP"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout
        assert f"OPTIONS {seen}" in done.stdout
        assert "HANGUP SIG_DFL" in done.stdout
    assert home.is_tidy()
