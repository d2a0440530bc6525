"""How frames stand in a byte stream: four bytes of length, then the body.

Inbound streams are watched: length, order, sender and attempt of each frame are checked, so that
a spliced, repeated, cut or hostile stream is noticed before anything of it is believed. Knows no
channel, and of an event only whether it is the last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from pytest_remotegpu.errors import EndOfStreamError, ProtocolError
from pytest_remotegpu.protocol import events, orders, plain
from pytest_remotegpu.protocol.hello import Hello

__all__ = [
    "MAX_INBOUND",
    "MAX_OUTBOUND",
    "EventStream",
    "Frames",
    "decode_events",
    "encode_events",
    "encode_frame",
    "encode_message",
    "frame",
    "read_message",
]

MAX_INBOUND: Final = 16 * 2**20
"""Bytes that a frame from far away may have; senders cut larger texts into pieces."""
MOST_EVENTS: Final = 10_000
"""Events that a frame may hold: in memory each weighs far more than on the wire."""
MAX_OUTBOUND: Final = 2**30
_LENGTH: Final = struct.Struct(">I")


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    worker: str
    nonce: str
    first: int
    events: msgspec.Raw


_EVENTS: Final = msgspec.msgpack.Decoder(
    Annotated[list[events.Event], msgspec.Meta(max_length=MOST_EVENTS)],
    ext_hook=plain.read_extension,
)
_FRAME: Final = msgspec.msgpack.Decoder(_Frame)
_MESSAGE: Final = msgspec.msgpack.Decoder(orders.Message)


def frame(body: bytes) -> bytes:
    """Put a body's length before it."""
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cut a byte stream into the bodies of its frames.

    :param limit: bytes that one body may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take in a chunk of any size and yield each body that is complete now.

        :raises ProtocolError: where a frame claims to be longer than the limit.
        """
        buffer = self._buffer
        buffer += chunk
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > self._limit:
                    raise ProtocolError(
                        f"a frame of {length} bytes, where {self._limit} is the most"
                    )
                end = start + _LENGTH.size + length
                if len(buffer) < end:
                    return
                body = bytes(memoryview(buffer)[start + _LENGTH.size : end])
                start = end
                yield body
        finally:
            del buffer[:start]

    @property
    def pending(self) -> int:
        """Bytes of a frame that has begun and not ended."""
        return len(self._buffer)


def encode_message(message: Any) -> bytes:
    """Encode one outward message as a frame.

    Names of files, arguments and variables may hold bytes that are no UTF-8: lone surrogates here.

    :raises ProtocolError: where it is larger than a frame may be.
    """
    try:
        body = plain.ENCODER.encode(message)
    except UnicodeEncodeError:
        body = plain.ENCODER.encode(plain.mapped(message, plain.escape))
    if len(body) > MAX_OUTBOUND:
        raise ProtocolError(f"a message of {len(body)} bytes, where {MAX_OUTBOUND} is the most")
    return frame(body)


def read_message(body: bytes) -> Any:
    """Decode an outward message.

    :raises ProtocolError: where it is none of the known ones.
    """
    try:
        message = _MESSAGE.decode(body)
        return plain.mapped(message, plain.unescape) if plain.ESCAPED in body else message
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
        raise ProtocolError(f"unknown message: {error}") from None


def encode_events(batch: list[Any]) -> bytes:
    """Encode a list of events, without a frame around it."""
    return plain.ENCODER.encode(batch)


def decode_events(encoded: bytes | msgspec.Raw) -> list[events.Event]:
    """Decode what :func:`encode_events` gave.

    :raises ProtocolError: where it is no list of events.
    """
    try:
        found: list[events.Event] = _EVENTS.decode(encoded)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
        raise ProtocolError(f"undecodable events: {error}") from None
    return found


def encode_frame(worker: str, nonce: str, first: int, encoded: bytes | msgspec.Raw) -> bytes:
    """Frame a list of encoded events.

    :param first: the number of the first of them in the stream.
    """
    return frame(plain.ENCODER.encode(_Frame(worker, nonce, first, msgspec.Raw(encoded))))


class EventStream:
    """Read what one worker sends: first its hello, then events in unbroken sequence.

    :param worker: the id that each frame must carry.
    :param nonce: this attempt's mark, likewise.
    """

    def __init__(self, worker: str, nonce: str) -> None:
        self._sender = (worker, nonce)
        self._frames = Frames(MAX_INBOUND)
        self._next = 0
        self.hello: Hello | None = None
        self.ended = False
        self.weight = 0

    def feed(self, chunk: bytes) -> Iterator[Hello | list[events.Event]]:
        """Yield the hello and then the events of each frame that ``chunk`` completes.

        :raises ProtocolError: for anything that is not the next thing of this very stream.
        """
        for body in self._bodies(chunk):
            self.weight = len(body)
            if self.hello is None:
                self.hello = Hello.decode(body)
                yield self.hello
            else:
                yield self._read(body)

    def _bodies(self, chunk: bytes) -> Iterator[bytes]:
        try:
            yield from self._frames.feed(chunk)
        except ProtocolError as error:
            if self.hello is not None:
                raise
            raise ProtocolError(
                f"the far side wrote {chunk[:60]!r} where its hello was due; "
                "does a start-up file of its shell print something?"
            ) from error

    def _read(self, body: bytes) -> list[events.Event]:
        try:
            read = _FRAME.decode(body)
            found: list[events.Event] = _EVENTS.decode(read.events)
        except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
            raise ProtocolError(f"undecodable frame: {error}") from None
        if (read.worker, read.nonce) != self._sender:
            raise ProtocolError(
                f"a frame of {read.worker!r} ({read.nonce!r}) in the stream of {self._sender[0]!r}"
            )
        if read.first != self._next:
            raise ProtocolError(f"event {read.first} came where event {self._next} was due")
        if self.ended:
            raise ProtocolError("events came after the end of the stream")
        if any(isinstance(event, events.Ended) for event in found[:-1]):
            raise ProtocolError("events came after the end of the stream")
        self._next += len(found)
        self.weight += 200 * len(found)
        self.ended = any(isinstance(event, events.Ended) for event in found[-1:])
        return found

    def close(self) -> None:
        """Say that no byte follows.

        :raises EndOfStreamError: where the stream stops before its end.
        """
        pending = self._frames.pending
        if self.hello is None:
            raise EndOfStreamError("the far side ended before it said hello")
        if pending:
            raise EndOfStreamError(f"the stream stops within a frame, after {pending} bytes of it")
        if not self.ended:
            raise EndOfStreamError(f"the stream stops after event {self._next - 1}, before its end")
