"""Whole sessions: what is deployed and rented, what stays, what ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from pathlib import Path

import pytest

from loopback import LoopbackModal
from pytest_remotegpu.backends.modal import container
from session.running import LONG, Started, run, said, until

T4 = "--remote=modal:T4"
COLLECTS_HERE = ("-o", "remotegpu_collect=here")
"""For tests that count containers: else one that has collected is there already, and warm."""
THREE = """
    import os, pathlib, pytest

    @pytest.mark.gpu
    def test_one(artifacts_dir):
        (artifacts_dir / "a.txt").write_text("from afar")
        print("container", os.environ["MODAL_TASK_ID"])

    @pytest.mark.gpu
    def test_two():
        assert not pathlib.Path("/nowhere").exists(), "two"
        assert 1 == 2

    def test_here():
        assert "MODAL_TASK_ID" not in os.environ
"""


def test_once_more(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """The second session deploys nothing, and finds the container and a warm worker."""
    pytester.makepyfile(THREE)
    first = run(pytester, T4, "-rA")
    assert first.ret == 1
    first.assert_outcomes(passed=2, failed=1)
    why = "*builds rgpu-*, since no environment of this project is known here"
    first.stdout.fnmatch_lines([why])
    first.stdout.fnmatch_lines(["*a.txt*"])
    second = run(pytester, T4, "-rA")
    second.assert_outcomes(passed=2, failed=1)
    assert "builds" not in said(second)
    assert len(service.deploys) == 1
    assert [container.gpu for container in service.containers] == ["T4:1"]
    assert len(service.calls) == 2


def test_shapes_have_containers_of_their_own(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile("""
        import os, pytest

        @pytest.mark.gpu
        def test_one(gpu): assert gpu.count == 1

        @pytest.mark.gpu(2, type="A100-80GB")
        def test_two(gpu): assert gpu.count == 2

        @pytest.mark.gpu(env={"SPECIAL": "yes"})
        def test_variable(): assert os.environ["SPECIAL"] == "yes"
    """)
    result = run(pytester, T4, *COLLECTS_HERE)
    result.assert_outcomes(passed=3)
    found = sorted(str(container.gpu) for container in service.containers)
    assert found == ["A100-80GB:2", "T4:1", "T4:1"]
    assert len(service.deploys) == 1


def test_the_first_that_is_free(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    service.faults.no_capacity = {"H100"}
    pytester.makepyfile(test_a="import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n")
    result = run(pytester, "--remote=modal:H100,L4")
    result.assert_outcomes(passed=1)
    assert said(result).count("-h100-l4, since no environment of this project is known here") == 1
    assert [container.gpu for container in service.containers] == ["L4:1"]


def test_nothing_that_stays(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """An app of the session alone ends with it, and its containers do."""
    pytester.makepyfile(THREE)
    result = run(pytester, T4, "--remote-ephemeral")
    result.assert_outcomes(passed=2, failed=1)
    assert len(service.containers) == 1
    service.wait_until(lambda: not service.running)
    text = said(result)
    assert "deployed" not in text
    assert text.count("builds rgpu-") == 1
    assert ", since no environment of this project is known here" in text
    again = said(run(pytester, T4, "--remote-ephemeral", "--remote-workers=2"))
    assert again.count("builds rgpu-") == 1
    assert ", since --remote-ephemeral leaves none for a second session" in again


def test_a_list_of_cards_of_a_known_environment(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """It has a function of its own, and the session says that this is why something is built."""
    pytester.makepyfile(test_a="import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n")
    run(pytester, T4).assert_outcomes(passed=1)
    text = said(run(pytester, "--remote=modal:H100,L4"))
    assert text.count("-h100-l4, since none was deployed yet for H100,L4") == 1
    assert "builds" not in said(run(pytester, "--remote=modal:H100,L4"))
    assert len(service.deploys) == 2


@pytest.mark.parametrize("more", [(), ("--remote-ephemeral",)])
def test_it_says_where_the_service_shows_it(
    pytester: pytest.Pytester, service: LoopbackModal, more: tuple[str, ...]
) -> None:
    """Once for an app, whoever asks for containers of it; not where no header is wanted."""
    modules = {f"test_{letter}": THREE for letter in "ab"}
    pytester.makepyfile(**modules)
    options = (*COLLECTS_HERE, "--remote-workers=2", "--remote-json=run.json", *more)
    text = said(run(pytester, T4, *options))
    apps = {app.id for app in service.world.apps.values() if app.name.startswith("rgpu-")}
    pattern = r"^remote: rgpu-\w+ is shown at https://modal\.com/id/(.*)$"
    lines = re.findall(pattern, text, re.MULTILINE)
    assert len(service.calls) == 2
    assert sorted(lines) == sorted(apps)
    assert len(apps) == (2 if more else 1)
    assert text.index("is shown at") < text.index("= FAILURES =")
    pages = json.loads(pytester.path.joinpath("run.json").read_text())["backend"]["pages"]
    assert sorted(pages) == [f"https://modal.com/id/{app}" for app in sorted(apps)]
    if not more:
        assert "is shown at" not in said(run(pytester, T4, "-q"))


def test_another_environment_of_the_workspace(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that belongs together is in the environment that MODAL_ENVIRONMENT names."""
    monkeypatch.setenv("MODAL_ENVIRONMENT", "dev")
    pytester.makepyfile(THREE)
    run(pytester, T4).assert_outcomes(passed=2, failed=1)
    assert len(service.containers) == 1
    assert {name[1] for name in service.world.names if "rgpu" in name[2]} == {"dev"}


def test_ephemeral_is_for_what_deploys(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(THREE)
    result = run(pytester, "--remote=local:cpu", "--remote-ephemeral")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--remote-ephemeral is for backends that deploy something*"])


def test_workers_share(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile(**{
        f"test_{letter}": f"""
            import time, pytest

            @pytest.mark.gpu
            def test_{letter}(): time.sleep(0.5)
        """
        for letter in "abcd"
    })  # fmt: skip
    result = run(pytester, T4, "--remote-workers=2")
    result.assert_outcomes(passed=4)
    assert len(service.containers) == 2
    result.stdout.fnmatch_lines(["1 GPU   2 workers   4 tests*"])


@pytest.mark.parametrize("modules", [1, 4])
def test_no_worker_is_rented_that_would_come_too_late(
    pytester: pytest.Pytester, service: LoopbackModal, modules: int
) -> None:
    """Not for a single module of which nothing is known, nor for seconds that are known."""
    body = "import time, pytest\n"
    for number in range(4):
        body += f"\n@pytest.mark.gpu\ndef test_{number}(): time.sleep(0.3)\n"
    pytester.makepyfile(**{f"test_m{number}": body for number in range(modules)})
    args = (T4, "--remote-workers=4")
    run(pytester, *args).assert_outcomes(passed=4 * modules)
    first = len(service.calls)
    assert first == 1 or modules > 1
    run(pytester, *args).assert_outcomes(passed=4 * modules)
    assert len(service.calls) == first + 1


def test_many_files_and_much_output(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """More than a message of the service holds, both ways."""
    pytester.path.joinpath("weights.bin").write_bytes(bytes(range(256)) * 2**15)
    pytester.makepyfile("""
        import pathlib, pytest

        @pytest.mark.gpu
        def test_one(artifacts_dir):
            data = pathlib.Path("weights.bin").read_bytes()
            assert len(data) == 2**23 and data[:256] == bytes(range(256))
            print("x" * 3_000_000)
            (artifacts_dir / "copy.bin").write_bytes(data)
    """)
    result = run(pytester, T4)
    result.assert_outcomes(passed=1)
    (copy,) = pytester.path.glob(".pytest_cache/d/remotegpu/artifacts/*/copy.bin")
    assert copy.read_bytes() == pytester.path.joinpath("weights.bin").read_bytes()
    assert service.count("QueuePut") > 0


def test_what_it_cost(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile(THREE)
    result = run(pytester, T4, "--remote-json=run.json", "--junitxml=j.xml")
    result.stdout.fnmatch_lines(["*cost: about $*of at most $*"])
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    assert data["session"]["exit_status"] == 1
    assert "remotegpu_cost_usd" in pytester.path.joinpath("j.xml").read_text()
    refused = run(pytester, T4, "--remote-max-cost=0.01")
    assert refused.ret == 4
    assert len(service.calls) == 1


@pytest.mark.timeout(150)
@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9", "kill -9 of the courier", "no network"])
def test_ends(pytester: pytest.Pytester, service: LoopbackModal, how: str) -> None:
    """Whatever becomes of the session, the work in the container ends; the container stays."""
    mark = pytester.path / "has-begun"
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(mark)!r})"))
    session = Started(pytester, T4)
    try:
        assert until(mark.exists)
        if how == "Ctrl-C":
            session.process.send_signal(signal.SIGINT)
        elif how == "kill -9":
            session.process.send_signal(signal.SIGKILL)
        else:
            # a courier that says nothing any more is what a laptop without a network looks like
            number = signal.SIGKILL if "courier" in how else signal.SIGSTOP
            (courier,) = couriers(session.process.pid)
            os.kill(courier, number)
        seconds = container.LEASE + container.POLL + 10 if how == "no network" else 15
        (rented,) = service.running
        if how == "kill -9 of the courier":  # the session goes on, in the container that it had
            service.wait_until(lambda: len(rented.inputs) == 2, seconds)
            assert not any(each.inputs for each in service.containers if each is not rented)
            return
        service.wait_until(lambda: rented.current is None, seconds)
        service.wait_until(lambda: not at_work(rented.id), 10)
    finally:
        for pid in couriers(session.process.pid):
            os.kill(pid, signal.SIGKILL)
        session.process.kill()
        session.process.wait(10)


def couriers(parent: int) -> list[int]:
    """List the couriers of a session."""
    return [
        pid
        for pid in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
        if b"courier" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ] if Path(f"/proc/{parent}").exists() else []  # fmt: skip


def at_work(task: str) -> list[int]:
    """List the processes of a container that have a test's folder for theirs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = f"MODAL_TASK_ID={task}".encode() in (process / "environ").read_bytes()
            if mine and "/trees/" in str((process / "cwd").readlink()):
                found.append(int(process.name))
    return found
