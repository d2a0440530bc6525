"""Sessions that find nothing warm at the service, and leave nothing so: of CI, or by an option."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loopback import LoopbackModal
from session.running import run, until

T4 = "--remote=modal:T4"
ONE = "import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n"
WORKER = b"pytest_remotegpu.worker"


@pytest.fixture(params=["option", "CI"])
def freshly(
    request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """Run a session that asks for it, either way."""

    def session(*args: str) -> pytest.RunResult:
        if request.param == "option":
            return run(pytester, T4, "--remote-fresh", *args)
        monkeypatch.setenv("CI", "true")
        return run(pytester, T4, *args)

    return session


def workers(task: str) -> list[int]:
    """List the workers of a container, those that wait for work included."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = f"MODAL_TASK_ID={task}".encode() in (process / "environ").read_bytes()
            if mine and WORKER in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def test_no_container_stays(
    pytester: pytest.Pytester, service: LoopbackModal, freshly: Callable[..., pytest.RunResult]
) -> None:
    """Not even where a longer time is named, which is that of other sessions."""
    pytester.makeini("[pytest]\nremotegpu_idle = 300\nremotegpu_prices = T4 = 360\n")
    pytester.makepyfile(ONE)
    result = freshly("--remote-run-timeout=30", "--remote-json=run.json")
    result.assert_outcomes(passed=1)
    service.wait_until(lambda: not service.running, 15)
    (rented,) = service.containers
    assert rented.definition.autoscaler_settings.scaledown_window == 2
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    assert 2 <= data["workers"][0]["idle_seconds"] < 10
    assert data["cost"]["at_most"] == pytest.approx((30 + 8 + 4 + 2) / 10)
    assert data["cost"]["total"] <= data["cost"]["at_most"]
    result.stdout.fnmatch_lines(["remote: cost: at most $4.40, *"])


def test_no_worker_stays(
    pytester: pytest.Pytester, service: LoopbackModal, freshly: Callable[..., pytest.RunResult]
) -> None:
    """One that others have left waiting is not used either."""
    service.limits.scaledown_scale = 60
    pytester.makepyfile(ONE)
    run(pytester, T4, "-o", "remotegpu_idle=2").assert_outcomes(passed=1)
    (rented,) = service.running
    assert until(lambda: len(workers(rented.id)) > 0)  # of the one that waits, and its children
    waiting = workers(rented.id)
    pytester.makepyfile(f"""
        import os, pathlib, pytest

        @pytest.mark.gpu
        def test_one():
            assert os.environ["MODAL_TASK_ID"] == {rented.id!r}
            assert not [pid for pid in {waiting!r} if pathlib.Path(f"/proc/{{pid}}").exists()]
    """)
    freshly().assert_outcomes(passed=1)
    assert service.running == [rented]
    service.wait_until(lambda: rented.current is None)
    assert workers(rented.id) == []
