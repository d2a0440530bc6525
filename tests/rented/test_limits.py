"""What bounds the work that is rented: limits, -x, Ctrl-C, a laptop that is closed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from loopback import LoopbackModal
from pytest_remotegpu.backends.modal import container
from session.running import LONG, Started, run, said, until

from .test_sessions import at_work, couriers

T4 = "--remote=modal:T4"


@pytest.fixture
def begun(pytester: pytest.Pytester) -> Path:
    """Give the file that a test of a minute makes when it begins."""
    path = pytester.path / "has-begun"
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(path)!r})"))
    return path


def at_rest(service: LoopbackModal) -> None:
    """Wait until each container is without work, soon."""
    service.wait_until(lambda: all(each.current is None for each in service.running), 15)
    service.wait_until(lambda: not any(at_work(each.id) for each in service.running), 10)


def verdicts(pytester: pytest.Pytester) -> dict[str, str]:
    """Give what junit says of each test: nothing for one that has passed."""
    cases = ET.parse(pytester.path / "j.xml").iter("testcase")  # noqa: S314 -- our own file
    bad = {"failure", "error"}
    return {
        str(case.get("name")): ",".join(child.tag for child in case if child.tag in bad)
        for case in cases
    }


def test_a_container_has_limits_of_its_own(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """Where all that is ours should fail, the service still ends the work."""
    pytester.makepyfile("import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n")
    run(pytester, T4, "--remote-run-timeout=100", "-o", "remotegpu_idle=30").assert_outcomes(
        passed=1
    )
    run(pytester, T4).assert_outcomes(passed=1)
    first, second = (each.definition for each in service.containers)
    assert (first.timeout_secs, second.timeout_secs) == (160, 3660)
    found = (first.autoscaler_settings, second.autoscaler_settings)
    assert [each.scaledown_window for each in found] == [30, 60]
    assert [each.max_containers for each in found] == [8, 8]
    assert len(service.deploys) == 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ("0", "--remote-run-timeout=0 is no limit, and at Modal there has to be one; give 1 to"),
        ("86341", "--remote-run-timeout=86341: Modal ends each container after a day"),
    ],
)
def test_a_limit_that_the_service_does_not_take(
    pytester: pytest.Pytester, service: LoopbackModal, seconds: str, words: str
) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n")
    result = run(pytester, T4, f"--remote-run-timeout={seconds}")
    assert result.ret == 4
    assert words in said(result)
    assert "86340 seconds, or leave it out for 3600" in said(result)
    assert not service.calls
    assert not service.deploys


@pytest.mark.usefixtures("begun")
def test_the_run_limit(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """The summary and junit are whole; what has its verdict keeps it."""
    result = run(pytester, T4, "--remote-run-timeout=6", "--junitxml=j.xml")
    assert result.ret == 1
    found = verdicts(pytester)
    assert list(found) == ["test_before", "test_long", "test_after"]
    assert found["test_after"] == "error"
    assert found["test_long"] in {"failure", "error", "failure,error"}
    assert "the run limit of 6 s (--remote-run-timeout) is reached" in said(result)
    at_rest(service)


def test_the_first_failure_ends_it(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    ran = pytester.path / "ran.txt"
    pytester.makepyfile(f"""
        import pathlib, time, pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("number", range(20))
        def test_one(number):
            with pathlib.Path({str(ran)!r}).open("a") as file:
                file.write("x")
            time.sleep(0.3)
            assert number != 1
    """)
    result = run(pytester, T4, "-x")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    assert len(ran.read_text()) <= 4
    at_rest(service)


def test_ctrl_c(pytester: pytest.Pytester, service: LoopbackModal, begun: Path) -> None:
    """What arrived is kept."""
    with Started(pytester, T4) as session:
        assert until(begun.exists)
        session.process.send_signal(signal.SIGINT)
        assert session.end() == 2
        assert "1 passed" in session.text
        assert "KeyboardInterrupt" in session.text
        at_rest(service)


def test_ctrl_c_twice(pytester: pytest.Pytester, service: LoopbackModal, begun: Path) -> None:
    """The first one lets fixtures be torn down, which takes long; the second one waits for none."""
    (module,) = pytester.path.glob("test_*.py")
    module.write_text(module.read_text().replace("    yield\n", "    yield\n    time.sleep(60)\n"))
    with Started(pytester, T4) as session:
        assert until(begun.exists)
        session.process.send_signal(signal.SIGINT)
        time.sleep(1.0)
        assert session.process.poll() is None
        session.process.send_signal(signal.SIGINT)
        told = time.monotonic()
        assert session.end() == 2
        assert time.monotonic() - told < 10
        assert "1 passed" in session.text
        at_rest(service)


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("begun")
def test_a_laptop_is_closed_and_opened_again(
    pytester: pytest.Pytester, service: LoopbackModal, begun: Path
) -> None:
    """The container has ended the work meanwhile; the session says so of each test."""
    with Started(pytester, T4, "--junitxml=j.xml") as session:
        assert until(begun.exists)
        asleep = [*couriers(session.process.pid), session.process.pid]
        for pid in asleep:
            os.kill(pid, signal.SIGSTOP)
        try:
            (rented,) = service.running
            limit = container.LEASE + container.POLL + 10
            service.wait_until(lambda: not at_work(rented.id), limit)
            begun.unlink()
        finally:
            for pid in asleep:
                os.kill(pid, signal.SIGCONT)
        again = until(begun.exists, 20)
        session.process.send_signal(signal.SIGINT)
        status = session.end()
        assert status == 2, session.text
    found = verdicts(pytester)
    assert found.get("test_before") == "", session.text
    assert "test_long" not in found or found["test_long"], session.text
    assert "test_after" not in found or found["test_after"], session.text
    assert again or "lost" in session.text, session.text
