"""Frames: cut anyhow they come out whole, and a stream that is not in order is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_remotegpu.errors import EndOfStreamError, ProtocolError
from pytest_remotegpu.protocol import events, frames, orders
from pytest_remotegpu.protocol.hello import Hello

QUICK = settings(max_examples=100, deadline=None)
REFUSED = (ProtocolError, EndOfStreamError)
HELLO = frames.frame(Hello.here().encode())


@st.composite
def chunks_of(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Cut bytes at any places."""
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@QUICK
@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_bodies_come_out_whole(bodies: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(frames.frame(body) for body in bodies)
    cutter = frames.Frames(40)
    found = [b for chunk in data.draw(chunks_of(whole)) for b in cutter.feed(chunk)]
    assert found == bodies
    assert cutter.pending == 0


@QUICK
@given(st.binary(min_size=1, max_size=40), st.data())
def test_what_has_begun_is_pending(body: bytes, data: st.DataObject) -> None:
    whole = frames.frame(body)
    cut = data.draw(st.integers(1, len(whole) - 1))
    cutter = frames.Frames(40)
    assert list(cutter.feed(whole[:cut])) == []
    assert cutter.pending == cut


def test_length_is_refused_before_its_bytes_come() -> None:
    cutter = frames.Frames(40)
    assert list(cutter.feed(frames.frame(b"x" * 40))) == [b"x" * 40]
    with pytest.raises(ProtocolError, match="41 bytes, where 40 is the most"):
        list(cutter.feed(frames.frame(b"x" * 41)[:4]))


def test_frames_before_a_bad_one_are_good() -> None:
    feed = frames.Frames(40).feed(frames.frame(b"good") + frames.frame(b"x" * 41))
    assert next(feed) == b"good"
    with pytest.raises(ProtocolError):
        next(feed)


@given(st.text(st.characters() | st.sampled_from("\udcff\ud800\udfff\0\ufffd")), st.binary())
def test_a_message_keeps_names_that_are_no_utf_8(text: str, payload: bytes) -> None:
    """Wherever in it they stand; those of files, of arguments, of variables."""
    assume("\0\ufffdd" not in text)
    options = orders.Options(args=[text, "x"], argv=[], files=[text])
    draft = orders.Order(
        worker="w", nonce="n", gpus=1, cwd=text, root="/", tree=None, variables={text: text},
        environ={"A": text}, options=options, max_artifact=1, payload=payload, run=orders.Run(0, 1),
    )  # fmt: skip
    (body,) = frames.Frames(frames.MAX_OUTBOUND).feed(frames.encode_message(draft))
    assert frames.read_message(body) == draft


def test_message_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_OUTBOUND", 100)
    with pytest.raises(ProtocolError, match="100 is the most"):
        frames.encode_message(orders.Values(b"x" * 200))


# ---------------------------------------------------------------- streams

SIZES = (1, 3, 1, 2, 1)
"""How many events are in each frame of the stream below; the last frame ends it."""


def good_stream() -> list[bytes]:
    """Give the frames of a stream in good order, after the hello."""
    found, first = [], 0
    for place, size in enumerate(SIZES):
        said: list[Any] = [events.Note(b"%d" % (first + n)) for n in range(size)]
        if place == len(SIZES) - 1:
            said[-1] = events.Ended()
        encoded = frames.encode_events(said)
        found.append(frames.encode_frame("w", "n", first, encoded))
        first += size
    return found


def read(*parts: bytes) -> list[events.Event]:
    """Read a whole stream and close it."""
    stream = frames.EventStream("w", "n")
    found: list[events.Event] = []
    for what in (what for part in parts for what in stream.feed(part)):
        if isinstance(what, list):
            found += what
    stream.close()
    return found


def test_stream_in_good_order() -> None:
    assert len(read(HELLO, *good_stream())) == sum(SIZES)


@QUICK
@given(st.lists(st.integers(0, len(SIZES) - 1), max_size=8))
def test_stream_in_any_other_order(order: list[int]) -> None:
    """Left out, repeated, swapped: only one order is right."""
    assume(order != list(range(len(SIZES))))
    whole = good_stream()
    with pytest.raises(REFUSED):
        read(HELLO, *(whole[place] for place in order))


@QUICK
@given(st.integers(0, len(SIZES) - 1), st.sampled_from(["nonce", "worker", "first"]))
def test_stream_with_a_foreign_frame(place: int, what: str) -> None:
    encoded = frames.encode_events([events.Note(b"x")])
    head: dict[str, Any] = {"worker": "w", "nonce": "n", "first": sum(SIZES[:place])}
    head[what] = head[what] + (100 if what == "first" else "x")
    foreign = frames.encode_frame(head["worker"], head["nonce"], head["first"], encoded)
    whole = good_stream()
    with pytest.raises(ProtocolError):
        read(HELLO, *whole[:place], foreign, *whole[place:])


@QUICK
@given(st.data())
def test_stream_that_is_cut(data: st.DataObject) -> None:
    whole = HELLO + b"".join(good_stream())
    with pytest.raises(EndOfStreamError, match=r"stops|hello"):
        read(whole[: data.draw(st.integers(0, len(whole) - 1))])


@QUICK
@given(st.data())
def test_stream_with_a_wrong_byte(data: st.DataObject) -> None:
    """It raises an error of ours, or it is another good stream of as many events."""
    whole = bytearray(b"".join(good_stream()))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    try:
        found = read(HELLO, bytes(whole))
    except REFUSED:
        return
    assert len(found) == sum(SIZES)


@QUICK
@given(st.lists(st.binary(max_size=30), max_size=3), st.booleans())
def test_stream_of_anything(bodies: list[bytes], greeted: bool) -> None:
    """No bytes make it raise anything but an error of ours."""
    with pytest.raises(REFUSED):
        read(HELLO if greeted else b"", *(frames.frame(body) for body in bodies))


def test_nothing_follows_the_end() -> None:
    after = frames.encode_frame("w", "n", sum(SIZES), frames.encode_events([]))
    with pytest.raises(ProtocolError, match="after the end"):
        read(HELLO, *good_stream(), after)


def test_frame_of_too_many_events() -> None:
    """A few bytes on the wire weigh more in memory, so a frame may not hold a million of them."""
    tiny = frames.encode_events([events.Note(b"")])[1:]
    number = 10**6
    encoded = b"\xdd" + number.to_bytes(4, "big") + tiny * number
    stream = frames.EventStream("w", "n")
    list(stream.feed(HELLO))
    with pytest.raises(ProtocolError):
        list(stream.feed(frames.encode_frame("w", "n", 0, encoded)))


def test_end_is_the_last_event_of_its_frame() -> None:
    encoded = frames.encode_events([events.Ended(), events.Note(b"x")])
    with pytest.raises(REFUSED):
        read(HELLO, frames.encode_frame("w", "n", 0, encoded))
