"""What the supervisor says to its runner, message by message.

Knows the wire; knows no pytest.
"""

from __future__ import annotations

import select
import socket
from typing import Any

import msgspec

from pytest_remotegpu.protocol import frames, orders

__all__ = ["Inbox"]


class Inbox:
    """Messages from the supervisor.

    :param said: what has come already. :ivar said: all that has come, for as long as it is kept.
    """

    def __init__(self, channel: socket.socket, said: bytes = b"") -> None:
        self._channel = channel
        self._frames = frames.Frames(frames.MAX_OUTBOUND)
        self._ready: list[Any] = []
        self.said: bytearray | None = bytearray()
        if said:
            self._feed(said)

    def wait(self) -> Any:
        """Give the next message; a supervisor that is gone counts as ``Stop``."""
        while not self._ready:
            self._read()
        return self._ready.pop(0)

    def next_run(self) -> Any:
        """Wait for what is to be done next; what concerned the last stretch comes too late."""
        message = self.wait()
        while isinstance(message, orders.Follows | orders.Withdraw):
            message = self.wait()
        return message

    def answer(self) -> Any:
        """Wait for values that were asked for, or for the end; what else comes is kept."""
        while not (found := [m for m in self._ready if isinstance(m, orders.Values | orders.Stop)]):
            self._read()
        self._ready.remove(found[0])
        return found[0]

    def withdrawn(self) -> str:
        """Say why the stretch is to end before its next test; nothing where it is to go on."""
        self._look()
        if any(isinstance(message, orders.Stop) for message in self._ready):
            return "stopped"
        taken = any(isinstance(m, orders.Withdraw) and m.running for m in self._ready)
        return "withdrawn" if taken else ""

    def told_last(self) -> int | None:
        """Give the place that was said to come after the stretch, by what has come in its midst.

        :return: -1 where what was to come was withdrawn; ``None`` where nothing has come.
        """
        places = [
            message.place if isinstance(message, orders.Follows) else -1
            for message in self._ready
            if isinstance(message, orders.Follows | orders.Withdraw)
        ]
        return places[-1] if places else None

    def _look(self) -> None:
        """Take in what has come, without waiting."""
        while select.select([self._channel], [], [], 0)[0] and not any(
            isinstance(message, orders.Stop) for message in self._ready
        ):
            self._read()

    def follows(self, run: orders.Run) -> orders.Run:
        """Give a stretch with what has come since of what follows it."""
        told = self.told_last()
        return run if told is None else msgspec.structs.replace(run, following=told)

    def wait_until_shown(self) -> None:
        """Wait until what a test wrote is on its way, or until ``Stop``."""
        while not any(isinstance(message, orders.Shown | orders.Stop) for message in self._ready):
            self._read()
        self._ready = [message for message in self._ready if not isinstance(message, orders.Shown)]

    def _read(self) -> None:
        chunk = self._channel.recv(2**16)  # a test may have left little memory
        if not chunk:
            self._ready.append(orders.Stop(0.0))
        self._feed(chunk)

    def _feed(self, chunk: bytes) -> None:
        if self.said is not None:
            self.said += chunk
        self._ready += [frames.read_message(body) for body in self._frames.feed(chunk)]
