"""Verdicts as values: their text, their truth, and what becomes of them in JSON and Markdown."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.diagnostics import Curve, DiagnosisError, Finding, Measure, Verdict

FROZEN = Finding(
    "frozen-parameters",
    "2 of 4 parameters can't learn",
    "set requires_grad on them before the optimizer is made",
    ("head.bias", "head.weight"),
)
NOTE = Finding("fallback", "another kernel ran", "install flash-attn", fails=False)
FAILED = Verdict(
    "overfit",
    (Measure("final loss", 4.61234567, "nats", "< 0.1"), Measure("steps", 100)),
    (FROZEN, NOTE),
    (Curve("overfit", {"one sample": (4.7, 4.65, 4.61)}),),
)


def test_text_says_what_was_measured_found_and_comes_next() -> None:
    assert str(FAILED).splitlines() == [
        "overfit: FAILED",
        "  final loss  4.612 nats  (must be < 0.1)",
        "  steps       100",
        "  frozen-parameters: 2 of 4 parameters can't learn",
        "      head.bias",
        "      head.weight",
        "    next: set requires_grad on them before the optimizer is made",
        "  note, fallback: another kernel ran",
        "    next: install flash-attn",
        "  loss by step, one sample: 4.7 at 0, 4.65 at 1, 4.61 at 2",
    ]


def test_long_texts_are_wrapped_and_many_names_counted() -> None:
    finding = Finding("code", "word " * 60, "look " * 60, tuple(f"layer.{n}" for n in range(20)))
    text = str(Verdict("check", findings=(finding,)))
    assert max(map(len, text.splitlines())) <= 98
    assert "    and 12 more" in text
    assert "layer.7" in text
    assert "layer.8" not in text


def test_only_a_failing_finding_fails() -> None:
    noted = Verdict("check", findings=(NOTE,))
    assert noted.passed
    assert noted
    assert noted.require() is noted
    assert not FAILED
    assert FAILED.codes == ("frozen-parameters", "fallback")


def test_require_fails_a_test_with_the_whole_text(pytester: pytest.Pytester) -> None:
    with pytest.raises(DiagnosisError) as caught:
        FAILED.require()
    assert caught.value.verdict is FAILED
    assert str(caught.value) == str(FAILED)
    pytester.makepyfile("""
        from pytest_remotegpu.diagnostics import Finding, Verdict

        def test_it():
            Verdict("check", findings=(Finding("a-code", "it is so", "do that"),)).require()
    """)
    result = pytester.runpytest("-q")
    result.stdout.fnmatch_lines(["E *check: FAILED", "E *a-code: it is so", "E *next: do that"])
    assert result.ret == 1


def test_value_is_found_by_name_or_says_which_there_are() -> None:
    assert FAILED.value("steps") == 100
    with pytest.raises(KeyError, match=r"no 'loss'; it has \['final loss', 'steps'\]"):
        FAILED.value("loss")


def test_markdown_has_the_numbers_the_findings_and_the_curve() -> None:
    assert FAILED.markdown().splitlines() == [
        "### overfit: FAILED",
        "",
        "| measured | value | must be |",
        "|---|---|---|",
        "| final loss | 4.612 nats | < 0.1 |",
        "| steps | 100 |  |",
        "",
        "- **frozen-parameters**: 2 of 4 parameters can't learn: `head.bias`, `head.weight`",
        "  <br>Next: set requires_grad on them before the optimizer is made",
        "",
        "- note, **fallback**: another kernel ran",
        "  <br>Next: install flash-attn",
        "",
        "loss by step, one sample: 4.7 at 0, 4.65 at 1, 4.61 at 2",
    ]
    assert "a\\|b" in Verdict("c", (Measure("a|b", 1),)).markdown()


numbers = st.floats() | st.integers() | st.text().filter(lambda t: t not in ("nan", "inf", "-inf"))
series = st.dictionaries(st.text(), st.lists(st.floats()).map(tuple))
verdicts = st.builds(
    Verdict,
    st.text(),
    st.lists(st.builds(Measure, st.text(), numbers, st.text(), st.text())).map(tuple),
    st.lists(
        st.builds(
            Finding,
            st.text(),
            st.text(),
            st.text(),
            st.lists(st.text()).map(tuple),
            st.booleans(),
        )
    ).map(tuple),
    st.lists(st.builds(Curve, st.text(), series, st.text(), st.text())).map(tuple),
)


@given(verdicts)
def test_any_verdict_comes_back_from_json(verdict: Verdict) -> None:
    """As it was; by its own comparison too, but for ``nan``, which is equal to nothing."""
    back = Verdict.from_plain(json.loads(json.dumps(verdict.to_plain())))
    assert repr(back) == repr(verdict)
    assert back.to_plain() == verdict.to_plain()
    assert "nan" in repr(verdict) or back == verdict


def test_what_is_no_verdict_is_refused() -> None:
    with pytest.raises(KeyError, match="measured"):
        Verdict.from_plain({"name": "c"})


@given(verdicts)
def test_any_verdict_is_json_and_has_its_texts(verdict: Verdict) -> None:
    text = json.dumps(verdict.to_plain(), allow_nan=False)
    assert json.loads(text) == verdict.to_plain()
    assert verdict.to_plain()["passed"] is verdict.passed
    assert str(verdict).startswith(verdict.name)
    assert verdict.markdown().startswith("### ")


def test_what_json_has_no_word_for_is_a_text() -> None:
    verdict = Verdict("c", (Measure("loss", math.nan),), (), (Curve("l", {"a": (math.inf, -1.0)}),))
    plain = verdict.to_plain()
    assert plain["measured"][0]["value"] == "nan"
    assert plain["curves"][0]["series"] == {"a": ["inf", -1.0]}
