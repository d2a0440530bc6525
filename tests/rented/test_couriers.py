"""Couriers that are killed: what is said of it, what is tried again, and how often."""

from __future__ import annotations

import os
import re
import signal
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from loopback import LoopbackModal
from session.running import Started, until

T4 = ("--remote=modal:T4", "-o", "remotegpu_collect=here")
STEP = "uv pip install"
WHO = r"the process that talks to Modal \(courier, process \d+\)"
BUILDS = WHO + r" was killed by SIGKILL while the image was built; run again what has not run"
STARTS = WHO + r" was killed by SIGKILL while a container was started; run again what has not run"
FOUR = """
    import pathlib, pytest

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(4))
    def test_it(number):
        with pathlib.Path({ran!r}).open("a") as file:
            file.write(f"{{number}}\\n")
"""


@pytest.fixture
def ran(pytester: pytest.Pytester) -> Path:
    """Have a project whose tests note that they have run."""
    path = pytester.path / "ran.txt"
    pytester.makepyfile(FOUR.format(ran=str(path)))
    return path


def couriers(session: Started) -> list[int]:
    """List the couriers of a session."""
    return [
        pid
        for pid in session.living()
        if b"modal.courier" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def kill(session: Started, number: int = 1) -> None:
    """Kill the couriers that there are, so many of them."""
    assert until(lambda: len(couriers(session)) == number), session.text
    os.kill(couriers(session)[0], signal.SIGKILL)


def headed(text: str, what: str) -> list[str]:
    """Find the lines of the summary that begin so."""
    return re.findall(rf"^{what}: (.*)$", text, re.MULTILINE)


def numbers(path: Path) -> list[str]:
    return sorted(path.read_text().split()) if path.exists() else []


def test_one_that_is_killed_while_it_builds_is_replaced_once(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    """The note says what happened, and not what the build has printed last."""
    service.faults.slow_build = {STEP: 2.0}
    with Started(pytester, *T4) as session:
        session.wait_for(STEP)
        kill(session)
        assert session.end() == 0, session.text
        (note,) = headed(session.text, "note")
    assert re.fullmatch(rf"a worker for 1 GPU was lost: .* said hello: {BUILDS}.*", note)
    assert numbers(ran) == ["0", "1", "2", "3"]
    assert len(service.calls) == 1


def test_where_the_next_one_is_killed_as_well_tests_are_errors(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    """Headed by what happened; what the build has printed stands below, and in one of them."""
    service.faults.slow_build = {STEP: 300.0}
    with Started(pytester, *T4, "-rE", "--junitxml=j.xml") as session:
        session.wait_for(STEP)
        (first,) = couriers(session)
        os.kill(first, signal.SIGKILL)
        assert until(lambda: first not in couriers(session) and len(couriers(session)) == 1)
        assert until(lambda: session.text.count(STEP) == 2), session.text
        kill(session)
        assert session.end() == 1
        text = session.text
    (cause,) = headed(text, "cause")
    assert re.fullmatch(rf"the far side ended before it said hello: {BUILDS}.*", cause)
    root = ET.fromstring(pytester.path.joinpath("j.xml").read_text())  # noqa: S314 -- our own
    errors = [each.get("message") for each in root.iter("error")]
    assert len(errors) == 4
    assert all(re.search(BUILDS, str(each)) for each in errors), errors
    assert "left running: nothing" in text
    assert numbers(ran) == []
    assert service.calls == []
    _, _, long = text.partition("ERRORS ====")
    (shown,) = [part for part in long.partition("summary")[0].split("____") if STEP in part]
    assert shown.count("\n") < 20


def test_a_call_whose_courier_is_killed_is_withdrawn_before_the_next_is_made(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    service.faults.start_delay = 5.0
    with Started(pytester, *T4) as session:
        service.wait_until(lambda: len(service.calls) == 1, 30)
        kill(session)
        service.wait_until(lambda: len(service.calls) == 2, 30)
        assert service.inputs[0].output is not None
        assert session.end() == 0, session.text
        (note,) = headed(session.text, "note")
    assert re.search(STARTS, note)
    assert numbers(ran) == ["0", "1", "2", "3"]


def test_one_process_of_several(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    """It goes on as the others do, and hands nobody's tests to errors."""
    pytest.importorskip("xdist")
    service.faults.start_delay = 5.0
    with Started(pytester, "-n2", *T4) as session:
        service.wait_until(lambda: len(service.calls) == 2, 40)
        kill(session, 2)
        assert session.end() == 0, session.text
        assert re.search(STARTS, session.text)
    assert numbers(ran) == ["0", "1", "2", "3"]


def test_one_that_is_killed_while_a_test_runs(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    begun = pytester.path / "begun"
    pytester.makepyfile(f"""
        import pathlib, time, pytest

        @pytest.mark.gpu
        def test_it():
            begun = pathlib.Path({str(begun)!r})
            if not begun.exists():
                begun.touch()
                time.sleep(60)
    """)
    with Started(pytester, *T4) as session:
        assert until(begun.exists)
        kill(session)
        assert session.end() == 0, session.text
        (note,) = headed(session.text, "note")
    rented = service.containers[0]
    assert f"killed by SIGKILL while container {rented.id} was at work" in note
    assert "View Deployment" not in note


def test_one_that_is_killed_after_the_last_verdict(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    """How the far session has ended nobody knows: that is red, and said in a line."""
    ends = pytester.path / "ends"
    pytester.makeconftest(f"""
        import os, pathlib, time

        def pytest_sessionfinish():
            if "MODAL_TASK_ID" in os.environ:
                pathlib.Path({str(ends)!r}).touch()
                time.sleep(60)
    """)
    with Started(pytester, *T4) as session:
        assert until(ends.exists)
        session.wait_for(" ....")
        kill(session)
        assert session.end() == 1
        text = session.text
    assert numbers(ran) == ["0", "1", "2", "3"]
    (rented,) = service.containers
    (cause,) = headed(text, "cause")
    assert (
        f"killed by SIGKILL while container {rented.id} was at work; run again what has not run"
        in cause
    )
    assert text.count(STEP) == 1, text
