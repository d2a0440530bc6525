"""Documents of sweeps: what is written is read back, and what others have written is understood."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sweeps import CARD, made, measureds
from pytest_remotegpu.bench.fa2 import document, judging
from pytest_remotegpu.bench.fa2.document import from_plain, read, to_plain, write
from pytest_remotegpu.bench.fa2.judging import KEYS, Question
from pytest_remotegpu.bench.fa2.measured import Measured, Result
from pytest_remotegpu.bench.fa2.rows import FLASH, Branch, Direction, Parity, Regime
from pytest_remotegpu.bench.lines import Sliding, parse
from pytest_remotegpu.errors import UsageError

QUESTIONS = st.builds(
    Question,
    st.sampled_from(Regime),
    st.floats(0.5, 3),
    st.sampled_from(judging.REFERENCES),
    st.lists(st.integers(1, 512), max_size=3).map(tuple),
    st.lists(st.sampled_from(Direction), max_size=2).map(tuple),
)
OLD = {
    "device_info",
    "parity_passed",
    "parity_output",
    "benchmark_output",
    "selection_output",
    "recommendation",
    "results",
    "timestamp",
}
FOREIGN: dict[str, Any] = {
    "device_info": {
        "cuda_available": True,
        "device_name": "NVIDIA A100-SXM4-40GB",
        "torch_version": "2.5.1",
        "cuda_version": "12.4",
        "flash_available": True,
    },
    "parity_passed": True,
    "parity_output": "3 passed",
    "benchmark_output": (
        "device: A100\n"
        "S=256 w=64 sliding masked 0.10 ms  fa2 0.20 ms  speedup x0.50\n"
        "S=1024 l=64 d=32 compressed masked 0.40 ms  fa2 0.20 ms  speedup x2.00\n"
    ),
    "selection_output": (
        "dense,N=1024,H=8,D=128,Dv=128,L=512,streams=1, tri_ms=0.500, ref_ms=1.000, "
        "speedup=2.00x, mae=1.0000e-03\n"
    ),
    "recommendation": {"fa2_min_len_win": 8192, "fa2_min_len_cmp": 1024, "sel_triton_min_L": 512},
    "results": [
        {
            "branch": "sliding",
            "sequence_length": 512,
            "window_size": 64,
            "speedup": 1.6,
            "masked_ms": 0.32,
            "fa2_ms": 0.2,
        },
        {
            "branch": "compressed",
            "sequence_length": 1024,
            "window_size": None,
            "speedup": 2.0,
            "masked_ms": 0.4,
            "fa2_ms": 0.2,
        },
    ],
    "timestamp": "2025-08-19T12:00:00",
}


ROW: Final[dict[str, Any]] = to_plain(made(), Question())["rows"][0]


def of_size(**sizes: Any) -> dict[str, Any]:
    """Give a row of a problem of other sizes."""
    return {**ROW, "problem": {**ROW["problem"], **sizes}}


def strictly(data: Any) -> Any:
    """Write JSON that any reader takes, and read it back."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(json.dumps(data, allow_nan=False), parse_constant=refuse)


def same(one: Measured, other: Measured) -> bool:
    """Compare two sweeps, where what is no number is itself."""
    return repr(one) == repr(other)


# ours


@given(measureds(), QUESTIONS)
def test_what_is_written_is_read_back(measured: Measured, question: Question) -> None:
    plain = strictly(to_plain(measured, question))
    found = from_plain(plain)
    assert same(found.measured, measured)
    assert found.question == question
    assert strictly(to_plain(found.measured, question)) == plain


@given(measureds(), QUESTIONS)
def test_the_old_keys_are_as_others_read_them(measured: Measured, question: Question) -> None:
    plain = strictly(to_plain(measured, question))
    assert plain.keys() >= OLD
    assert plain["device_info"].keys() == FOREIGN["device_info"].keys()
    assert tuple(plain["recommendation"]) == KEYS
    assert isinstance(plain["parity_passed"], bool)
    lines = parse(plain["benchmark_output"])
    assert lines.unread == ()
    assert len(lines.rows) == len(plain["results"])
    for one in plain["results"]:
        assert one.keys() == FOREIGN["results"][0].keys()
        assert (one["window_size"] is None) is (one["branch"] == "compressed")


@given(measureds(), QUESTIONS)
def test_the_old_keys_alone_say_the_same(measured: Measured, question: Question) -> None:
    """Who knows only these reads the results that ours has."""
    plain = strictly(to_plain(measured, question))
    found = from_plain({key: plain[key] for key in OLD}).measured
    assert found.device == measured.device
    assert len(found.results) == len(plain["results"])
    hypothesis.target(float(len(found.results)))
    again = strictly(to_plain(found, question))
    assert again["results"] == plain["results"]
    again = from_plain(again).measured
    assert repr(again.results) == repr(found.results)


def test_a_document(tmp_path: Path) -> None:
    measured = made(repetitions=3)
    path = tmp_path / "fa2.json"
    write(path, measured, Question(Regime.DEVICE, 1.2))
    plain = json.loads(path.read_text())
    assert (plain["format"], plain["version"]) == ("pytest-remotegpu/fa2", 1)
    assert plain["timestamp"] == "2026-05-25T14:09:40Z"
    assert plain["parity_passed"] is True
    assert plain["recommendation"] == {
        "fa2_min_len_win": 2048,
        "fa2_min_len_cmp": 63,
        "sel_triton_min_L": None,
    }
    assert len(plain["rows"]) == 3 * 20 * 2 * 3
    assert plain["kernels"]["sdpa-flash"] == ["pytorch_flash::flash_fwd_kernel<64>"]
    asked = {(each["margin"], each["regime"], each["reference"]) for each in plain["thresholds"]}
    assert len(asked) == 3 * 2 * 2
    never = next(
        each
        for each in plain["thresholds"]
        if (each["key"], each["margin"], each["regime"], each["reference"])
        == ("fa2_min_len_win", 1.5, "eager", FLASH)
    )
    assert (never["last"]["answer"], never["number"]) == ("never", 999999)
    assert plain["results"][0]["window_size"] == 32
    found = read(path)
    assert same(found.measured, measured)
    assert found.unread == ()


def test_a_document_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "fa2.json"
    path.write_text("old")
    write(path, made(), Question())
    assert read(path).measured.rows
    assert [each.name for each in tmp_path.iterdir()] == ["fa2.json"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2, and this package reads 'pytest-remotegpu/fa2', version 1"),
        ({"version": True}, "version True, and this package reads"),
        ({"version": None}, "version None"),
        ({"format": "other/fa2"}, "the format 'other/fa2', version 1, and this package reads"),
        ({"rows": [{"problem": 3}]}, "is broken: Expected `object`"),
        ({"rows": 3}, "is broken"),
        ({"question": {"margin": "much"}}, "is broken"),
        ({"complete": "yes"}, "is broken: Expected `bool`"),
        ({"question": {"margin": 0}}, "is broken: the margin is 0.0"),
        ({"question": {"margin": math.nan}}, "is broken: the margin is nan"),
        ({"rows": [of_size(length=-5)]}, "is broken: the length of a sliding problem is -5"),
        ({"rows": [of_size(length=10**30)]}, "is broken: "),
        ({"rows": [of_size(window=None)]}, "is broken: the window of a sliding problem is None"),
        ({"rows": [of_size(branch="compressed", block=32, stride=0)]}, "is broken: the stride"),
        ({"rows": [{**ROW, "times": [10**400]}]}, "is broken"),
    ],
)
def test_what_is_not_known_is_named(change: dict[str, Any], said: str) -> None:
    plain = strictly(to_plain(made(), Question()))
    with pytest.raises(UsageError) as error:
        from_plain({**plain, **change}, "a.json")
    assert said in str(error.value)
    assert str(error.value).startswith("a.json ")


def test_a_key_that_is_gone_is_named() -> None:
    plain = strictly(to_plain(made(), Question()))
    del plain["states"]
    with pytest.raises(UsageError, match="lacks the key 'states'"):
        from_plain(plain)


# of others


def test_a_document_of_others() -> None:
    found = from_plain(FOREIGN, "old.json")
    measured = found.measured
    assert measured.device.device_name == "NVIDIA A100-SXM4-40GB"
    assert measured.ended == FOREIGN["timestamp"]
    assert measured.results == (
        Result(Branch.SLIDING, 512, 64, 1.6, 0.32, 0.2),
        Result(Branch.COMPRESSED, 1024, None, 2.0, 0.4, 0.2, 64, 32),
    )
    assert found.unread == (
        "benchmark_output, line 1 was not understood: device: A100",
        f"benchmark_output has a line that no result stands for: {Sliding(256, 64, 0.1, 0.2, 0.5)}",
    )
    judged = judging.judge(measured, Question())
    assert judged.recommendation == {
        "fa2_min_len_win": 512,
        "fa2_min_len_cmp": 31,
        "sel_triton_min_L": 512,
    }


def test_results_are_had_from_the_text_where_there_is_no_list() -> None:
    found = from_plain({**FOREIGN, "results": []})
    assert [one.length for one in found.measured.results] == [256, 1024]


@pytest.mark.parametrize("number", [None, math.nan, math.inf, "nan", "inf"])
def test_a_number_that_is_none_keeps_its_row(number: Any) -> None:
    results = [{**FOREIGN["results"][0], "speedup": number}]
    found = from_plain({**FOREIGN, "results": results})
    (one,) = found.measured.results
    assert not math.isfinite(one.speedup)
    judged = judging.judge(found.measured, Question())
    assert judged.number("fa2_min_len_win") == 999999


@pytest.mark.parametrize(
    "wrong", [3, {}, {**FOREIGN["results"][0], "branch": "dense"}, {"branch": "sliding"}]
)
def test_a_result_that_is_none_is_reported(wrong: Any) -> None:
    found = from_plain({**FOREIGN, "results": [*FOREIGN["results"], wrong]})
    assert len(found.measured.results) == 2
    assert any(text.startswith("results[2] was not understood") for text in found.unread)


def test_how_tokens_were_compressed_is_said_where_it_is_taken() -> None:
    found = from_plain({**FOREIGN, "benchmark_output": ""})
    assert found.measured.results[1].block == 32
    assert "l=32 d=16 is taken" in found.unread[0]


def test_two_ways_to_compress_one_length_are_told_apart() -> None:
    """Each has a number of compressed tokens of its own, which is the unit of its threshold."""
    result = FOREIGN["results"][1]
    other = {**result, "speedup": 0.5, "fa2_ms": 0.8}
    text = (
        "S=1024 l=64 d=32 compressed masked 0.40 ms  fa2 0.20 ms  speedup x2.00\n"
        "S=1024 l=32 d=16 compressed masked 0.40 ms  fa2 0.80 ms  speedup x0.50\n"
    )
    plain = {**FOREIGN, "results": [result, other, result], "benchmark_output": text}
    found = from_plain(plain)
    sizes = [(one.speedup, one.block, one.stride) for one in found.measured.results]
    assert sizes == [(2.0, 64, 32), (0.5, 32, 16), (2.0, 32, 16)]
    assert found.unread == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "no document but a list"),
        ({"a": 1}, "none of the keys"),
        ({**FOREIGN, "benchmark_output": 3}, "benchmark_output is 3, and has to be a text"),
        ({**FOREIGN, "device_info": "H100"}, "device_info is 'H100'"),
    ],
)
def test_what_is_no_document(data: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        from_plain(data)


@pytest.mark.parametrize(("passed", "parity"), [(False, "failed"), (None, "not checked")])
def test_no_recommendation_where_parity_is_not_said_to_have_passed(
    passed: bool | None, parity: str
) -> None:
    found = from_plain({**FOREIGN, "parity_passed": passed})
    judged = judging.judge(found.measured, Question())
    assert judged.parity == parity
    assert set(judged.recommendation.values()) == {None}


def test_a_text_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(FOREIGN["benchmark_output"] + FOREIGN["selection_output"])
    found = read(path)
    assert [one.length for one in found.measured.results] == [256, 1024]
    assert found.unread == ("line 1 was not understood: device: A100",)
    judged = judging.judge(found.measured, Question())
    assert judged.parity is Parity.NOT_CHECKED
    assert judged.spans["fa2_min_len_cmp"].last.value == 31
    assert judged.spans["sel_triton_min_L"].last.value == 512


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "is broken JSON"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, "is broken JSON", id="deep"),
        (b"nothing", "has no line of a benchmark"),
        (b"\xff", "is no UTF-8"),
    ],
)
def test_a_file_that_can_not_be_read(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=said):
        read(path)
    with pytest.raises(UsageError, match="can't be read: No such file"):
        read(tmp_path / "b.json")


def test_what_others_wrote_may_be_written_anew() -> None:
    first = from_plain(FOREIGN).measured
    again = from_plain(strictly(to_plain(first, Question()))).measured
    assert again == replace(first, stated={})
    assert again.device.device_name != CARD.device_name
    assert document.FORMAT in to_plain(first, Question()).values()
