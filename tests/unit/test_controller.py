"""The controller: what a stream becomes on its queue; nothing of it is lost, nobody is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import fakes
from fakes import Far
from pytest_remotegpu.backends.base import Backend, Channel, Environment
from pytest_remotegpu.controller import Controller, Lost, Notice, Said, Worker
from pytest_remotegpu.errors import FarSideError, ProtocolError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, frames, orders
from pytest_remotegpu.protocol.hello import Hello

HELLO = Hello.here()


class Canned:
    """A channel that gives what it was given, and records what is sent and done to it."""

    def __init__(self, *chunks: bytes | Exception) -> None:
        self._chunks = chunks
        self.sent: list[bytes] = []
        self.stops = 0
        self.broken = False

    def send(self, data: bytes) -> None:
        """Keep what is sent."""
        if self.broken:
            raise FarSideError("it is gone")
        self.sent.append(data)

    def frames(self) -> Iterator[bytes]:
        """Give what there is."""
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def stop(self) -> None:
        """Count."""
        self.stops += 1

    def diagnosis(self) -> str:
        """Say something that can be recognised."""
        return "its last words"


class Place:
    """A backend that hands out channels that were made beforehand."""

    ships_tree = False
    capacity = None
    one_host = True
    pretends = True
    prompt = True
    where = "nowhere"
    name = "place:rest"

    def __init__(self, *channels: Canned) -> None:
        self._channels = list(channels)
        self.asked: list[tuple[Shape, Environment]] = []

    def open(self, shape: Shape, environment: Environment) -> Channel:
        """Give the next channel."""
        self.asked.append((shape, environment))
        if not self._channels:
            raise FarSideError("none left")
        return self._channels.pop(0)


def an_order(worker: Worker) -> orders.Order:
    return orders.Order(
        worker=worker.name, nonce=worker.nonce, gpus=1, cwd=".", root=".", tree=None, variables={},
        environ=None, options=orders.Options(args=[], argv=[], files=[]), max_artifact=1,
        payload=b"", run=orders.Run(0, 3),
    )  # fmt: skip


def controller_of(backend: Backend) -> Controller:
    return Controller(backend, HELLO, Environment({"A": "b"}))


def read_all(*chunks: bytes | Exception) -> list[Hello | list[events.Event] | Notice | Lost]:
    """Have a controller read one canned stream; give all that it made of it."""
    controller = controller_of(Place(Canned(*chunks)))
    controller.open(Shape(1), an_order)
    found: list[Hello | list[events.Event] | Notice | Lost] = []
    while not (found and isinstance(found[-1], Lost)):
        said = controller.next(5.0)
        assert said is not None
        found.append(said.what)
    return found


def test_first_send_holds_hello_order_and_all_that_follows() -> None:
    channel = Canned()
    backend = Place(channel)
    worker = controller_of(backend).open(Shape(2), an_order, orders.Finish())
    assert backend.asked == [(Shape(2), Environment({"A": "b"}))]
    [sent] = channel.sent
    hello, *rest = frames.Frames(frames.MAX_OUTBOUND).feed(sent)
    assert Hello.decode(hello) == HELLO
    assert [frames.read_message(body) for body in rest] == [an_order(worker), orders.Finish()]


def test_workers_have_names_and_nonces_of_their_own() -> None:
    controller = controller_of(Place(Canned(), Canned()))
    one, two = (controller.open(Shape(1), an_order) for _ in range(2))
    assert (one.name, two.name) == ("place-1", "place-2")
    assert one.nonce != two.nonce


def test_none_to_be_had() -> None:
    controller = controller_of(Place())
    with pytest.raises(FarSideError, match="none left"):
        controller.open(Shape(1), an_order)
    assert controller.workers == []


def test_good_stream_is_read_to_its_end() -> None:
    def script(far: Far) -> None:
        far.greet()
        far.run(0)
        far.end()

    controller = controller_of(fakes.Scripted("scripted:x", [script]))
    worker = controller.open(Shape(1), an_order)
    found = []
    while worker in controller.living():
        said = controller.next(5.0)
        assert said is not None
        assert said.worker is worker
        found.append(said.what)
    assert worker.hello == found[0]
    assert worker.hello is not None
    assert worker.hello.host == "fake"
    assert found[-1] == Lost("")
    said_in_all = [event for batch in found[1:-1] if isinstance(batch, list) for event in batch]
    assert said_in_all[0] == events.Started(0)
    assert said_in_all[-1] == events.Ended()
    controller.close()


GREETED = frames.frame(HELLO.encode())


@pytest.mark.parametrize(
    ("chunks", "said", "hostile"),
    [
        ((), "its last words", False),
        ((GREETED,), "its last words", False),
        ((GREETED[:9],), "its last words", False),
        ((b"Last login: today, all day",), "Last login: today", True),
        ((GREETED, frames.frame(b"nonsense")), "undecodable", True),
        ((GREETED, b"\xff\xff\xff\xff"), "4294967295 bytes", True),
        ((GREETED, OSError("the line is dead")), "the line is dead", False),
        ((RuntimeError("a fault of the backend"),), "a fault of the backend", False),
    ],
    ids=[
        *("nothing", "hello only", "half a hello", "a banner", "nonsense", "too long"),
        *("an error of the system", "a fault"),
    ],
)
def test_other_streams_end_with_a_reason(
    chunks: tuple[bytes | Exception, ...], said: str, hostile: bool
) -> None:
    *_, lost = read_all(*chunks)
    assert isinstance(lost, Lost)
    assert said in lost.reason
    assert lost.hostile is hostile


def test_send_to_one_that_is_gone_is_left_to_its_reader() -> None:
    channel = Canned()
    worker = controller_of(Place(channel)).open(Shape(1), an_order)
    channel.broken = True
    worker.send(orders.Finish())
    assert len(channel.sent) == 1


def test_first_send_to_one_that_is_gone_is_left_to_its_reader() -> None:
    channel = Canned()
    channel.broken = True
    controller = controller_of(Place(channel))
    controller.open(Shape(1), an_order)
    said = controller.next(5.0)
    assert said is not None
    assert isinstance(said.what, Lost)
    assert "its last words" in said.what.reason


def test_next_gives_nothing_where_nothing_came() -> None:
    controller = controller_of(Place())
    started = time.monotonic()
    assert controller.next(0) is None
    assert controller.next(0.05) is None
    assert 0.04 < time.monotonic() - started < 2.0


class Counting(Canned):
    """Gives fifty frames of 20 kB, in chunks of a size, and counts those that were begun."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self.begun = 0
        self.worker: Worker | None = None

    def frames(self) -> Iterator[bytes]:
        """Give the hello at once, and the rest as soon as the worker is known."""
        yield GREETED
        while self.worker is None:
            time.sleep(0.001)
        for number in range(50):
            self.begun += 1
            last = [events.Ended()] if number == 49 else []
            encoded = frames.encode_events([events.Note(b"x" * 20_000), *last])
            frame = frames.encode_frame(self.worker.name, self.worker.nonce, number, encoded)
            yield from (frame[at : at + self._size] for at in range(0, len(frame), self._size))


@pytest.mark.parametrize("size", [500, 20_000, 10**6], ids=lambda size: f"{size} bytes")
def test_what_waits_is_bounded(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A far side that sends faster than it is listened to has to wait, however it cuts them."""
    monkeypatch.setattr("pytest_remotegpu.controller.MOST_WAITING", 100_000)
    channel = Counting(size)
    controller = controller_of(Place(channel))
    channel.worker = controller.open(Shape(1), an_order)
    before = -1
    while before != channel.begun or channel.begun == 0:
        before = channel.begun
        time.sleep(0.1)
    assert 4 <= channel.begun < 15
    found: list[Said] = []
    while not found or not isinstance(found[-1].what, Lost):
        said = controller.next(5.0)
        assert said is not None
        found.append(said)
    notes: list[Any] = [e for said in found if isinstance(said.what, list) for e in said.what]
    assert sum(isinstance(event, events.Note) for event in notes) == 50
    controller.close()


def test_close_stops_each_worker_and_frees_each_reader() -> None:
    def talks(far: Far) -> None:
        far.greet()
        while True:
            far.say(events.Note(b"x" * 2**20))

    backend = fakes.Scripted("scripted:x", [talks])
    controller = controller_of(backend)
    for _ in range(2):
        controller.open(Shape(1), an_order)
    time.sleep(0.1)
    controller.close()
    for channel in backend.channels:
        channel.join()
    deadline = time.monotonic() + 5.0
    while _readers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _readers() == []


def _readers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("remotegpu-scripted")]


def test_order_that_can_t_be_made_leaves_no_worker_behind() -> None:
    channel = Canned()
    controller = controller_of(Place(channel))

    def refuses(_worker: Worker) -> orders.Order:
        raise ProtocolError("too large")

    with pytest.raises(ProtocolError):
        controller.open(Shape(1), refuses)
    controller.close()
    assert channel.stops == 1
