"""How sessions end at the service: nothing is rented after them, and what stays is said."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from grpclib import Status
from modal_proto import api_pb2

from loopback import LoopbackModal
from session.running import LONG, Started, run, said, until

from .test_command import remotegpu

T4 = "--remote=modal:T4"
ONE = "import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n"


def nobody_comes(service: LoopbackModal) -> None:
    """Give the card back that nobody could have, and see that no machine is taken for it."""
    service.faults.no_capacity = set()
    service.wait_until(lambda: not service.running, 15)
    assert [each.id for each in service.containers if each.pid is not None] == []


# calls for which no container has come


@pytest.mark.parametrize("limit", ["--remote-wait=2", "--remote-run-timeout=3"])
def test_what_was_not_waited_for_does_not_come_later(
    pytester: pytest.Pytester, service: LoopbackModal, limit: str
) -> None:
    service.faults.no_capacity = {"T4"}
    pytester.makepyfile(ONE)
    result = run(pytester, T4, limit)
    result.assert_outcomes(errors=1)
    assert [entry.output is not None for entry in service.inputs] == [True]
    nobody_comes(service)


@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
def test_what_nobody_needs_any_more_does_not_come_later(
    pytester: pytest.Pytester, service: LoopbackModal, how: str
) -> None:
    service.faults.no_capacity = {"T4"}
    pytester.makepyfile(ONE)
    with Started(pytester, T4) as session:
        service.wait_until(lambda: bool(service.inputs), 30)
        session.process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
        session.end()
        service.wait_until(lambda: all(each.output is not None for each in service.inputs), 15)
    nobody_comes(service)


# what is said of what stays


@pytest.mark.parametrize("idle", ["20", "1"])
def test_who_rents_a_container_is_told_how_long_it_stays(
    pytester: pytest.Pytester, service: LoopbackModal, idle: str
) -> None:
    pytester.makepyfile(ONE)
    result = run(pytester, T4, "-o", f"remotegpu_idle={idle}", "--remote-json=run.json")
    result.assert_outcomes(passed=1)
    (app,) = {app.name for app in service.apps if app.live}
    stays = "left running: 1 machine without work, paid for until ??:??; to end it now: "
    result.stdout.fnmatch_lines([f"{stays}remotegpu stop modal:{app}"])
    (rented,) = service.containers
    assert rented.definition.autoscaler_settings.scaledown_window == max(int(idle), 2)
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    (left,) = data["left_running"]
    assert (left["name"], left["confirmed"]) == (f"modal:{app}", True)
    ended = data["session"]["began"] + data["session"]["seconds"]
    assert ended - 10 < left["until"] < ended + int(idle) + 10
    paid = data["workers"][0]["idle_seconds"]
    assert max(int(idle), 2) <= paid < int(idle) + 8


def test_what_is_said_to_end_it_does(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile(ONE)
    text = said(run(pytester, T4))
    (line,) = re.findall("to end it now: remotegpu (stop .*)", text)
    assert remotegpu(*line.split()).strip().endswith("has ended")
    service.wait_until(lambda: not service.running)


def test_two_sessions_leave_one_container(
    pytester: pytest.Pytester,
    service: LoopbackModal,  # noqa: ARG001 -- what the client finds
) -> None:
    """A container that served several workers, one after the other, is one."""
    pytester.makepyfile(ONE + "\n\n@pytest.mark.gpu(type='L4')\ndef test_two(): pass\n")
    result = run(pytester, T4)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["left running: 2 machines without work, *; to end them now: *"])


def test_an_app_of_the_session_leaves_nothing(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(ONE)
    result = run(pytester, T4, "--remote-ephemeral")
    result.stdout.fnmatch_lines(["left running: nothing"])
    service.wait_until(lambda: not service.running, 5)


@pytest.mark.parametrize("refused", ["", "cancellation", "service"])
def test_a_call_that_no_container_took(
    pytester: pytest.Pytester, service: LoopbackModal, refused: str
) -> None:
    """It costs nothing; where the service does not confirm that it has ended, nobody says so."""
    service.faults.no_capacity = {"T4"}
    if refused == "cancellation":
        service.faults.refuse("FunctionCallCancel", Status.INTERNAL, "no", times=None)
    elif refused == "service":
        service.faults.refuse("FunctionGetCurrentStats", Status.PERMISSION_DENIED, times=None)
    pytester.makepyfile(ONE)
    result = run(pytester, T4, "--remote-wait=2", "--remote-json=run.json")
    result.assert_outcomes(errors=1)
    text = said(result)
    assert ("left running: nothing" in text) == (not refused), text
    assert ("a machine may still start or be at work" in text) == bool(refused), text
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    assert (data["cost"]["total"] > 0) == (refused == "cancellation")


@pytest.mark.parametrize("service", [False, True], ids=["control", "input"], indirect=True)
def test_a_call_whose_answer_was_lost(
    pytester: pytest.Pytester, service: LoopbackModal, request: pytest.FixtureRequest
) -> None:
    """The service has it, under an id that nobody knows: none can begin it, and nobody says $0."""
    service.faults.no_capacity = {"T4"}
    plane = request.node.callspec.params["service"]
    service.faults.lose_answers("AttemptStart" if plane else "FunctionMap")
    ran = pytester.path / "ran"
    pytester.makepyfile(f"""
        import pathlib, pytest

        @pytest.mark.gpu
        def test_one(): pathlib.Path({str(ran)!r}).touch()
    """)
    result = run(pytester, T4, "--remote-json=run.json")
    result.assert_outcomes(errors=1)
    text = said(result)
    assert "Modal's service does not answer as it should (the answer is lost)" in text
    assert "left running: a machine may still start or be at work" in text
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    assert data["cost"]["total"] > 0
    assert [left["confirmed"] for left in data["left_running"]] == [False]
    assert len(service.calls) == 1
    service.faults.no_capacity = set()
    service.wait_until(lambda: any(each.pid is not None for each in service.containers), 30)
    service.wait_until(lambda: not service.running, 15)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (Status.FAILED_PRECONDITION, True),
        (Status.INVALID_ARGUMENT, True),
        (Status.NOT_FOUND, True),
        (Status.PERMISSION_DENIED, True),
        (Status.UNIMPLEMENTED, True),
        (Status.DATA_LOSS, False),
        (Status.INTERNAL, False),
    ],
    ids=lambda value: value.name if isinstance(value, Status) else "",
)
def test_a_call_that_was_refused(
    pytester: pytest.Pytester, service: LoopbackModal, status: Status, *, refused: bool
) -> None:
    """It costs nothing; an error that does not say so may stand for one that was taken."""
    service.faults.refuse("FunctionMap", status, "the reason", times=None)
    pytester.makepyfile(ONE)
    result = run(pytester, T4, "--remote-json=run.json")
    text = said(result)
    assert "the reason" in text
    assert ("left running: nothing" in text) == refused, text
    assert ("a machine may still start or be at work" in text) != refused, text
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    assert (data["cost"]["total"] > 0) != refused


def test_a_call_that_began_although_its_answer_was_lost(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """It is told to stop, and paid for since it was asked for."""
    service.faults.lose_answers("FunctionMap")
    service.faults.slow = {"FunctionMap": 3.0}  # of each repetition: the container is there by then
    pytester.makepyfile("import time, pytest\n\n@pytest.mark.gpu\ndef test_one(): time.sleep(60)\n")
    result = run(pytester, T4, "--remote-json=run.json")
    result.assert_outcomes(errors=1)
    assert "left running: a machine may still start or be at work" in said(result)
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    assert data["workers"][0]["start_seconds"] + data["workers"][0]["idle_seconds"] > 60 + 6
    service.wait_until(lambda: all(each.output is not None for each in service.inputs), 20)
    assert len(service.calls) == len(service.containers) == 1


def test_a_preempted_container_is_not_there_and_the_one_after_it_is(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    begun = pytester.path / "has-begun"
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(begun)!r})"))
    with Started(pytester, T4) as session:
        assert until(begun.exists)
        begun.unlink()
        service.preempt(service.running[0])
        assert until(begun.exists)
        session.process.send_signal(signal.SIGINT)
        assert session.end() == 2
        text = session.text
    assert "left running: 1 machine without work, paid for until" in text, text
    service.wait_until(lambda: all(each.current is None for each in service.running), 15)
    assert len(service.running) == 1


def worker(task: str) -> list[int]:
    """List the processes of a container's worker."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = f"MODAL_TASK_ID={task}".encode() in (process / "environ").read_bytes()
            if mine and b"pytest_remotegpu.worker" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ["Ctrl-C", "Ctrl-C twice", "frozen"])
def test_an_interrupted_session_says_what_stays(
    pytester: pytest.Pytester, service: LoopbackModal, how: str
) -> None:
    begun = pytester.path / "has-begun"
    slow = LONG.replace("        yield\n", "        yield\n        time.sleep(60)\n")
    module = slow if how == "Ctrl-C twice" else LONG
    pytester.makepyfile(
        module.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(begun)!r})")
    )
    with Started(pytester, T4) as session, contextlib.ExitStack() as thaw:
        assert until(begun.exists)
        for pid in worker(service.running[0].id) if how == "frozen" else ():
            os.kill(pid, signal.SIGSTOP)
            thaw.callback(wake, pid)
        session.process.send_signal(signal.SIGINT)
        if how == "Ctrl-C twice":
            time.sleep(1.0)
            session.process.send_signal(signal.SIGINT)
        assert session.end() == 2
        text = session.text
    assert "left running: 1 machine without work, paid for until" in text
    assert ("modal-1 had not ended 6 s after Ctrl-C: it was cut off" in text) == (how == "frozen")
    service.wait_until(lambda: all(each.current is None for each in service.running), 15)


def test_the_way_out_of_a_wait_can_be_typed(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    service.faults.no_capacity = {"L4", "H100"}
    pytester.makepyfile(
        ONE
        + "\n\n@pytest.mark.gpu(2, type='H100')\ndef test_two(): pass\n"
        + "\n\n@pytest.mark.gpu(2)\ndef test_three(): pass\n"
    )
    # who can't even collect waits for one card only
    here = ("-o", "remotegpu_collect=here")
    text = said(run(pytester, "--remote=modal:L4", "--remote-wait=2", *here))
    assert text.count("name further cards, such as --remote=modal:L4,T4, or wait longer") >= 2
    assert 'in the mark, such as gpu(2, type=["H100", "T4"]), or wait longer' in text


@pytest.mark.parametrize("limit", ["--remote-wait=2", "--remote-run-timeout=6"])
def test_an_app_of_the_session_ends_where_that_is_cut_off(
    pytester: pytest.Pytester, service: LoopbackModal, limit: str
) -> None:
    """At once, and not only where the service misses its client."""
    if "wait" in limit:
        service.faults.no_capacity = {"T4"}
    pytester.makepyfile("""
        import signal, time, pytest

        @pytest.mark.gpu
        def test_one():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            time.sleep(60)
    """)
    result = run(pytester, T4, "--remote-ephemeral", limit)
    assert result.ret == (2 if "wait" in limit else 1)  # its file was never collected
    assert [app.name for app in service.apps if app.live] == []
    service.wait_until(lambda: not service.running, 5)
    result.stdout.fnmatch_lines(["left running: nothing"])


@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
def test_an_app_of_the_session_ends_with_it(
    pytester: pytest.Pytester, service: LoopbackModal, how: str
) -> None:
    begun = pytester.path / "has-begun"
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(begun)!r})"))
    with Started(pytester, T4, "--remote-ephemeral") as session:
        assert until(begun.exists)
        session.process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
        session.end()
        service.wait_until(lambda: not any(app.live for app in service.apps), 10)
    service.wait_until(lambda: not service.running, 5)


# whose call it is


@pytest.mark.parametrize("service", [False, True], ids=["control", "input"], indirect=True)
@pytest.mark.parametrize("named", ["fc-0other", "ap-1; rm", "theirs"])
def test_a_container_that_names_the_call_of_another_one(
    pytester: pytest.Pytester, service: LoopbackModal, named: str
) -> None:
    """What the service has said of it counts; and no name that is none is ever sent."""
    begun = pytester.path / "has-begun"

    def tamper(chunk: Any) -> Any:
        if chunk.data_format == api_pb2.DATA_FORMAT_CBOR and b'"call": "fc-' in chunk.data:
            found = re.search(rb'"call": "(fc-[^"]*)"', chunk.data)
            assert found is not None
            name = named.encode().ljust(len(found[1]), b"x")
            data = chunk.data.replace(found[1], name)
            return api_pb2.DataChunk(index=chunk.index, data=data, data_format=chunk.data_format)
        return chunk

    service.faults.tamper_chunk = tamper
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(begun)!r})"))
    with Started(pytester, T4) as session:
        assert until(begun.exists)
        session.process.send_signal(signal.SIGKILL)
        session.end()
        service.wait_until(lambda: all(entry.output is not None for entry in service.inputs), 60)
    cancelled = [
        record.request.function_call_id
        for record in service.requests
        if record.method == "FunctionCallCancel"
    ]
    mine = [call.id for call in service.calls]
    if service.count("AttemptStart"):  # nobody else could know it
        assert all(each.startswith("fc-0other") for each in cancelled)
    else:
        assert cancelled == mine
