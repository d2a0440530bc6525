"""``--remote=local`` on hosts with cards that are not there: who gets which, who waits for whom.

The cards are those of a stand-in for NVIDIA's library; locks and processes are real.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cardfile
from pytest_remotegpu.cards import Card
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.worker.leases import Lease
from session.running import Started, run, said, until
from warmth import Warmth

from .conftest import HOLDS, Host

LOCAL = "--remote=local"
GIB = cardfile.GIB


def lease_of(uuid: str) -> Lease:
    return Lease([Card("0", uuid, "NVIDIA H200", 140 * GIB, 9.0)], Shape(1))


def is_free(uuid: str) -> bool:
    lease = lease_of(uuid)
    taken = lease.take()
    lease.close()
    return taken


SEES = """
    import os
    import pytest

    @pytest.mark.gpu
    def test_one():
        print("ONE", os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("CUDA_DEVICE_ORDER"))

    @pytest.mark.gpu(2)
    def test_two():
        print("TWO", os.environ["CUDA_VISIBLE_DEVICES"])
"""


def test_each_worker_sees_its_own_cards(pytester: pytest.Pytester, host: Host) -> None:
    uuids = host.has("NVIDIA H200", "NVIDIA H200", "NVIDIA H200")
    pytester.makepyfile(test_far=SEES)
    result = run(pytester, LOCAL, "-rP", "--junitxml=junit.xml", "--gpu-required")
    result.assert_outcomes(passed=2)
    text = said(result)
    lines = {line.split()[0]: line.split()[1] for line in text.splitlines() if line[3:4] == " "}
    assert "PCI_BUS_ID" in text
    assert sorted([lines["ONE"], *lines["TWO"].split(",")]) == ["0", "1", "2"]
    junit = (pytester.path / "junit.xml").read_text()
    assert all(uuid[:12] in junit for uuid in uuids)
    assert all(map(is_free, uuids))


@pytest.mark.parametrize(
    ("outer", "seen"),
    [("1", "1"), ("GPU-{1}", "GPU-{1}"), ("2,0", "2"), ("1,-1,0", "1")],
    ids=["index", "uuid", "order", "end"],
)
def test_the_outer_choice_holds(
    outer: str, seen: str, pytester: pytest.Pytester, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuids = host.has("NVIDIA H200", "NVIDIA H200", "NVIDIA H200")
    fill = [uuid.removeprefix("GPU-") for uuid in uuids]
    chosen = {seen.format(*fill)} | ({"0"} if outer == "2,0" else set())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", outer.format(*fill))
    pytester.makepyfile(test_far=SEES)
    result = run(pytester, LOCAL, "-rP", "-k", "one")
    result.assert_outcomes(passed=1)
    found = next(line for line in said(result).splitlines() if line.startswith("ONE"))
    assert found.split()[1] in chosen


@pytest.mark.parametrize("outer", ["", "-1", "NoDevFiles"])
def test_no_card_is_visible(
    outer: str, pytester: pytest.Pytester, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.has("NVIDIA H200")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", outer)
    pytester.makepyfile(test_far=SEES)
    result = run(pytester, LOCAL)
    assert result.ret == 1
    result.assert_outcomes(errors=2)
    why = f"this host shows 0: none (CUDA_VISIBLE_DEVICES is {outer!r})"
    assert f"not run: 1 GPU asked for, and {why}" in result.stdout.str()


def test_the_summary_says_what_the_far_side_is_made_of(
    pytester: pytest.Pytester, host: Host
) -> None:
    host.has("NVIDIA H200")
    pytester.makepyfile(test_far=SEES)
    result = run(pytester, LOCAL, "-k", "one")
    [line] = [line for line in said(result).splitlines() if line.startswith("with ")]
    expected = {"driver 580.65.06"}
    if importlib.util.find_spec("torch") is not None:
        expected.add(f"torch {importlib.metadata.version('torch')}")
    assert expected <= set(line.removeprefix("with ").split(", "))


def test_more_cards_than_there_are(pytester: pytest.Pytester, host: Host) -> None:
    (uuid,) = host.has("NVIDIA H200")
    pytester.makepyfile(test_far=SEES)
    result = run(pytester, LOCAL)
    assert result.ret == 1
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*not run: 2 GPUs asked for, and this host shows 1: NVIDIA H200*"])
    assert is_free(uuid)


def test_what_a_mark_asks_of_a_card(pytester: pytest.Pytester, host: Host) -> None:
    host.has("NVIDIA L4", gib=23.0, capability=8.9)
    pytester.makepyfile(
        test_far="""
            import pytest

            @pytest.mark.gpu(type=["A100", "L4"], min_memory_gib=20, min_capability=8.0)
            def test_fits(): pass

            @pytest.mark.gpu(type="A100")
            def test_type(): pass

            @pytest.mark.gpu(min_memory_gib=40)
            def test_memory(): pass

            @pytest.mark.gpu(min_capability=9.0)
            def test_capability(): pass
        """
    )
    result = run(pytester, LOCAL)
    result.assert_outcomes(passed=1, errors=3)
    text = said(result)
    for reason in (
        "(A100) asked for",
        "at least 40 GiB) asked for",
        "capability 9.0 or newer) ask",
    ):
        assert reason in text


def test_a_busy_card_is_waited_for(pytester: pytest.Pytester, host: Host) -> None:
    (uuid,) = host.has("NVIDIA H200")
    lease = lease_of(uuid)
    assert lease.take()
    pytester.makepyfile(test_far=SEES)
    with Started(pytester, LOCAL, "-k", "one", "--remote-wait=30") as session:
        session.wait_for(f"is held by process {os.getpid()} of")
        lease.close()
        assert session.end() == 0, session.text
    assert f"waiting for 1 GPU: NVIDIA H200 ({uuid[:12]})" in session.text
    assert session.text.count("waiting for") == 1


def test_a_busy_card_is_not_waited_for_too_long(pytester: pytest.Pytester, host: Host) -> None:
    (uuid,) = host.has("NVIDIA H200")
    lease = lease_of(uuid)
    assert lease.take()
    pytester.makepyfile(test_far=SEES)
    result = run(pytester, LOCAL, "-k", "one", "--remote-wait=0.3")
    assert result.ret == 1
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"*not to be had within 0.3 s (--remote-wait): *held by process {os.getpid()} of*"]
    )
    lease.close()


@pytest.fixture(params=[True, False], ids=["fresh", "warm"])
def fresh(request: pytest.FixtureRequest, home: Warmth) -> bool:  # noqa: ARG001 -- used by being there
    """Let sessions share an agent, or have none."""
    given: bool = request.param
    return given


ALONE = """
    import os, pathlib, time
    import pytest

    @pytest.mark.gpu
    @pytest.mark.parametrize("n", range({times}))
    def test_far(n):
        card = pathlib.Path("card-" + os.environ["CUDA_VISIBLE_DEVICES"])
        card.mkdir()
        time.sleep(0.2)
        card.rmdir()
        print("CARD", card)
"""


def test_sessions_take_turns(fresh: bool, pytester: pytest.Pytester, host: Host) -> None:
    """Three sessions on two cards: never two tests on one of them."""
    uuids = host.has("NVIDIA H200", "NVIDIA H200")
    pytester.makepyfile(test_far=ALONE.format(times=3))
    more = ["--remote-fresh"] if fresh else []
    command = [sys.executable, "-m", "pytest", LOCAL, "-p", "no:cacheprovider", *more]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(3)
    ]
    texts = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * 3, "\n".join(texts)
    assert all(map(is_free, uuids))


def test_idle_workers_give_way(pytester: pytest.Pytester, host: Host) -> None:
    """With -x each stretch has its worker; the one that rests keeps no cards from the other."""
    host.has("NVIDIA H200", "NVIDIA H200")
    pytester.makepyfile(
        test_far="""
            import os
            import pytest

            @pytest.mark.gpu
            def test_a(): pass

            @pytest.mark.gpu(2)
            def test_b(): pass

            @pytest.mark.gpu
            def test_c(): pass

            @pytest.mark.gpu(2)
            def test_d(): pass
        """
    )
    result = run(pytester, LOCAL, "-x", "-v")
    result.assert_outcomes(passed=4)
    order = [line.split()[0][-1] for line in said(result).splitlines() if " PASSED" in line]
    assert order == ["a", "b", "c", "d"]


def test_a_stranger_on_the_card_is_named(pytester: pytest.Pytester, host: Host) -> None:
    stranger = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        (uuid,) = host.has("NVIDIA H200", processes=[[stranger.pid, 3 * GIB]])
        pytester.makepyfile(test_far=SEES)
        result = run(pytester, LOCAL, "-k", "one")
    finally:
        stranger.kill()
        stranger.wait()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [f"*({uuid[:12]}) is also used by process {stranger.pid} of *(/bin/sleep 1000), 3.0 GiB"]
    )


@pytest.mark.parametrize("whom", ["controller", "worker"])
def test_a_kill_frees_the_card(whom: str, pytester: pytest.Pytester, host: Host) -> None:
    (uuid,) = host.has("NVIDIA H200")
    pytester.makepyfile(test_far=HOLDS)
    with Started(pytester, LOCAL, "--remote-fresh") as session:
        assert until((pytester.path / "BEGUN").exists)
        assert not is_free(uuid)
        pid = session.process.pid
        if whom == "worker":
            pid = next(p for p in session.living() if b"worker\0" in _command(p) + b"\0")
        os.kill(pid, signal.SIGKILL)
        (pytester.path / "GO").touch()
        status = session.end()
        assert status == (-signal.SIGKILL if whom == "controller" else 0)
        assert until(lambda: is_free(uuid), 5.0)
        assert until(lambda: not session.living(), 5.0)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
    except OSError:
        return b""


def test_compilers_of_kernels_keep_apart(
    pytester: pytest.Pytester, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.has("NVIDIA H200", "NVIDIA H200", "NVIDIA H200")
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.mkdir("caches")))
    monkeypatch.setenv("TRITON_CACHE_DIR", "/chosen")
    pytester.makepyfile(
        test_far="""
            import os
            import pytest

            def show():
                names = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
                print("CACHE", *(os.environ[name] for name in names))

            @pytest.mark.gpu
            def test_a():
                show()

            @pytest.mark.gpu(2)
            def test_b():
                show()
        """
    )
    runs = []
    for _ in range(2):
        text = said(run(pytester, LOCAL, "-rP"))
        found = [line.split() for line in text.splitlines() if line.startswith("CACHE")]
        assert {words[2] for words in found} == {"/chosen"}
        runs.append({words[1] for words in found})
    assert len(runs[0]) == 2
    assert runs[0] == runs[1]
    assert all("caches/pytest-remotegpu/kernels-" in folder for folder in runs[0])


@pytest.mark.parametrize("cards", [1, 2])
def test_processes_of_one_session(cards: int, pytester: pytest.Pytester, host: Host) -> None:
    """``-n 2``: on one card they take turns, on two each has its own."""
    pytest.importorskip("xdist")
    uuids = host.has(*["NVIDIA H200"] * cards)
    pytester.makepyfile(test_far=ALONE.format(times=4))
    result = run(pytester, LOCAL, "-n2", "-rP")
    result.assert_outcomes(passed=4)
    used = {line for line in said(result).splitlines() if line.startswith("CARD")}
    assert len(used) <= cards
    assert all(map(is_free, uuids))


def test_a_context_of_this_side_is_noticed(pytester: pytest.Pytester, host: Host) -> None:
    """A module that uses CUDA while it is imported here takes memory, beside the tests."""
    host.has("NVIDIA H200")
    pytester.makepyfile(
        torch="""
            import types
            cuda = types.SimpleNamespace(is_initialized=lambda: True)
        """,
        test_far="""
            import pytest
            import torch

            @pytest.mark.gpu
            def test_far(): pass
        """,
    )
    result = run(pytester, LOCAL, "-o", "remotegpu_collect=here")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["note: this process has a CUDA context of its own since*"])
