"""The user's side as a worker sees it: two descriptors, an order, and a count of what was said.

Knows the wire; what is done for the order, it does not know.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from pytest_remotegpu.protocol import events, frames, orders
from pytest_remotegpu.protocol.hello import Hello, differences
from pytest_remotegpu.protocol.plain import to_text

__all__ = ["Client"]


class Client:
    """One session that has asked for a worker.

    :param inward: the descriptor that messages come from.
    :param outward: the one that frames go to.
    :param hello: what this side says of itself.
    :ivar order: what is to be done, once it has come.
    :ivar over: whether it is gone, or has been told that nothing more comes.
    """

    def __init__(self, inward: int, outward: int, hello: Hello) -> None:
        self.inward, self._outward = inward, outward
        self._hello = hello
        self._messages = frames.Frames(frames.MAX_OUTBOUND)
        self._greeted = False
        self._sent = 0
        self.order: orders.Order | None = None
        self.over = False

    def greet(self) -> None:
        """Say hello."""
        self._write(frames.frame(self._hello.encode()))

    def read(self) -> list[Any]:
        """Give the messages that have come; it is gone where nothing can come any more.

        :raises ProtocolError: for what is none.
        """
        try:
            chunk = os.read(self.inward, 2**20)
        except ConnectionResetError:  # it went without having read all that was said
            chunk = b""
        self.over = self.over or not chunk
        messages = []
        for body in self._messages.feed(chunk):
            if self._greeted:
                messages.append(frames.read_message(body))
            elif differences(Hello.decode(body), self._hello):
                self.over = True
            self._greeted = True
        return messages

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._outward, view) :]
        except OSError:
            self.over = True

    def emit(self, *said: events.Event) -> None:
        """Say something."""
        self.pass_on(frames.encode_events(list(said)), len(said))

    def pass_on(self, encoded: bytes | msgspec.Raw, count: int) -> None:
        """Say what a runner has encoded: so many events."""
        assert self.order is not None
        self._write(frames.encode_frame(self.order.worker, self.order.nonce, self._sent, encoded))
        self._sent += count

    def finish(self, text: str = "") -> None:
        """Say that nothing more comes."""
        if self.order is not None and not self.over:
            self.emit(events.Ended(to_text(text)))
        self.over = True
