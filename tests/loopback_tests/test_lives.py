"""How calls, apps and containers end, and what can be asked about them meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import modal
import pytest

from loopback import Limits, LoopbackModal

from .standing import Stand, connected

TREE = Path(__file__).parents[2]


def running(stand: Stand, text: bytes) -> Any:
    """Wait until the newest container has printed something, and return it."""
    containers = stand.service.containers
    stand.service.wait_until(lambda: bool(containers) and text in containers[-1].log)
    return containers[-1]


def test_services_beside_each_other_name_their_containers_differently(
    start: Callable[..., Stand],
) -> None:
    """By these names tests tell the processes of theirs from those of others on the host."""
    names = set()
    for _ in range(2):
        stand = start()
        [add] = stand.deploy("add")
        assert add.remote(1, 1) == 2
        names.add(stand.service.containers[0].id)
    assert len(names) == 2


# ---------------------------------------------------------------- cancellation and time-outs


def test_cancel_leaves_the_container_warm(stand: Stand) -> None:
    [count] = stand.deploy("count")
    stream = count.remote_gen(1000, 0.02)
    call_id = next(stream)
    next(stream)
    modal.FunctionCall.from_id(call_id, client=stand.client).cancel()
    with pytest.raises(modal.exception.RemoteError):
        list(stream)
    assert len(list(count.remote_gen(2))) == 3
    assert [each.exit for each in stand.service.containers] == [None]


def test_cancel_may_end_the_container(stand: Stand) -> None:
    [nap] = stand.deploy("nap")
    call = nap.spawn(600)
    stand.service.wait_until(lambda: any(each.current for each in stand.service.containers))
    call.cancel(terminate_containers=True)
    with pytest.raises(modal.exception.RemoteError):
        call.get(timeout=20)
    stand.service.wait_until(lambda: not stand.service.running)
    assert len(stand.service.containers) == 1


def test_a_time_out(start: Any) -> None:
    stand = start(limits=Limits(timeout_scale=0.02))
    [nap] = stand.deploy("nap", timeout=10)
    with pytest.raises(modal.exception.FunctionTimeoutError):
        nap.remote(600)
    # SIGUSR1 was enough: the container goes on.
    assert [each.exit for each in stand.service.containers] == [None]


def test_a_time_out_of_one_that_does_not_listen(start: Any) -> None:
    limits = Limits(timeout_scale=0.05, interrupt_after=0.2, kill_after=0.5)
    stand = start(limits=limits)
    [stubborn] = stand.deploy("stubborn", timeout=10)
    begun = time.monotonic()
    with pytest.raises(modal.exception.FunctionTimeoutError):
        stubborn.remote()
    assert time.monotonic() - begun > 1.0
    assert [each.exit for each in stand.service.containers] == [137]
    assert stand.service.inputs[0].retry_count == 0


# ---------------------------------------------------------------- apps


def test_an_ephemeral_app_ends_with_its_client(stand: Stand) -> None:
    made = stand.app("nap", app="brief")
    with made.run(client=stand.client):
        task = stand.made["nap"].remote(0.0)
        assert [each.id for each in stand.service.running] == [task]
    stand.service.wait_until(lambda: not stand.service.running)
    assert not stand.service.apps[0].live


def test_an_ephemeral_app_without_heartbeats_is_stopped(start: Any, tmp_path: Path) -> None:
    stand = start(limits=Limits(client_gone=1.5))
    script = tmp_path / "brief.py"
    script.write_text(
        "import modal, os\n"
        "from loopback_tests import far_code\n"
        "app = modal.App('brief')\n"
        "image = modal.Image.debian_slim().add_local_python_source('loopback_tests')\n"
        "nap = app.function(image=image, include_source=False)(far_code.nap)\n"
        "with app.run():\n"
        "    nap.remote(0.0)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(TREE / "tests")}
    ended = subprocess.run([sys.executable, str(script)], env=environ, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    stand.service.wait_until(lambda: not stand.service.running)
    assert [app.live for app in stand.service.apps] == [False]


def test_stop_ends_an_app_and_nothing_else(stand: Stand) -> None:
    [nap] = stand.deploy("nap", app="first")
    [other] = stand.deploy("nap", app="second")
    call = nap.spawn(600)
    task = other.remote(0.0)
    stand.service.wait_until(lambda: len(stand.service.running) == 2)
    app = modal.App.lookup("first", client=stand.client)
    if hasattr(app, "stop"):
        app.stop(client=stand.client)
    else:  # the oldest supported client
        cli("app", "stop", "--yes", "first")
    with pytest.raises(modal.exception.RemoteError):
        call.get(timeout=20)
    stand.service.wait_until(lambda: len(stand.service.running) == 1)
    assert other.remote(0.0) == task
    with pytest.raises(modal.exception.NotFoundError):
        modal.Function.from_name("first", "nap", client=stand.client).remote(0.0)


def cli(*words: str) -> str:
    """Run Modal's own command."""
    command = [sys.executable, "-m", "modal", *words]
    environ = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        command, env=environ, check=True, timeout=60, capture_output=True, text=True
    ).stdout


def test_the_command_lists_and_stops(stand: Stand) -> None:
    made = stand.app("nap", app="listed")
    made.deploy(client=stand.client)
    nap = modal.Function.from_name("listed", "nap", client=stand.client)
    task = nap.remote(0.0)
    assert "listed" in cli("app", "list", "--json")
    assert task in cli("container", "list", "--json")
    cli("container", "stop", "--yes", task)
    stand.service.wait_until(lambda: not stand.service.running)
    cli("app", "stop", "--yes", "listed")
    assert not stand.service.apps[0].live


def test_a_list_of_apps(stand: Stand) -> None:
    stand.deploy("nap", app="one")
    stand.deploy("nap", app="two")
    cli("app", "stop", "--yes", "one")
    apps = modal.Environment.from_name("main", client=stand.client).apps.list()
    assert [app.name for app in apps] == ["two"]


def test_tags_and_prices(stand: Stand) -> None:
    made = modal.App("tagged", tags={"pytest-remotegpu": "run-1"})
    made.deploy(client=stand.client)
    assert stand.service.apps[0].tags == {"pytest-remotegpu": "run-1"}
    assert modal.App.lookup("tagged", client=stand.client).get_tags(client=stand.client) == {
        "pytest-remotegpu": "run-1"
    }
    stand.service.rates["gpu_t4"] = "0.000164"
    rates = modal.Workspace.from_context(client=stand.client).billing.rates()
    assert rates["gpu_t4"] == Decimal("0.000164")


# ---------------------------------------------------------------- logs


def test_logs_of_a_call(stand: Stand) -> None:
    [count] = stand.deploy("count")
    call_id = ""
    for upto in (3, 4):
        call_id, *_ = count.remote_gen(upto)
        running(stand, f"counting to {upto}".encode())
    call = modal.FunctionCall.from_id(call_id, client=stand.client)
    assert "".join(entry.message for entry in call.logs.tail(10)) == "counting to 4\n"
    since = datetime.now(UTC) - timedelta(minutes=1)
    until = datetime.now(UTC) + timedelta(minutes=1)
    fetched = call.logs.fetch(since=since, until=until)
    assert "".join(entry.message for entry in fetched) == "counting to 4\n"


def test_logs_of_an_app(stand: Stand) -> None:
    [count] = stand.deploy("count", app="spoken")
    list(count.remote_gen(7))
    running(stand, b"counting to 7")
    app = modal.App.lookup("spoken", client=stand.client)
    assert "counting to 7" in "".join(entry.message for entry in app.logs.tail(10))


def test_statistics_of_a_function(stand: Stand) -> None:
    [nap] = stand.deploy("nap", max_containers=1)
    for _ in range(3):
        nap.spawn(600)
    stand.service.wait_until(lambda: any(each.current for each in stand.service.containers))
    stats = nap.get_current_stats()
    assert (stats.num_total_runners, stats.backlog) == (1, 2)


def test_logs_of_an_app_stream(stand: Stand, capfd: pytest.CaptureFixture[str]) -> None:
    made = stand.app("count", app="loud")
    with modal.enable_output(), made.run(client=stand.client):
        list(stand.made["count"].remote_gen(5))
    assert "counting to 5" in "".join(capfd.readouterr())


# ---------------------------------------------------------------- the input plane


def test_the_input_plane(start: Any) -> None:
    stand = start(input_plane=True)
    add, count = stand.deploy("add", "count")
    assert add.remote(20, 22) == 42
    frames = list(count.remote_gen(3))
    assert [int(frame.split()[1]) for frame in frames[1:]] == [0, 1, 2]
    assert list(add.starmap([(1, 1), (2, 2)])) == [2, 4]
    assert stand.service.count("AttemptStart") == 2
    assert stand.service.count("FunctionMap") == 0


def test_cancel_on_the_input_plane(start: Any) -> None:
    stand = start(input_plane=True)
    [count] = stand.deploy("count")
    stream = count.remote_gen(1000, 0.02)
    modal.FunctionCall.from_id(next(stream), client=stand.client).cancel()
    with pytest.raises(modal.exception.RemoteError):
        list(stream)


def test_the_input_plane_splices_as_well(start: Any) -> None:
    stand = start(input_plane=True)
    stand.service.faults.lose(after=3)
    [count] = stand.deploy("count")
    frames = list(count.remote_gen(20, 0.1))
    assert [int(frame.split()[1]) for frame in frames[1:]] == list(range(20))
    assert len({frame.split()[0] for frame in frames[1:]}) == 2


def test_an_internal_failure_is_tried_again_on_the_input_plane(start: Any) -> None:
    stand = start(input_plane=True)
    stand.service.faults.fail_inputs("INTERNAL_FAILURE", times=3)
    [add] = stand.deploy("add")
    assert add.remote(1, 1) == 2
    assert stand.service.count("AttemptRetry") == 3


# ---------------------------------------------------------------- processes


def alive(pid: int) -> bool:
    """Say whether a process runs."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


def test_nothing_is_left_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackModal(tmp_path / "service") as service:
        for name, value in service.environ.items():
            monkeypatch.setenv(name, value)
        with connected(*service.faults.token) as client:
            where, nap = Stand(service, client).deploy("surroundings", "nap")
            pid = where.remote()["pid"]
            nap.spawn(600)
            service.wait_until(lambda: any(each.current for each in service.containers))
    assert not service.running
    assert not alive(pid)


def test_idle_containers_may_end_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackModal(tmp_path / "service", limits=Limits(farewell=20.0)) as service:
        for name, value in service.environ.items():
            monkeypatch.setenv(name, value)
        with connected(*service.faults.token) as client:
            [add] = Stand(service, client).deploy("add")
            assert add.remote(1, 1) == 2
    assert [each.exit for each in service.containers] == [0]


def server(*words: str, scratch: Path | None = None) -> subprocess.Popen[str]:
    """Start the command that serves."""
    command = [sys.executable, "-m", "tests.loopback", *words]
    environ = os.environ if scratch is None else {**os.environ, "TMPDIR": str(scratch)}
    return subprocess.Popen(command, cwd=TREE, env=environ, stdout=subprocess.PIPE, text=True)


def exported(lines: Iterator[str]) -> dict[str, str]:
    """Read what the command prints for a shell."""
    found = {}
    for line in lines:
        if line.startswith("#"):
            break
        name, _, value = line.removeprefix("export ").strip().partition("=")
        found[name] = value
    return found


def test_nothing_is_left_of_a_service_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(scratch=tmp_path) as process:
        assert process.stdout is not None
        for name, value in exported(process.stdout).items():
            monkeypatch.setenv(name, value)
        token = os.environ["MODAL_TOKEN_ID"], os.environ["MODAL_TOKEN_SECRET"]
        with connected(*token) as client:
            where, leave = Stand(None, client).deploy("surroundings", "leave_child")
            pids = [where.remote()["pid"], leave.remote()]
            assert all(map(alive, pids))
            process.kill()
            deadline = time.monotonic() + 20
            while any(map(alive, pids)) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not any(map(alive, pids))


def test_the_command_serves_until_it_is_told_to_stop() -> None:
    with server() as process:
        assert process.stdout is not None
        assert exported(process.stdout)["MODAL_SERVER_URL"].startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_ctrl_c_is_the_other_commands_own() -> None:
    waiting = "import time; print('waiting', flush=True); time.sleep(60)"
    command = [sys.executable, "-m", "tests.loopback", "--", sys.executable, "-c", waiting]
    with subprocess.Popen(
        command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        os.killpg(process.pid, signal.SIGINT)
        out, error = process.communicate(timeout=20)
        assert (process.returncode, out) == (128 + signal.SIGINT, b"")
        assert error.count(b"Traceback") == 1  # the other command's


def test_the_command_runs_another(tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "import modal, sys\n"
        "claims = modal.Dict.from_name('claims', create_if_missing=True)\n"
        "sys.exit(7 if claims.put('a', 1, skip_if_exists=True) else 1)\n"
    )
    with server("--", sys.executable, str(script)) as process:
        assert process.wait(60) == 7
