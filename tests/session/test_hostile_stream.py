"""A hostile worker breaks the stream itself: hello, frames, their order, their number and size.

Bounded in time and memory, its tests fail with a reason, and the local ones are reported.
"""

from __future__ import annotations

import itertools
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

import fakes
from fakes import Far, report
from pytest_remotegpu.protocol import events, frames
from pytest_remotegpu.protocol.hello import Hello
from stage import FAR, HERE, Played, Stage, each

# ---------------------------------------------------------------- the hello

HELLO = json.loads(Hello.here(pretend=2).encode())


def first_words(data: bytes) -> fakes.Script:
    """Make a script that says this first, and then serves the order honestly."""

    def script(far: Far) -> None:
        far.raw(data)
        far.serve()

    return script


def hello(**changes: object) -> bytes:
    """Encode a hello with some fields changed."""
    return frames.frame(json.dumps({**HELLO, **changes}).encode())


NO_HELLO = {
    "text": b"Welcome to Ubuntu 24.04 LTS\nLast login: today\n" * 3,
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x50",
    "pickle": frames.frame(b"cos\nsystem\n(S'true'\ntR."),
    "empty": frames.frame(b""),
    "half of one": frames.frame(b'{"protocol": 1'),
    "list": frames.frame(b"[]"),
    "null": frames.frame(b"null"),
    "string": frames.frame(b'"protocol"'),
    "deep": frames.frame(b"[" * 100_000),
    "not UTF-8": frames.frame(b'{"package": "\xff"}'),
    "protocol that is text": hello(protocol="1"),
    "protocol that is true": hello(protocol=True),
    "protocol that is a fraction": hello(protocol=1.0),
    "version that is a number": hello(python=3.11),
    "version that is a list": hello(pytest=["9"]),
    "GPUs that are a number": hello(gpus=5),
    "pretended GPUs that are text": hello(pretend="two"),
    "more that is a list": hello(extra=[1]),
    "no hello at all": frames.encode_frame("scripted-1", "x", 0, frames.encode_events([])),
}


@pytest.mark.timeout(60)
def test_hellos_that_are_none(stage: Stage) -> None:
    lanes = stage.run_lanes({name: first_words(data) for name, data in NO_HELLO.items()})
    each(lanes, lambda _name, played: played.caught(said="not run"))


OTHERS = {
    "protocol": ({"protocol": 99}, "speaks protocol 99"),
    "protocol of the past": ({"protocol": -1}, "speaks protocol -1"),
    "Python": ({"python": "2.7"}, "the far Python is 2.7"),
    "pytest": ({"pytest": "1.0"}, "the far pytest is 1.0"),
    "no pytest": ({"pytest": ""}, "has no pytest"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("changes", "said"), OTHERS.values(), ids=OTHERS)
def test_other_version_is_refused_before_any_test(
    changes: dict[str, object], said: str, stage: Stage
) -> None:
    played = stage.run(first_words(hello(**changes)))
    assert played.ret == 4, played.text
    assert said in played.text
    assert played.verdicts((*FAR, *HERE)) == ["none"] * 5


# ---------------------------------------------------------------- frames


def one(far: Far, *, worker: str = "", nonce: str = "", first: int | None = None) -> bytes:
    """Frame the start of the first test, with a head that may lie."""
    order = far.order
    encoded = frames.encode_events([events.Started(0)])
    number = far.sent if first is None else first
    return frames.encode_frame(worker or order.worker, nonce or order.nonce, number, encoded)


def raw(encoded: bytes) -> Callable[[Far], bytes]:
    """Frame bytes as the events of a good head."""
    return lambda far: frames.encode_frame(far.order.worker, far.order.nonce, far.sent, encoded)


STREAMS: dict[str, tuple[Callable[[Far], bytes], str]] = {
    "claims a gigabyte": (lambda _: struct.pack(">I", 2**30) + b"x", "where 16777216 is the most"),
    "claims a byte too much": (lambda _: struct.pack(">I", 2**24 + 1), "16777217 bytes"),
    "is empty": (lambda _: frames.frame(b""), "undecodable"),
    "is a second hello": (lambda _: hello(), "undecodable"),
    "is a pickle": (lambda _: frames.frame(b"cos\nsystem\n(S'true'\ntR."), "undecodable"),
    "has another nonce": (lambda far: one(far, nonce="0" * 16), "a frame of"),
    "has another worker's id": (lambda far: one(far, worker="elsewhere-1"), "'elsewhere-1'"),
    "comes twice": (lambda far: one(far, first=0), "came where event 5 was due"),
    "leaves a gap": (lambda far: one(far, first=6), "event 6 came where event 5 was due"),
    "counts backwards": (lambda far: one(far, first=-1), "event -1 came"),
    "holds no list": (raw(b"\x01"), "undecodable"),
    "holds an unknown event": (raw(msgspec.msgpack.encode([[99, 0]])), "undecodable"),
    "holds an event without a kind": (raw(msgspec.msgpack.encode([[]])), "undecodable"),
    "holds too few fields": (raw(msgspec.msgpack.encode([[3]])), "undecodable"),
    "holds too many fields": (raw(msgspec.msgpack.encode([[3, 0, 0]])), "undecodable"),
    "holds half an event": (raw(msgspec.msgpack.encode([[3, 0]])[:-1]), "undecodable"),
    "nests too deeply": (raw(b"\x91" * 100_000), "undecodable"),
}


def breaks_with(make: Callable[[Far], bytes]) -> fakes.Script:
    """Make a script that sends this after one honest test and before two."""

    def script(far: Far) -> None:
        far.greet()
        far.run(0)
        far.raw(make(far))
        far.run(1, 2)
        far.end()

    return script


@pytest.mark.timeout(60)
def test_frames_that_break_the_stream(stage: Stage) -> None:
    """The verdict of the test before stands, those after get none."""

    def check(name: str, played: Played) -> None:
        played.caught(said=STREAMS[name][1], guilty=FAR[1:])

    each(stage.run_lanes({name: breaks_with(make) for name, (make, _) in STREAMS.items()}), check)


def test_stream_that_goes_on_after_its_end(stage: Stage) -> None:
    def script(far: Far) -> None:
        far.greet()
        far.run(0)
        far.say(events.Ended())
        far.run(1, 2)
        far.end()

    stage.run(script).caught(said="after the end", guilty=FAR[1:])


# ---------------------------------------------------------------- without end

Endless = Callable[[int], events.Event]
MANY = 5_000
LITTLE = 2**16
"""Bytes that a test may keep waiting here; each thing kept counts for more than its text."""

KEPT: dict[str, Endless] = {
    "sections": lambda n: events.Section(0, n, b"name", b""),
    "pieces": lambda _: events.Section(0, 0, b"name", b"", last=False),
    "reports": lambda _: report(0, "call"),
    "warnings": lambda _: events.Warned(0, "runtest", "x.Y", b"", b"", 1, b"", None),
    "artifacts": lambda n: events.Artifact(0, b"%d" % n, b""),
    "questions": lambda _: events.Wants([0, 1, 2]),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
def test_what_is_kept_of_a_test_has_an_end(
    make: Endless, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each piece is empty."""
    monkeypatch.setattr("pytest_remotegpu.reports.MOST_PENDING", LITTLE)
    (stage.path / "pytest.ini").write_text(f"[pytest]\nremotegpu_max_artifact = {LITTLE}\n")

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0), report(0, "setup"))
        for start in range(0, MANY, 250):
            far.say(*(make(n) for n in range(start, start + 250)))
        far.say(report(0, "call"), report(0, "teardown"), events.Finished(0))
        far.run(1, 2)
        far.end()

    played = stage.run(script, args=(f"--remote-artifacts={stage.path / '.pytest_cache' / 'a'}",))
    played.caught(said="broke the protocol")


SHOWN: dict[str, Endless] = {
    "notes": lambda n: events.Note(b"%d" % n),
    "warnings": lambda n: events.Warned(-1, "config", f"x.Y{n}", b"", b"", n, b"", None),
    "failed collections": lambda n: events.CollectFailed(b"%d.py" % n, b"text"),
    "failed starts": lambda n: events.StartFailed(b"%d" % n),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", SHOWN.values(), ids=SHOWN)
def test_what_is_shown_of_the_far_side_has_an_end(make: Endless, stage: Stage) -> None:
    """Whether the rest is left out or the worker is given up: nobody is shown thousands."""

    def script(far: Far) -> None:
        far.greet()
        for start in range(0, MANY, 250):
            far.say(*(make(n) for n in range(start, start + 250)))
        far.serve()

    played = stage.run(script)
    assert "INTERNALERROR>" not in played.text
    assert played.text.count("\n") < MANY
    assert played.verdicts(HERE) == ["passed"] * 2


def test_large_output_has_an_end(stage: Stage) -> None:
    piece = b"x" * (15 * 2**20)
    sent = 0

    def script(far: Far) -> None:
        nonlocal sent
        far.greet()
        far.say(events.Started(0), report(0, "setup"))
        for sent in range(100):  # noqa: B007
            far.say(events.Section(0, 0, b"name", piece, last=False))

    stage.run(script).caught(said="bytes came for one test")
    assert sent < 40


def stream_of_output() -> Iterator[events.Event]:
    """Yield what passes through here and is not kept."""
    return itertools.cycle([events.Live(1, b"x\n"), events.Live(2, b"y\n")])


@pytest.mark.timeout(20)
def test_output_without_pause_does_not_keep_local_tests_waiting(stage: Stage) -> None:
    """As long as it likes a test may print; the local tests run all the same."""
    mark = stage.path / ".pytest_cache" / "ran"
    here = stage.path / "test_here.py"
    here.write_text(
        here.read_text() + f"\ndef test_mark():\n    open({str(mark)!r}, 'w').close()\n"
    )
    ran_meanwhile = False

    def script(far: Far) -> None:
        nonlocal ran_meanwhile
        far.greet()
        far.say(events.Started(0))
        output = stream_of_output()
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline and not mark.exists():
            far.say(*itertools.islice(output, 1000))
        ran_meanwhile = mark.exists()
        far.say(*(report(0, when) for when in ("setup", "call", "teardown")), events.Finished(0))
        far.run(1, 2)
        far.end()

    assert stage.run(script).ret == 0
    assert ran_meanwhile


@pytest.mark.timeout(20)
def test_output_without_end_does_not_keep_the_session(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All verdicts are in: whatever else comes, the session ends in its own time."""
    monkeypatch.setattr("pytest_remotegpu.far.CLOSING", 0.5)
    over = threading.Event()

    def script(far: Far) -> None:
        far.greet()
        far.run(0, 1, 2)
        far.say(events.StretchEnded())
        output = stream_of_output()
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            far.say(*itertools.islice(output, 1000))
        over.set()

    played = stage.run(script, args=("--remote-timeout=0.5",))
    assert "it has not ended after 1 s" in played.text
    assert played.ret == 1
    assert not over.is_set(), "the session waited for the end of the stream"
