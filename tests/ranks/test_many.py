"""Deadlocks and deaths in a row, each kind in turn: right outcomes, soon, and nobody left behind.

``REMOTEGPU_RANK_FAULTS=100`` plants so many; each kind once, unless that is set.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from session.running import CPU, said, until

from .test_sessions import needs_torch, outcomes

KINDS = 12
PLANTED = max(int(os.environ.get("REMOTEGPU_RANK_FAULTS", KINDS)), KINDS)
SOON = 5.0
"""Seconds that a fault may take beyond what its test has for itself."""
TESTS = """
    import ctypes, os, signal, subprocess, time
    import pytest, torch, torch.distributed as dist
    pytestmark = pytest.mark.gpu(2, launcher="torchrun")

    def join(): dist.init_process_group("gloo")

    def raises(rank):
        join()
        if rank: raise ValueError("unhappy")
        dist.barrier()

    def leaves(rank):
        join()
        if rank: os._exit(4)
        dist.barrier()

    def leaves_well(rank):
        join()
        if rank: os._exit(0)
        dist.barrier()

    def segfault(rank):
        join()
        if not rank: ctypes.string_at(0)
        dist.barrier()

    def killed(rank):
        join()
        if rank: os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    def before(rank):
        if rank: raise ValueError("never joins")
        join()

    def after(rank):
        join()
        dist.barrier()
        if rank: raise ValueError("done")
        time.sleep(600)

    def deaf(rank):
        join()
        if rank: raise ValueError("done")
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
        time.sleep(600)

    def parent(rank):
        join()
        subprocess.Popen(["sleep", "600"])
        if rank: os._exit(3)
        dist.barrier()

    def in_fixture(rank): pass
    def in_teardown(rank): pass
    def nobody_comes(rank):
        join()
        if rank: time.sleep(600)
        dist.barrier()

    KINDS = [raises, leaves, leaves_well, segfault, killed, before, after, deaf, parent,
             in_fixture, in_teardown, nobody_comes]

    @pytest.fixture
    def around(request, rank):
        kind = request.node.callspec.params["kind"]
        if kind is in_fixture:
            join()
            if rank: raise ValueError("in a fixture")
            dist.barrier()
        yield
        if kind is in_teardown:
            join()
            if rank: raise ValueError("in teardown")
            dist.barrier()

    def parameters():
        for number in range(PLANTED):
            kind = KINDS[number % len(KINDS)]
            limit = [pytest.mark.gpu(timeout=2)] if kind is nobody_comes else []
            yield pytest.param(kind, id=f"{kind.__name__}-{number}", marks=limit)

    @pytest.mark.parametrize("kind", [*parameters()])
    def test_fault(around, kind, rank): kind(rank)

    def test_well():
        join()
        dist.barrier()
"""


def living(mark: str) -> list[str]:
    """List the processes that bear *mark* in their environment, but those that stay warm."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if mark.encode() in (entry / "environ").read_bytes() and "worker.agent" not in words:
                found.append(words)
        except OSError:
            continue
    return [words for words in found if "--warm" not in words]


@needs_torch
@pytest.mark.timeout(120 + 8 * PLANTED)
def test_faults_in_a_row(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"of-{uuid.uuid4().hex}"
    monkeypatch.setenv("REMOTEGPU_TRACE", mark)
    pytester.makepyfile(TESTS.replace("PLANTED", str(PLANTED)))
    options = ("-v", "--junitxml=junit.xml", "-p", "no:cacheprovider", "-o", "junit_family=xunit1")
    result = pytester.runpytest_subprocess(CPU, *options, timeout=100 + 8 * PLANTED)
    text = said(result)
    found = outcomes(text)
    assert found["test_well"] == "PASSED"
    wrong = {name for name, outcome in found.items() if outcome not in ("FAILED", "ERROR")}
    assert wrong == {"test_well"}
    assert len(found) == PLANTED + 1
    cases = ET.parse(pytester.path / "junit.xml").iter("testcase")  # noqa: S314 -- our own
    slow = {
        str(case.get("name")): float(case.get("time", 0))
        for case in cases
        if float(case.get("time", 0)) > SOON + 2 * ("nobody" in str(case.get("name")))
    }
    assert slow == {}
    took = re.search(r" in ([\d.]+)s", text)
    assert took is not None
    assert float(took[1]) < 60 + SOON * PLANTED
    assert until(lambda: not living(mark), 10.0), living(mark)
