"""Events: each comes back as it was sent, and a report's data is pytest's own to the last bit."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events, frames, orders, packing, plain

QUICK = settings(max_examples=100, deadline=None)
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=12)
WIRE_TEXT = TEXT.map(plain.to_text)
PLACE = st.integers(0, 2**63 - 1)
FLOAT = st.floats(allow_nan=False)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Give a strategy for a field of this type."""
    match kind:
        case msgspec.inspect.UnionType():
            return st.one_of([values(part) for part in kind.types])
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.BytesType():
            return WIRE_TEXT
        case msgspec.inspect.StrType():
            return st.text(max_size=12)
        case msgspec.inspect.IntType():
            return PLACE if kind.ge == 0 else st.integers(-(2**63), 2**63 - 1)
        case msgspec.inspect.FloatType():
            return FLOAT
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.ListType():
            return st.lists(values(kind.item_type), max_size=3)
        case msgspec.inspect.TupleType():
            return st.tuples(*(values(part) for part in kind.item_types))
        case _:
            return st.just({"$report_type": "TestReport"})


def event_of(kind: Any) -> st.SearchStrategy[events.Event]:
    fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return st.builds(kind, **{field.name: values(field.type) for field in fields})


KINDS = [kind for kind in get_args(events.Event) if kind is not events.Ended]
EVENT = st.one_of([event_of(kind) for kind in KINDS])


def over_the_wire(*sent: events.Event) -> list[events.Event]:
    """Send events through a stream and give what comes out of it."""
    stream = frames.EventStream("w", "n")
    list(stream.feed(frames.frame(b"{}")))
    encoded = frames.encode_events(list(sent))
    [found] = stream.feed(frames.encode_frame("w", "n", 0, encoded))
    assert isinstance(found, list)
    return found


@QUICK
@given(st.lists(EVENT, max_size=5), event_of(events.Ended))
def test_events_come_back_as_they_were_sent(sent: list[events.Event], ended: events.Event) -> None:
    assert over_the_wire(*sent, ended) == [*sent, ended]


def test_no_two_events_share_a_tag() -> None:
    kinds = get_args(events.Event)
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(kinds)
    assert all(type(tag) is int for tag in tags)


@pytest.mark.parametrize("kind", get_args(events.Event), ids=lambda kind: kind.__name__)
def test_events_are_frozen(kind: Any) -> None:
    assert kind.__struct_config__.frozen
    assert kind.__struct_config__.forbid_unknown_fields


# ---------------------------------------------------------------- reports

LEAVES = st.none() | st.booleans() | st.integers() | FLOAT | TEXT | st.binary(max_size=9)
DATA = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXT, inner, max_size=3)
    ),
    max_leaves=8,
)
SECTIONS = st.lists(st.tuples(TEXT, TEXT), max_size=4)
OWN = {"nodeid", "location"}
CLOSED = {"when", "outcome", "duration", "start", "stop", "keywords", "sections", "longrepr", *OWN}


@st.composite
def report_data(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a dict such as pytest makes of a report, with all that plugins may add to it."""
    extra = draw(st.dictionaries(TEXT.filter(lambda key: key not in CLOSED), DATA, max_size=3))
    times = draw(st.none() | st.tuples(FLOAT, FLOAT))
    return {
        **extra,
        "$report_type": "TestReport",
        "nodeid": "test_x.py::test_x",
        "location": ("test_x.py", 1, "test_x"),
        "when": draw(st.none() | TEXT),
        "outcome": draw(TEXT),
        "duration": draw(FLOAT),
        "keywords": draw(st.dictionaries(TEXT, st.just(1) | DATA, max_size=3)),
        "sections": draw(SECTIONS),
        "longrepr": draw(DATA),
        "user_properties": draw(st.lists(st.tuples(TEXT, DATA), max_size=3)),
        **({} if times is None else {"start": times[0], "stop": times[1]}),
    }


def back_and_forth(data: dict[str, Any]) -> dict[str, Any]:
    """Send a report's data over the wire and rebuild it."""
    sections = list(data["sections"])
    changed: list[str] = []
    packed = packing.pack_report(
        0, data, list(range(len(sections))), keywords=True, changed=changed
    )
    assert changed == []
    [found] = over_the_wire(packed)
    assert isinstance(found, events.Report)
    keywords = {plain.from_text(name): 1 for name in found.keywords or ()}
    return packing.unpack_report(found, sections, keywords)


@QUICK
@given(report_data())
def test_report_comes_back_exactly(data: dict[str, Any]) -> None:
    expected = {key: value for key, value in data.items() if key not in OWN}
    assert back_and_forth(data) == expected


def fails(value: int) -> None:
    """Fail some frames away, with a chain of causes."""
    try:
        dict[str, int]()["first"]
    except KeyError:
        assert value == 2


@pytest.mark.parametrize("style", ["long", "short", "native", "no", "line"])
def test_real_report_comes_back_exactly(style: str, request: pytest.FixtureRequest) -> None:
    """What the user reads of a failure is the same, colours aside."""
    config, item = request.config, request.node
    call = pytest.CallInfo.from_call(lambda: fails(1), "call")
    chosen, config.option.tbstyle = config.option.tbstyle, style
    try:
        report = pytest.TestReport.from_item_and_call(item, call)
    finally:
        config.option.tbstyle = chosen
    report.sections.append(("Captured stdout call", "said\n"))
    data = config.hook.pytest_report_to_serializable(config=config, report=report)
    found = back_and_forth(data)
    assert found == {key: value for key, value in data.items() if key not in OWN}
    found["nodeid"], found["location"] = report.nodeid, report.location
    rebuilt = config.hook.pytest_report_from_serializable(config=config, data=found)
    assert rebuilt.longreprtext == report.longreprtext
    assert rebuilt.capstdout == "said\n"
    assert rebuilt.keywords == report.keywords


@pytest.mark.parametrize("index", [1, 7, 2**40])
def test_report_refers_to_sections_that_came(index: int) -> None:
    packed = packing.pack_report(
        0, {"outcome": "passed", "keywords": {}}, [index], keywords=False, changed=[]
    )
    with pytest.raises(ProtocolError, match="section that was not sent"):
        packing.unpack_report(packed, [("a", "b")], {})


def test_live_objects_on_a_report_become_text() -> None:
    changed: list[str] = []
    data = {"outcome": "passed", "keywords": {}, "extra": [object()], "when": "call"}
    packed = packing.pack_report(0, data, [], keywords=True, changed=changed)
    assert changed == ["extra[0] (builtins.object)"]
    [found] = over_the_wire(packed)
    assert isinstance(found, events.Report)
    assert found.open["extra"][0].startswith("<object object")


# ---------------------------------------------------------------- what goes out

ORDER = orders.Order(
    worker="w", nonce="n", gpus=1, cwd=".", root="/r", variables={"A": "ä"}, environ=None,
    tree=orders.Tree(digest="0" * 64, base="1" * 64, delta=b"x", project="p", name="n"),
    options=orders.Options(args=["x"], argv=[], files=[], live=True),
    max_artifact=5, payload=b"\x80", run=orders.Run(0, 3),
)  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        ORDER,
        orders.Run(1, 2, 3),
        orders.Finish(),
        orders.Stop(0.5),
        orders.Values(b"x"),
        orders.Blob("0" * 64, b"x", last=False, unfolded=3),
        orders.Pack(["0" * 64], [3], b"x"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_arrive_as_they_were_sent(message: Any) -> None:
    [body] = frames.Frames(frames.MAX_OUTBOUND).feed(frames.encode_message(message))
    assert frames.read_message(body) == message


@QUICK
@given(st.binary(max_size=40))
def test_bytes_are_a_message_or_an_error_of_ours(body: bytes) -> None:
    try:
        message = frames.read_message(body)
    except ProtocolError:
        return
    assert isinstance(message, get_args(orders.Message))
