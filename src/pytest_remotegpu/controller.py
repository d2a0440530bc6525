"""Workers as the user's side sees them: one reader thread each, one queue for all.

Knows backends and the wire; knows nothing of pytest. Reader threads only put; whoever owns the
queue decides.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_remotegpu.backends.base import Backend, Channel, Departs, Environment, Rental, Warns
from pytest_remotegpu.blotting import blotted
from pytest_remotegpu.errors import (
    EndOfStreamError,
    FarSideError,
    LimitError,
    ProtocolError,
    UsageError,
)
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import frames, orders
from pytest_remotegpu.protocol.events import Event
from pytest_remotegpu.protocol.hello import Hello

__all__ = ["Controller", "Lost", "Notice", "Said", "Worker"]

MOST_WAITING: Final = 128 * 2**20
"""Bytes that may wait to be looked at; a far side that sends faster has to wait."""


class Lost(Struct, frozen=True):
    """A stream has ended; ``reason`` is empty where it ended as it should.

    :ivar hostile: whether it broke the protocol.
    :ivar kind: ``usage`` where the user has to mend something, ``infra`` where none can be had,
        ``preempted`` where the machine was taken away.
    """

    reason: str
    hostile: bool = False
    kind: Literal["", "usage", "infra", "preempted"] = ""

    @property
    def preempted(self) -> bool:
        """Whether its machine was taken away, which is nobody's doing here."""
        return self.kind == "preempted"


class Notice(Struct, frozen=True):
    """A worker's machine will be taken away soon."""


class Said(Struct, frozen=True):
    """What has come from one worker: its hello, events, a notice, or the end of its stream.

    :ivar at: when it was read, by the monotonic clock. :ivar told: whether ``--remote-debug`` has
        shown it: what a worker says while it collects is taken in again by whoever runs its tests.
    """

    worker: Worker
    what: Hello | list[Event] | Notice | Lost
    size: int = 0
    at: float = field(default_factory=time.monotonic)
    told: bool = False


class Worker:
    """One worker and its channel.

    :ivar hello: what it said of itself, once it has.
    :ivar gone: whether its stream has ended, once that was looked at; ``ended``, when it has;
        ``ended_well``, whether it did so in good order.
    :ivar notice: whether its machine will be taken away, once that was looked at.
    :ivar started: when its channel was asked for, by the monotonic clock; ``opened``, when it was
        there.
    """

    def __init__(self, name: str, shape: Shape, channel: Channel, started: float) -> None:
        self.name = name
        self.shape = shape
        self.nonce = secrets.token_hex(8)
        self.channel = channel
        self.hello: Hello | None = None
        self.gone = self.notice = self.ended_well = False
        self.ended: float | None = None
        self.started = started
        self.opened = time.monotonic()
        self._lock = threading.Lock()
        self._limit = ""

    @property
    def rental(self) -> Rental | None:
        """The machine that was rented for it alone, where that is so."""
        rental = getattr(self.channel, "rental", None)
        return rental if isinstance(rental, Rental) else None

    @property
    def leaves(self) -> bool:
        """Whether it takes itself away once it has said its last word; see :class:`Departs`."""
        return isinstance(self.channel, Departs)

    @property
    def asked(self) -> float | None:
        """When its machine was asked for, or itself; ``None`` before that."""
        return self.started if self.rental is None else self.rental.asked

    def offer(self, cards: list[str]) -> str:
        """Say what its tests have: these cards, or as many as they asked for."""
        if self.hello is not None and self.hello.pretend is not None and self.shape.count:
            return f"{self.shape} (pretend)"
        return ", ".join(cards) or str(self.shape)

    def send(self, *messages: Any, first: bytes = b"") -> None:
        """Send messages in one go; a worker that is gone is noticed by its reader."""
        data = first + b"".join(frames.encode_message(message) for message in messages)
        with self._lock, contextlib.suppress(FarSideError):
            self.channel.send(data)

    @property
    def limit(self) -> str:
        """The limit of the run that it was told of, in words; empty where it was told of none."""
        return self._limit

    def end_at(self, limit: str, grace: float) -> None:
        """Tell it, once, that a limit of the run is reached.

        :param limit: in words. :param grace: seconds that it has to say what its test did.
        """
        with self._lock:
            told, self._limit = self._limit, self._limit or limit
        if not told:
            self.send(orders.Stop(grace, limit))


class Mailbox:
    """A queue that is bounded by bytes."""

    def __init__(self) -> None:
        self._waiting: deque[Said] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._open = True

    def put(self, said: Said) -> None:
        with self._changed:
            while self._size > MOST_WAITING and self._open:
                self._changed.wait(1.0)
            self._waiting.append(said)
            self._size += said.size
            self._changed.notify_all()

    def get(self, timeout: float) -> Said | None:
        with self._changed:
            if not self._waiting and timeout > 0:
                self._changed.wait(timeout)
            if not self._waiting:
                return None
            said = self._waiting.popleft()
            self._size -= said.size
            self._changed.notify_all()
            return said

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()


class Controller:
    """Opens workers on one backend and collects what they say.

    :param hello: what this side says of itself.
    :param environment: handed to the backend.
    :ivar hides: blots out what is secret in how a worker's command ended.
    :ivar refuses: says why no further worker of a shape may be had now; nothing where one may.
    :param sender: the name of this process where several of one session have workers; it becomes a
        part of theirs.
    """

    def __init__(
        self, backend: Backend, hello: Hello, environment: Environment, sender: str = ""
    ) -> None:
        self.backend = backend
        self.hello = hello
        self._environment = environment
        self._prefix = "-".join(filter(None, (backend.name.partition(":")[0], sender)))
        self._mailbox = Mailbox()
        self._leaving: dict[Worker, threading.Thread] = {}
        self._spare: dict[Shape, tuple[Worker, list[Said]]] = {}
        self.workers: list[Worker] = []
        self.refuses: Callable[[Shape], str] = lambda _shape: ""
        self.hides: Callable[[str], str] = blotted

    def open(
        self, shape: Shape, make_order: Callable[[Worker], orders.Order], *after: Any
    ) -> Worker:
        """Start a worker and send it hello, order and what follows, in one piece.

        One of this shape that is kept, since it has collected the files already, is told the tests.

        :raises FarSideError: where the backend has none.
        :raises LimitError: where another one would cost more than the run may.
        """
        worker, said = self._spare.pop(shape, (None, []))
        if worker is not None:
            order = make_order(worker)
            for each in said:
                self._mailbox.put(each)
            worker.send(orders.Chosen(order.payload, order.limits), order.run, *after)
            return worker
        if refused := self.refuses(shape):
            raise LimitError(refused)
        started = time.monotonic()
        channel = self.backend.open(shape, self._environment)
        name = f"{self._prefix}-{len(self.workers) + 1}"
        worker = Worker(name, shape, channel, started)
        self.workers.append(worker)
        if isinstance(channel, Warns):
            channel.on_notice = lambda: self._mailbox.put(Said(worker, Notice()))
        reader = threading.Thread(
            target=self._read, args=(worker,), name=f"remotegpu-{name}", daemon=True
        )
        reader.start()
        worker.send(make_order(worker), *after, first=frames.frame(self.hello.encode()))
        return worker

    def keep(self, worker: Worker, said: list[Said]) -> None:
        """Keep a worker that has collected for the next that is asked for.

        :param said: what it has said that concerns whoever is given it.
        """
        self._spare[worker.shape] = (worker, said)

    def dismiss(self) -> None:
        """End the workers that are kept and that nobody has asked for."""
        for worker, _said in self._spare.values():
            worker.send(orders.Finish())
        self._spare.clear()

    def _read(self, worker: Worker) -> None:
        """The reader thread: put everything on the queue, and at last how it ended."""
        stream = frames.EventStream(worker.name, worker.nonce)
        try:
            for chunk in worker.channel.frames():
                for what in stream.feed(chunk):
                    self._mailbox.put(Said(worker, what, stream.weight))
                if stream.ended and worker.leaves:
                    break
            stream.close()
            lost = Lost("")
        except EndOfStreamError as error:
            diagnosis = self.hides(worker.channel.diagnosis())
            known = getattr(worker.channel, "headline", "")
            last = known or (diagnosis.splitlines()[-1] if diagnosis else "")
            lost = Lost(f"{error}: {last}\n{diagnosis}".strip() if last else str(error))
        except ProtocolError as error:
            lost = Lost(str(error), hostile=True)
        except UsageError as error:
            lost = Lost(str(error), kind="usage")
        except FarSideError as error:
            lost = Lost(str(error), kind="infra")
        except Exception as error:  # noqa: BLE001 -- whatever a backend raises must become a verdict
            lost = Lost(f"{type(error).__name__}: {error}")
        if getattr(worker.channel, "preempted", False) and not lost.hostile:
            lost = replace(lost, kind="preempted")
        worker.ended = time.monotonic()
        self._mailbox.put(Said(worker, lost))

    def next(self, timeout: float) -> Said | None:
        """Give what came next from any worker.

        :param timeout: seconds to wait for it.
        :return: ``None`` where nothing came.
        """
        said = self._mailbox.get(timeout)
        if said is not None and isinstance(said.what, Hello):
            said.worker.hello = said.what
        elif said is not None and isinstance(said.what, Notice):
            said.worker.notice = True
        elif said is not None and isinstance(said.what, Lost):
            said.worker.gone = True
            said.worker.ended_well = not said.what.reason
        return said

    def living(self) -> list[Worker]:
        """List the workers whose stream has not ended."""
        return [worker for worker in self.workers if not worker.gone]

    def began(self) -> float | None:
        """Say when the first of all workers was asked for; ``None`` before that."""
        return min((each.asked for each in self.workers if each.asked is not None), default=None)

    def close(self) -> None:
        """End every worker with all that it started.

        One that takes itself away, and has said its last word, does so while this side goes on;
        :meth:`wait` waits for it.
        """
        self._mailbox.close()
        threads = []
        for worker in self.workers:
            if worker in self._leaving:
                continue
            thread = threading.Thread(target=worker.channel.stop)
            thread.start()
            if worker.leaves and worker.ended_well:
                self._leaving[worker] = thread
            else:
                threads.append(thread)
        for thread in threads:
            thread.join()

    def wait(self) -> None:
        """Wait for workers that were still about to go when all was closed."""
        for thread in self._leaving.values():
            thread.join()
