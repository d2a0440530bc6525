"""What can go wrong on purpose, and what the client makes of it."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import modal
import pytest
from grpclib import Status

from loopback import Limits

from . import far_code
from .standing import Stand, connected

PICKLE, CBOR = 1, 4


def numbers(frames: list[Any]) -> list[int]:
    """Return what was counted, and check that the call's id came first."""
    assert frames[0].startswith("fc-")
    return [int(frame.split()[1]) for frame in frames[1:]]


def senders(frames: list[Any]) -> list[str]:
    """Return which containers sent the frames, in order, each once."""
    return list(dict.fromkeys(frame.split()[0] for frame in frames[1:]))


# ---------------------------------------------------------------- containers that go


def test_preempted(start: Any) -> None:
    stand = start(limits=Limits(preempt_grace=5.0))
    stand.service.faults.preempt(after=3)
    [count] = stand.deploy("count")
    frames = list(count.remote_gen(60, 0.1))  # long enough for the signal to arrive
    # The second container's frames begin at index 1 again, so the client splices the two streams.
    assert numbers(frames) == list(range(60))
    assert len(senders(frames)) == 2
    [entry] = stand.service.inputs
    assert entry.retry_count == 1
    assert entry.deliveries == [each.id for each in stand.service.containers]
    first = stand.service.containers[0]
    assert b"KeyboardInterrupt" not in first.log
    assert first.exit == 0  # SIGINT was enough


def test_preempted_and_killed(start: Any) -> None:
    stand = start(limits=Limits(preempt_grace=0.3))
    [stubborn] = stand.deploy("stubborn")
    call = stubborn.spawn()
    stand.service.wait_until(lambda: b"stubborn now" in stand.service.containers[0].log)
    stand.service.preempt(stand.service.containers[0])
    stand.service.wait_until(lambda: len(stand.service.containers) == 2)
    assert stand.service.containers[0].exit == 137
    stand.service.wait_until(lambda: stand.service.inputs[0].retry_count == 1)
    call.cancel(terminate_containers=True)


@pytest.mark.parametrize("after", [0, 2])
def test_a_lost_container(stand: Stand, after: int) -> None:
    stand.service.faults.lose(after=after)
    [count] = stand.deploy("count")
    frames = list(count.remote_gen(20, 0.1))
    assert numbers(frames) == list(range(20))
    assert [each.exit for each in stand.service.containers] == [137, None]
    assert len(senders(frames)) == (1 if after == 0 else 2)


def test_a_container_that_ends_itself_again_and_again(start: Any) -> None:
    stand = start(limits=Limits(crashes_of_input=3))
    [die] = stand.deploy("die")
    with pytest.raises(modal.exception.InternalFailure, match="exited with 7, again and again"):
        die.remote(7)
    assert [each.exit for each in stand.service.containers] == [7, 7, 7]


def test_a_crash_loop_at_the_start(stand: Stand) -> None:
    [add] = stand.deploy("add", env={"PYTHONHOME": "/nowhere"})
    with pytest.raises(modal.exception.InternalFailure, match="before it took an input"):
        add.remote(1, 1)
    assert len(stand.service.containers) == 3


def test_code_that_cannot_be_imported(stand: Stand) -> None:
    made = modal.App("bare")  # without the source of its function
    made.function(image=modal.Image.debian_slim(), include_source=False)(far_code.add)
    made.deploy(client=stand.client)
    with pytest.raises(ModuleNotFoundError, match="loopback_tests"):
        modal.Function.from_name("bare", "add", client=stand.client).remote(1, 1)
    assert b"ModuleNotFoundError" in stand.service.containers[0].log


def test_nothing_is_left_of_a_container(stand: Stand) -> None:
    [leave] = stand.deploy("leave_child")
    child = leave.remote()
    os.kill(child, 0)
    stand.service.lose(stand.service.containers[0])
    stand.service.wait_until(lambda: not stand.service.running)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


# ---------------------------------------------------------------- streams


def test_dropped_chunks_leave_a_gap(stand: Stand) -> None:
    stand.service.faults.dropped = {3}
    [count] = stand.deploy("count")
    stream = count.remote_gen(4)
    frames = [next(stream) for _ in range(4)]
    assert numbers(frames) == [0, 2, 3]


def test_doubled_chunks_are_seen_once(stand: Stand) -> None:
    stand.service.faults.doubled = {2, 3}
    [count] = stand.deploy("count")
    assert numbers(list(count.remote_gen(4))) == [0, 1, 2, 3]
    assert [chunk.index for chunk in stand.service.calls[0].chunks] == [1, 2, 2, 3, 3, 4, 5]


def test_a_stream_that_breaks_goes_on(stand: Stand) -> None:
    stand.service.faults.cuts = [2, 4]
    [count] = stand.deploy("count")
    assert numbers(list(count.remote_gen(6, 0.02))) == list(range(6))
    assert stand.service.count("FunctionCallGetDataOut") >= 3


def test_an_input_may_be_delivered_twice(stand: Stand) -> None:
    stand.service.faults.twice = 1
    [count] = stand.deploy("count")
    frames = list(count.remote_gen(20, 0.1))
    assert numbers(frames) == list(range(20))
    [entry] = stand.service.inputs
    assert entry.deliveries == [each.id for each in stand.service.containers]
    assert len(entry.deliveries) == 2
    # Both ran it, at the same time, and both sent their frames.
    assert all(each.frames > 1 for each in stand.service.containers)
    assert len(stand.service.calls[0].outputs) == 1


def test_a_chunk_may_be_tampered_with(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODAL_PAYLOAD_FORMAT", "cbor")

    def hostile(chunk: Any) -> Any:
        if chunk.index == 2:
            chunk.data_format = PICKLE
            chunk.data = b"cbuiltins\nlen\n(S'seven!!'\ntR."
        return chunk

    stand.service.faults.tamper_chunk = hostile
    [count] = stand.deploy("count")
    # The client opens it by the format that the container names: this is what has to be refused.
    assert list(count.remote_gen(2))[1] == 7


def test_a_result_may_be_tampered_with(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODAL_PAYLOAD_FORMAT", "cbor")

    def hostile(item: Any) -> Any:
        item.data_format = PICKLE
        item.result.data = b"cbuiltins\nlen\n(S'seven!!'\ntR."
        return item

    stand.service.faults.tamper_output = hostile
    [add] = stand.deploy("add")
    assert add.remote(1, 1) == 7


# ---------------------------------------------------------------- waiting


def test_a_slow_start(stand: Stand) -> None:
    stand.service.faults.start_delay = 0.7
    [add] = stand.deploy("add")
    begun = time.monotonic()
    assert add.remote(1, 1) == 2
    assert time.monotonic() - begun > 0.7


def test_no_gpu_is_to_be_had(stand: Stand) -> None:
    stand.service.faults.no_capacity = {"H200"}
    [add] = stand.deploy("add", gpu="H200")
    call = add.spawn(1, 1)
    with pytest.raises(TimeoutError):
        call.get(timeout=0.5)
    [container] = stand.service.containers
    assert container.process is None
    stand.service.faults.no_capacity = set()
    assert call.get(timeout=20) == 2


def test_a_call_that_never_starts_can_be_cancelled(stand: Stand) -> None:
    stand.service.faults.start_delay = None
    [add] = stand.deploy("add")
    call = add.spawn(1, 1)
    call.cancel()
    with pytest.raises(modal.exception.RemoteError):
        call.get(timeout=20)


def test_a_slow_network(stand: Stand) -> None:
    [add] = stand.deploy("add")
    stand.service.faults.slow = {"FunctionMap": 0.6}
    begun = time.monotonic()
    assert add.remote(1, 1) == 2
    assert time.monotonic() - begun > 0.6


# ---------------------------------------------------------------- refusals


def test_a_bad_token(stand: Stand) -> None:
    with (
        connected("ak-none", "as-none") as client,
        pytest.raises(modal.exception.AuthError, match="not known here"),
    ):
        client.hello()
    stand.client.hello()


def test_a_missing_token(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.delenv(name)
    with pytest.raises(modal.exception.AuthError, match="Token missing"):
        modal.Client.from_env()
    assert stand.service.count("ClientHello") == 0


@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (Status.RESOURCE_EXHAUSTED, modal.exception.ResourceExhaustedError),
        (Status.FAILED_PRECONDITION, modal.exception.ConflictError),
        (Status.PERMISSION_DENIED, modal.exception.PermissionDeniedError),
        (Status.UNIMPLEMENTED, modal.exception.UnimplementedError),
    ],
)
def test_a_refused_request(stand: Stand, status: Status, raised: type[Exception]) -> None:
    [add] = stand.deploy("add")
    stand.service.faults.refuse("FunctionMap", status, "the reason")
    with pytest.raises(raised, match="the reason"):
        add.remote(1, 1)
    assert add.remote(1, 1) == 2


def test_a_transient_error_is_tried_again(stand: Stand) -> None:
    [add] = stand.deploy("add")
    before = stand.service.count("FunctionMap")
    stand.service.faults.refuse("FunctionMap", Status.UNAVAILABLE, "for a moment", times=2)
    assert add.remote(1, 1) == 2
    assert stand.service.count("FunctionMap") == before + 3


def test_an_internal_failure_is_the_result(stand: Stand) -> None:
    stand.service.faults.fail_inputs("INTERNAL_FAILURE", "the worker is gone")
    [add] = stand.deploy("add")
    with pytest.raises(modal.exception.InternalFailure, match="the worker is gone"):
        add.remote(1, 1)
    assert add.remote(1, 1) == 2


def test_the_service_is_down_and_comes_back(stand: Stand) -> None:
    [add] = stand.deploy("add")
    assert add.remote(1, 1) == 2
    address = stand.service.url.removeprefix("http://").split(":")
    stand.service.down()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address[0], int(address[1])), timeout=3)
    stand.service.up()
    assert add.remote(1, 1) == 2
    assert len(stand.service.containers) == 1


def test_no_payment_method(stand: Stand) -> None:
    [add] = stand.deploy("add")
    stand.service.faults.no_payment_method()
    with pytest.raises(modal.exception.PermissionDeniedError, match="payment method"):
        add.with_options(gpu="T4").remote(1, 1)
    with pytest.raises(modal.exception.PermissionDeniedError, match="payment method"):
        stand.deploy("add", gpu="T4")
    assert add.remote(1, 1) == 2  # without a GPU it is free


def test_a_quota(stand: Stand) -> None:
    [add] = stand.deploy("add")
    stand.service.faults.quota()
    with pytest.raises(modal.exception.ResourceExhaustedError, match="limit"):
        add.remote(1, 1)
    assert not stand.service.containers


def test_a_client_that_is_too_old(stand: Stand) -> None:
    stand.service.faults.client_too_old()
    with pytest.raises(modal.exception.ConflictError, match="upgrade"):
        stand.client.hello()


def test_a_builder_that_the_client_does_not_know(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_ENVIRONMENT", "newer")  # the client remembers what "main" builds with
    stand.service.faults.builder = "2099.01"
    with pytest.raises(modal.exception.VersionError, match=r"2099\.01"):
        stand.deploy("add")


def test_clear_makes_it_well_again(stand: Stand) -> None:
    faults = stand.service.faults
    faults.refuse("*", Status.PERMISSION_DENIED, times=None)
    faults.start_delay, faults.dropped = None, {1}
    with pytest.raises(modal.exception.PermissionDeniedError):
        stand.client.hello()
    faults.clear()
    [count] = stand.deploy("count")
    assert numbers(list(count.remote_gen(2))) == [0, 1]
