"""The wire alone: what it costs to write and read the three reports of a test that passed.

Takes the way of the bytes through runner, supervisor and session, all in one process: events,
batches, frames, the watched stream, and back to what pytest serialised. Knows the protocol, not
pytest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pytest_remotegpu.protocol import events, frames, packing
from pytest_remotegpu.protocol.hello import Hello

__all__ = ["seconds_per_test"]

REPEATS: Final = 5
_BATCHES: Final = msgspec.msgpack.Decoder(events.Batch)
_ENCODER: Final = msgspec.msgpack.Encoder()


def seconds_per_test(reports: list[dict[str, Any]], tests: int) -> float:
    """Give the seconds that the reports of one test take, the median of a few series.

    :param reports: setup, call and teardown as ``pytest_report_to_serializable`` gives them.
    :param tests: how many tests one series has.
    """
    return statistics.median(_series(reports, tests) for _ in range(REPEATS)) / tests


def _series(reports: list[dict[str, Any]], tests: int) -> float:
    stream = frames.EventStream("worker", "nonce")
    list(stream.feed(frames.frame(Hello.here().encode())))
    unread, sent, count = frames.Frames(frames.MAX_OUTBOUND), 0, 0
    start = time.perf_counter()
    for said in _said(reports, tests):
        for body in unread.feed(_batch(said)):
            batch = _BATCHES.decode(body)
            frame = frames.encode_frame("worker", "nonce", sent, batch.events)
            sent += batch.count
            count += sum(map(_read, stream.feed(frame)))
    seconds = time.perf_counter() - start
    if count != tests * len(reports):
        raise AssertionError(f"{count} reports came of {tests * len(reports)}")
    return seconds


def _said(reports: list[dict[str, Any]], tests: int) -> Iterator[list[Any]]:
    """Give what a runner says at a time: first up to a test's start, then up to its call's end."""
    before: list[Any] = []
    for place in range(tests):
        setup, call, teardown = (
            packing.pack_report(place, report, [], keywords=report is reports[0], changed=[])
            for report in reports
        )
        yield [*before, events.Started(place)]
        yield [setup, call]
        before = [teardown, events.Finished(place)]
    yield before


def _batch(said: list[Any]) -> bytes:
    encoded = msgspec.Raw(frames.encode_events(said))
    return frames.frame(_ENCODER.encode(events.Batch(len(said), 0, 1, 0, False, encoded)))


def _read(what: Any) -> int:
    """Read reports back; give their number."""
    reports = [event for event in what if isinstance(event, events.Report)]
    for report in reports:
        packing.unpack_report(report, [], {})
    return len(reports)
