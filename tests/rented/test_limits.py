"""What bounds the work that is rented: limits, -x, Ctrl-C, a laptop that is closed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from loopback import LoopbackModal
from pytest_remotegpu.backends.base import Environment, Site
from pytest_remotegpu.backends.modal import container, make
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import frames
from pytest_remotegpu.protocol.hello import Hello
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


# what is paid for


def bill(pytester: pytest.Pytester) -> tuple[float, float, float]:
    """Read the record: what was spent, the most that was said, and the idle seconds."""
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    idle = sum(worker["idle_seconds"] for worker in data["workers"])
    return float(data["cost"]["total"] or 0), float(data["cost"]["at_most"]), float(idle)


@pytest.fixture
def priced(pytester: pytest.Pytester) -> None:
    """Have a card cost ten cents a second, and a test that takes one."""
    pytester.makeini("[pytest]\nremotegpu_prices = T4 = 360\n")
    pytester.makepyfile("""
        import time, pytest

        @pytest.mark.gpu
        def test_one(): time.sleep(1)
    """)


@pytest.mark.usefixtures("priced")
def test_building_is_not_renting(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """The limit, and what is paid for, begin with the call for a container."""
    service.faults.slow["ImageJoinStreaming"] = 4.5  # it is asked three times
    began = time.monotonic()
    image = ("-o", "remotegpu_image=apt: libnuma3")
    result = run(pytester, T4, "--remote-run-timeout=10", "--remote-json=run.json", *image)
    assert time.monotonic() - began > 11
    result.assert_outcomes(passed=1)
    spent, most, idle = bill(pytester)
    assert most == pytest.approx((10 + 8 + 4 + 60) / 10)
    assert 6.1 < spent < 7.2
    assert 60 <= idle < 66


@pytest.mark.parametrize("more", [(), ("-n2",)], ids=["here", "xdist"])
def test_the_dearest_tests_are_named(
    pytester: pytest.Pytester,
    service: LoopbackModal,  # noqa: ARG001 -- what the client finds
    more: tuple[str, ...],
) -> None:
    """Not the longest: two cards cost twice as much; and none with -q."""
    if more:
        pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nremotegpu_prices = T4 = 360\n")
    pytester.makepyfile("""
        import time, pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("number", range(3))
        def test_one(number): time.sleep(number / 4)

        @pytest.mark.gpu(2)
        def test_two(): time.sleep(0.4)
    """)
    result = run(pytester, T4, *more)
    result.assert_outcomes(passed=4)
    lines = said(result).splitlines()
    place = lines.index("dearest tests:")
    named = [line.rpartition("::")[2] for line in lines[place + 1 : place + 4]]
    assert named == ["test_two", "test_one[2]", "test_one[1]"]
    assert not lines[place + 4].startswith("  ")
    quiet = run(pytester, T4, "-q", *more)
    assert "dearest tests:" not in said(quiet)


@pytest.mark.usefixtures("priced")
def test_a_container_that_ends_with_its_app_is_not_idle(
    pytester: pytest.Pytester,
    service: LoopbackModal,  # noqa: ARG001 -- what the client finds
) -> None:
    run(pytester, T4, "--remote-ephemeral", "--remote-json=run.json").assert_outcomes(passed=1)
    spent, _, idle = bill(pytester)
    assert 0.1 < spent < 1.5
    assert idle < 5


@pytest.mark.parametrize("what", ["build", "secret", "quota", "card"])
@pytest.mark.usefixtures("priced")
def test_where_there_was_no_container_nothing_is_paid_for(
    pytester: pytest.Pytester, service: LoopbackModal, what: str
) -> None:
    more: tuple[str, ...] = ()
    if what == "build":
        service.faults.build_failure = "ninja: build stopped"
    elif what == "quota":
        service.faults.quota()
    elif what == "card":
        service.faults.no_capacity = {"T4"}
        more = ("--remote-wait=2",)
    else:
        more = ("-o", "remotegpu_secrets=nobody-knows-it")
    result = run(pytester, T4, "--remote-json=run.json", *more)
    assert result.ret in {2, 4}
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    assert [worker["cost_usd"] for worker in data["workers"]] == [0] * len(data["workers"])
    assert "cost: about $0." not in said(result)


@pytest.mark.usefixtures("priced")
def test_a_run_at_its_limit_costs_no_more_than_was_said(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile("""
        import time, pytest

        @pytest.mark.gpu
        def test_one(): time.sleep(60)
    """)
    service.faults.lose(after=3)
    run(pytester, T4, "--remote-run-timeout=5", "--remote-json=run.json")
    spent, most, _ = bill(pytester)
    assert 0 < spent <= most


@pytest.mark.timeout(90)
def test_the_container_ends_at_the_limit_by_itself(service: LoopbackModal) -> None:
    """What is left of the run travels with the call; a client that only keeps the lease is none."""
    channel = make("T4", Site(executable=sys.executable, run_limit=8.0)).open(
        Shape(1), Environment()
    )
    try:
        channel.send(frames.frame(Hello.here().encode()))
        service.wait_until(lambda: any(each.current for each in service.running), 30)
        began = time.monotonic()
        with contextlib.suppress(FarSideError):
            for _ in channel.frames():
                pass
        assert 3 < time.monotonic() - began < 8 + 6
        at_rest(service)
    finally:
        channel.stop()
