"""What torch's flight recorders say, in words: which collective each rank is in, and which not."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.worker.ranks import recorder
from pytest_remotegpu.worker.ranks.flight import Operation, pending, read, words

BOTH = frozenset({0, 1})


def entry(number: int, name: str = "nccl:all_reduce", **given: Any) -> dict[str, Any]:
    """Make an entry as torch writes it."""
    made: dict[str, Any] = {
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "input_dtypes": ["Float"],
        "input_sizes": [[3]],
        "is_p2p": False,
        "process_group": ["0", "default_pg"],
        "profiling_name": name,
        "retired": True,
        "state": "completed",
        "time_created_ns": 1000 + number,
    }
    return made | given


def dump(*entries: dict[str, Any], ranks: str = "[0, 1]", name: str = "0") -> bytes:
    """Make a record as torch's server gives it."""
    config = {name: {"name": name, "desc": "default_pg", "ranks": ranks}}
    return json.dumps({"entries": entries, "pg_config": config, "version": "2.10"}).encode()


STUCK: dict[str, Any] = {"retired": False, "state": "scheduled"}


def test_the_first_that_a_rank_has_not_come_out_of() -> None:
    operations = read([dump(entry(1), entry(2, **STUCK), entry(3, "nccl:broadcast", **STUCK))])
    found = pending(operations)
    assert found is not None
    assert str(found) == "all_reduce, no. 2 of the default group (Float [3])"
    assert found.members == BOTH
    assert pending(read([dump(entry(1))])) is None


def test_who_has_not_entered_what_others_are_in() -> None:
    recorded = {
        0: read([dump(entry(1), entry(2, **STUCK))]),
        1: read([dump(entry(1))]),
        2: [],
        3: read([dump(entry(1), entry(2, **STUCK))]),
    }
    assert words(recorded, 5).splitlines() == [
        (
            "ranks 0, 3: in all_reduce, no. 2 of the default group (Float [3]), which rank 1 has "
            "not entered"
        ),
        "rank 1: in no collective; the last was all_reduce, no. 1 of the default group (Float [3])",
        "rank 2: in no collective, and has entered none in this test",
    ]


def test_members_that_nobody_tells_are_those_of_the_default_group_or_who_has_been_in_it() -> None:
    own: dict[str, Any] = {"process_group": ["7", "left"]}
    unknown = {"name": "", "ranks": "[0, 1]"}
    recorded = {
        0: read([dump(entry(1), entry(2, **STUCK), name="")]),
        1: read([dump(entry(1, **own), name="")]),
        2: read([dump(entry(1, **own), entry(2, **own, **STUCK), **unknown)]),
    }
    assert words(recorded, 3).splitlines() == [
        (
            "rank 0: in all_reduce, no. 2 of the default group (Float [3]), which ranks 1-2 have "
            "not entered"
        ),
        "rank 1: in no collective; the last was all_reduce, no. 1 of group left (Float [3])",
        "rank 2: in all_reduce, no. 2 of group left (Float [3]), which rank 1 has not entered",
    ]


def test_the_first_collective_that_is_not_the_same_one_for_all() -> None:
    large: dict[str, Any] = {"input_sizes": [[6]]}
    recorded = {
        0: read([dump(entry(1), entry(2, **large), entry(3, "nccl:broadcast"))]),
        1: read([dump(entry(1), entry(2), entry(3))]),
    }
    assert words(recorded, 2).splitlines()[2:] == [
        (
            "no. 2 of the default group differs: rank 0: all_reduce (Float [6]); rank 1: "
            "all_reduce (Float [3])"
        )
    ]
    uneven = {rank: read([dump(entry(1, "nccl:gather", input_sizes=[[rank]]))]) for rank in BOTH}
    assert "differs" not in words(uneven, 2)


def test_messages_between_two_are_counted_apart() -> None:
    send = entry(5, "nccl:send 0->1", is_p2p=True, p2p_seq_id=1, op_id=2, **STUCK)
    recorded = {0: read([dump(entry(1), send)]), 1: read([dump(entry(1))])}
    first, _ = words(recorded, 2).splitlines()
    assert first == "rank 0: in send 0->1, no. 1 of the default group (Float [3])"


def test_a_group_that_came_again_under_its_name_begins_anew() -> None:
    old = [entry(1), entry(2, "nccl:barrier"), entry(3)]
    new = [entry(1, "nccl:broadcast", time_created_ns=2000)]
    assert [one.name for one in read([dump(*old, *new)])] == ["broadcast"]
    assert [one.number for one in read([dump(*old)], since=1002)] == [2, 3]
    gloo = dump(entry(1, "gloo:barrier", input_dtypes=[], input_sizes=[], time_created_ns=9))
    both = read([dump(*old), gloo])
    assert [str(one) for one in both][:1] == ["barrier, no. 1 of the default group"]
    assert len(both) == 4


@given(st.lists(st.one_of(st.binary(max_size=20), st.text(max_size=20).map(str.encode))))
def test_what_makes_no_sense_says_nothing(dumps: list[bytes]) -> None:
    assert read(dumps) == []
    assert words({0: read(dumps)}, 1) == ""


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*entry(1)]), values))
def test_an_entry_of_another_version_upsets_nothing(given: dict[str, Any]) -> None:
    operations = read([dump(entry(1) | given), dump(entry(2, "gloo:barrier"))])
    assert all(isinstance(one, Operation) for one in operations)
    assert words({0: operations, 1: []}, 2)


def test_one_file_for_all_recorders_of_a_rank() -> None:
    answers = {"fr_trace_json": b'{"pg_config": {}}', "dump_nccl_trace_json": dump(entry(1))}
    assert list(json.loads(recorder.joined(answers))) == ["dump_nccl_trace_json"]
    assert json.loads(recorder.joined({})) == {}
