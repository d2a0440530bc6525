"""One conversation with a worker over any backend's channel, as the conformance kit holds it.

Speaks the wire and records what comes back; judges nothing of it and knows no particular backend.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from pytest_remotegpu.backends.base import Backend, Environment
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, frames, orders
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.testing.project import Project

__all__ = ["Talk"]

T = TypeVar("T", bound=events.Event)


class Over:
    """The stream has ended; ``why`` is what the reader made of it, or ``None`` for a good end."""

    def __init__(self, why: BaseException | None) -> None:
        self.why = why


class Talk:
    """Opens a channel, listens in a thread, and gives what comes piece by piece.

    As a context manager it stops the channel at its end.

    :param patience: seconds that any one thing may take to come.
    :ivar hello: what the worker said first. :ivar said: all events so far.
    :ivar over: how the stream ended, once it has.
    """

    def __init__(
        self, backend: Backend, shape: Shape, environment: Environment, patience: float
    ) -> None:
        self.worker = f"kit-{secrets.token_hex(2)}"
        self.nonce = secrets.token_hex(8)
        self.backend, self.shape, self.environment = backend, shape, environment
        self.hello: Hello | None = None
        self.said: list[events.Event] = []
        self.over: Over | None = None
        self._looked = 0
        self._patience = patience
        self._waiting: queue.Queue[Hello | list[events.Event] | Over] = queue.Queue()
        self.channel = backend.open(shape, environment)
        self._reader = threading.Thread(target=self._read, name=self.worker, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.channel.stop()
        self._reader.join(self._patience)

    def _read(self) -> None:
        stream = frames.EventStream(self.worker, self.nonce)
        try:
            for chunk in self.channel.frames():
                for what in stream.feed(chunk):
                    self._waiting.put(what)
            stream.close()
            self._waiting.put(Over(None))
        except BaseException as error:  # noqa: BLE001  the test's thread is to see whatever it was
            self._waiting.put(Over(error))

    # towards the worker

    def ask(self, project: Project, ids: tuple[str, ...], **more: Any) -> None:
        """Send hello, order, files and the word that nothing follows, all in one piece."""
        blobs = project.blobs() if self.backend.ships_tree else ()
        self._begin(self._order(project, ids, len(ids), **more), *blobs, orders.Finish())

    def begin(self, project: Project, ids: tuple[str, ...], first: int) -> None:
        """Send hello and order only, of which the first stretch has ``first`` tests."""
        self._begin(self._order(project, ids, first))

    def _begin(self, *messages: Any) -> None:
        data = b"".join(frames.encode_message(message) for message in messages)
        self.channel.send(frames.frame(Hello.here().encode()) + data)

    def say(self, *messages: Any) -> None:
        """Send further messages, in one piece."""
        self.channel.send(b"".join(frames.encode_message(message) for message in messages))

    def _order(
        self,
        project: Project,
        ids: tuple[str, ...],
        first: int,
        *,
        variables: dict[str, str] | None = None,
        live: bool = False,
    ) -> orders.Order:
        ships = self.backend.ships_tree
        base = {} if ships else dict(self.environment.variables)
        return project.order(
            self.worker, self.nonce, ids, {**base, **(variables or {})},
            gpus=self.shape.count, ships_tree=ships, first=first, live=live,
        )  # fmt: skip

    # from the worker

    def until(self, kind: type[T], fits: Callable[[T], bool] = lambda _event: True) -> T:
        """Wait for the next event of a kind.

        :raises AssertionError: where the stream ends or falls silent before.
        """
        while True:
            while self._looked < len(self.said):
                event = self.said[self._looked]
                self._looked += 1
                if isinstance(event, kind) and fits(event):
                    return event
            if self.over is not None:
                raise AssertionError(f"the stream ended before {kind.__name__}: {self.state()}")
            self._take()

    def to_the_end(self) -> None:
        """Listen until the stream has ended, in whichever way.

        :raises AssertionError: where it falls silent before.
        """
        while self.over is None:
            self._take()

    def _take(self) -> None:
        started = time.monotonic()
        try:
            what = self._waiting.get(timeout=self._patience)
        except queue.Empty:
            took = time.monotonic() - started
            raise AssertionError(f"nothing came for {took:.0f} s: {self.state()}") from None
        if isinstance(what, Hello):
            self.hello = what
        elif isinstance(what, Over):
            self.over = what
        else:
            self.said += what

    def state(self) -> str:
        """Describe the conversation so far, for messages."""
        kinds = ", ".join(type(event).__name__ for event in self.said[-8:]) or "nothing"
        ended = (
            ""
            if self.over is None
            else f"; it ended ({self.over.why!r}): {self.channel.diagnosis()}"
        )
        return f"{len(self.said)} events, the last of them {kinds}{ended}"
