"""The command ``remotegpu`` and what backends run elsewhere: listed, ended, collected, and no more.

The backends are modules in a folder of the test's own, installed by their entry points; what they
run is a file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from session.running import until

from .test_cli import command, data, warm

pytestmark = pytest.mark.usefixtures("home")
__all__ = ["warm"]  # a fixture of the command's other tests

CLOUD = '''
import json, pathlib, time
from pytest_remotegpu.backends.base import Running
from pytest_remotegpu.errors import FarSideError

HERE = pathlib.Path(__file__).parent
KNOWN = {
    "kept": {"paid": False, "use": "no machine is up"},
    "warm": {"paid": True, "use": "2 machines are up"},
}
(HERE / "imported").touch()


class Cloud:
    """Runs what a file says; knows what is another's, and leaves it alone."""

    def _read(self):
        return json.loads((HERE / "cloud.json").read_text())

    def _things(self, *states):
        mine = {id: s for id, s in self._read().items() if s != "another's"}
        return [
            Running(id, f"1 x T4, {state}", busy=state in ("busy", "warm"), **KNOWN.get(state, {}))
            for id, state in mine.items()
            if state in states
        ]

    def _end(self, id, *states):
        if id not in {each.id for each in self._things(*states)}:
            raise FarSideError(f"there is no {id}")
        left = self._read()
        if left[id] == "stuck":
            raise FarSideError("it is\\nstuck")
        del left[id]
        (HERE / "cloud.json").write_text(json.dumps(left))

    def list(self):
        return self._things("idle", "busy", "stuck", "kept", "warm")

    def stop(self, id):
        self._end(id, "idle", "busy", "stuck", "kept", "warm")

    def logs(self, id):
        yield from (f"{id} line {number}\\n" for number in range(30))
        if id == "goes-on":
            for number in range(30, 10000):
                time.sleep(0.02)
                yield f"{id} line {number}"

    def orphans(self):
        return self._things("orphaned")

    def collect(self, id):
        self._end(id, "orphaned")


def make(site):
    assert site.root and site.executable
    return Cloud()


def nothing(site):
    return None


class Down(Cloud):
    def list(self):
        raise ValueError("no\\nroute to\\nthe host")


def down(site):
    return Down()


class Deaf(Cloud):
    def list(self):
        time.sleep(60)


def deaf(site):
    return Deaf()
'''


class Clouds:
    """The backends that are installed for a test.

    :ivar folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fakecloud.py").write_text(CLOUD)
        self.install("cloud = fakecloud:make")
        self.run({})

    def install(self, *lines: str) -> None:
        """Let these be the entry points."""
        home = self.folder / "fakecloud-0.dist-info"
        home.mkdir(exist_ok=True)
        (home / "METADATA").write_text("Metadata-Version: 2.1\nName: fakecloud\nVersion: 0\n")
        text = "\n".join(["[pytest_remotegpu.lists]", *lines, ""])
        (home / "entry_points.txt").write_text(text)

    def run(self, things: dict[str, str]) -> None:
        """Let these things be there."""
        (self.folder / "cloud.json").write_text(json.dumps(things))

    @property
    def left(self) -> list[str]:
        """What is there now."""
        found: dict[str, Any] = json.loads((self.folder / "cloud.json").read_text())
        return list(found)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let commands look for what is left over in a folder that nobody else uses."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def clouds(pytester: pytest.Pytester, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Clouds:
    assert not list(temporary.iterdir())
    made = Clouds(pytester.mkdir("clouds"))
    monkeypatch.setenv("PYTHONPATH", str(made.folder))
    return made


ALL = {"a-1": "idle", "a-2": "busy", "a-3": "orphaned", "b-1": "another's"}


def rented(text: str) -> list[str]:
    """Give the lines about what is rented."""
    return [line for line in text.splitlines() if line.startswith(("cloud", "down", "gone"))]


def test_ps_lists_what_is_ours(clouds: Clouds) -> None:
    assert rented(command("ps")) == ["cloud: nothing runs"]
    clouds.run(ALL)
    assert rented(command("ps")) == [
        "cloud:a-1, 1 x T4, idle",
        "cloud:a-2, 1 x T4, busy, in use",
        "cloud:a-3, 1 x T4, orphaned, left over: remotegpu gc takes it away",
    ]
    [found] = data("ps")["backends"]
    assert (found["name"], found["trouble"]) == ("cloud", "")
    assert found["running"][1] == {
        "id": "a-2",
        "about": "1 x T4, busy",
        "busy": True,
        "commands": [],
        "orphan": False,
        "paid": None,
        "run": "",
        "use": "",
    }
    assert [each["orphan"] for each in found["running"]] == [False, False, True]


def test_stop_ends_what_no_session_uses(clouds: Clouds) -> None:
    clouds.run(ALL)
    assert rented(command("stop", status=1)) == [
        "cloud:a-1 has ended",
        "cloud:a-2 was left alone: a session uses it; --all ends it too",
    ]
    assert clouds.left == ["a-2", "a-3", "b-1"]
    assert rented(command("stop", "--all")) == ["cloud:a-2 has ended"]
    assert clouds.left == ["a-3", "b-1"]


def test_what_a_backend_knows_of_use_stands_for_it(clouds: Clouds) -> None:
    """What is not paid for is left alone and no trouble; what is may be in use, which is one."""
    clouds.run({"a-1": "kept"})
    assert rented(command("ps")) == ["cloud:a-1, 1 x T4, kept, no machine is up"]
    left = "was left alone: no machine is up; --all ends it too"
    assert rented(command("stop")) == [f"cloud:a-1 {left}"]
    clouds.run({"a-1": "kept", "a-2": "warm"})
    assert rented(command("ps"))[1] == "cloud:a-2, 1 x T4, warm, 2 machines are up"
    assert rented(command("stop", status=1)) == [
        f"cloud:a-1 {left}",
        "cloud:a-2 was left alone: 2 machines are up; --all ends it too",
    ]
    assert rented(command("stop", "--all")) == ["cloud:a-1 has ended", "cloud:a-2 has ended"]


def test_stop_ends_what_is_named_and_nothing_else(clouds: Clouds) -> None:
    clouds.run(ALL | {"a-4": "stuck"})
    assert command("stop", "cloud:a-2") == "cloud:a-2 has ended\n"
    said = command("stop", "cloud:a-4", "cloud:a-1", status=1)
    assert said == "cloud:a-4 does not end: it is stuck\ncloud:a-1 has ended\n"
    for name in ("cloud:b-1", "cloud:a-3", "cloud:", "a-1", "cloud:a-2", "elsewhere:a"):
        said = command("stop", name, status=2)
        assert said.startswith(f"remotegpu: nothing that runs is called {name!r}; remotegpu ps")
    assert clouds.left == ["a-3", "b-1", "a-4"]


def test_logs_of_what_is_rented(clouds: Clouds) -> None:
    clouds.run(ALL)
    text = command("logs", "-n", "2")
    assert "no agent of this user has left a log\n" in text
    for name in ("a-1", "a-2"):
        assert f"==> cloud:{name} <==\n{name} line 28\n{name} line 29\n" in text
    assert "b-1" not in text
    assert command("logs", "cloud:a-1", "-n1") == "==> cloud:a-1 <==\na-1 line 29\n"
    assert "--follow takes one name" in command("logs", "-f", "cloud:a-1", "cloud:a-2", status=2)


def test_a_log_is_followed_until_ctrl_c(clouds: Clouds) -> None:
    clouds.run({"goes-on": "busy"})
    with subprocess.Popen(
        [sys.executable, "-m", "pytest_remotegpu", "logs", "-f", "cloud:goes-on"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "goes-on line 40\n":
                os.kill(process.pid, signal.SIGINT)
                break
        process.stdout.read()
        assert process.wait(20) == 0


def test_gc_takes_away_what_is_left_over(clouds: Clouds) -> None:
    clouds.run(ALL)
    would = command("gc", "--dry-run")
    assert rented(would) == ["cloud:a-3, 1 x T4, orphaned, would be taken away"]
    assert clouds.left == list(ALL)
    assert rented(command("gc")) == ["cloud:a-3 was taken away (1 x T4, orphaned)"]
    assert clouds.left == ["a-1", "a-2", "b-1"]


def test_a_backend_that_can_not_be_asked_does_not_keep_others_from_it(clouds: Clouds) -> None:
    clouds.install(
        "cloud = fakecloud:make",
        "down = fakecloud:down",
        "gone = no_such_module:make",
        "unused = fakecloud:nothing",
    )
    clouds.run(ALL)
    down = "down can't be asked: no route to the host"
    gone = "gone can't be asked: No module named 'no_such_module'"
    for words in (("ps",), ("stop",), ("gc",)):
        text = rented(command(*words, status=1))
        assert text[-2:] == [down, gone]
        assert any(line.startswith("cloud:a-") for line in text)
    assert clouds.left == ["a-2", "b-1"]
    logs = command("logs", status=1)
    assert down in logs
    assert "==> cloud:a-2 <==" in logs
    named = command("stop", "down:x", status=2)
    assert "nothing that runs is called 'down:x'" in named
    assert down in named
    found = {each["name"]: each["trouble"] for each in data("ps", status=1)["backends"]}
    assert found.keys() == {"cloud", "down", "gone"}


def test_a_backend_that_does_not_answer_is_not_waited_for(clouds: Clouds) -> None:
    clouds.install("cloud = fakecloud:make", "deaf = fakecloud:deaf")
    script = (
        "from pytest_remotegpu import rented\n"
        "from pytest_remotegpu.backends.base import Site\n"
        "site = Site(root='/', executable='x')\n"
        "for line in rented.lines(rented.ask(site, patience=1.0)): print(line)\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines() == [
        "cloud: nothing runs",
        "deaf can't be asked: does not answer within 1 s",
    ]
    assert time.monotonic() - began < 20


def test_sessions_and_the_doctor_do_not_import_it(
    clouds: Clouds, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_it="def test_one(): pass")
    assert pytester.runpytest_subprocess("--remote=local:cpu").ret == 0
    assert not (clouds.folder / "imported").exists()
    command("ps")
    assert (clouds.folder / "imported").exists()


# what is left over on this host


@pytest.mark.usefixtures("home", "temporary")
def test_gc_where_nothing_is_left_over() -> None:
    assert command("gc") == "nothing is left over\n"


def test_gc_takes_away_what_dead_workers_left(home: Any, temporary: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = temporary / f"remotegpu-{gone.pid}-abc"
    kept = [
        temporary / f"remotegpu-{os.getpid()}-abc",
        temporary / "remotegpu-notes",
        temporary / "x",
    ]
    for folder in (dead, *kept):
        folder.mkdir()
        (folder / "file").touch()
    (temporary / f"remotegpu-{gone.pid}-link").symlink_to(kept[2])
    sockets = home.runtime / "pytest-remotegpu"
    sockets.mkdir(mode=0o700, exist_ok=True)
    old, new = sockets / "old.log", sockets / "new.log"
    for log in (old, new):
        log.touch()
    os.utime(old, (0, 0))
    expected = {f"{path} would be taken away" for path in (dead, old)}
    assert set(command("gc", "--dry-run").splitlines()) == expected
    assert dead.exists()
    assert set(command("gc").splitlines()) == {f"{path} was taken away" for path in (dead, old)}
    assert not dead.exists()
    assert not old.exists()
    assert all((folder / "file").exists() for folder in kept)
    assert new.exists()


@pytest.mark.usefixtures("temporary")
def test_gc_takes_away_a_dead_agents_socket(warm: Any) -> None:
    [path] = warm.sockets
    assert command("gc") == "nothing is left over\n"  # it is alive
    os.kill(warm.agent, signal.SIGKILL)
    assert until(lambda: "is dead" in command("ps"))
    assert f"{path} would be taken away" in command("gc", "--dry-run")
    assert path.exists()
    assert f"{path} was taken away" in command("gc")
    assert not path.exists()
