"""What a pull request is told: one comment, edited in place, whatever else happens at the time."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hub.events import NUMBER, document
from hub.server import Fault, Hub
from hub.state import BOT

ASKED = {
    "CARD": "A100",
    "MARGIN": "1.2",
    "SHA": "d" * 40,
    "NUMBER": "7",
    "COMMENT": "501",
    "RESULT": "success",
    "PROPOSAL": "unchanged",
}
ROW = document()["results"][0]
Results = Callable[..., Path]


def ours(hub: Hub) -> list[str]:
    """Give the bodies of our comments."""
    return [each["body"] for each in hub.repo.comments.values() if each["user"]["login"] == BOT]


def reactions(hub: Hub) -> list[str]:
    """Name our reactions."""
    return [each["content"] for each in hub.repo.reactions.values()]


def test_answer_has_the_numbers_of_the_document(jobs: Any, hub: Hub, results: Results) -> None:
    said = jobs.run("answer", file=results(), **ASKED)
    assert said.status == 0, said.log
    (body,) = ours(hub)
    assert body.startswith("<!-- remotegpu-bench -->\n\n<!-- remotegpu-bench:begin A100 90.1 -->\n")
    assert "length on (`fa2_min_len_win`) | **from 1024** | 1024 |" in body
    assert "(`fa2_min_len_cmp`) | **never** | 999999 |" in body
    assert "sel_triton_min_L" not in body
    assert "| sliding | 1024 | 64 | 0.9 | 0.6 | 1.5 | ✓ |" in body
    assert "| sliding | 512 | 64 | 0.4 | 0.364 | 1.1 |  |" in body
    assert "| compressed | 1024 |  | 0.3 | 0.429 | 0.7 |  |" in body
    assert "the verdict has not changed" in body
    assert f"Margin 1.2 (20 % faster), commit <code>{'d' * 40}</code>" in body
    assert "[run](https://github.example/our/house/actions/runs/90)" in body
    assert "NVIDIA A100&#45;SXM4&#45;40GB" in body
    assert "the numbers" not in said.page
    assert "**from 1024**" in said.page
    assert reactions(hub) == ["rocket"]


def test_answers_of_several_cards_and_runs_share_one_comment(
    jobs: Any, hub: Hub, results: Results
) -> None:
    device = document()["device_info"] | {"device_name": "NVIDIA L4"}
    jobs.run("answer", file=results(), **ASKED)
    (first,) = ours(hub)
    jobs.run(
        "answer", file=results(device_info=device), **{**ASKED, "CARD": "L4"}, GITHUB_RUN_ID="91"
    )
    (both,) = ours(hub)
    part = first.partition("\n\n")[2]
    assert part in both
    assert both.index("begin A100 90.1") < both.index("begin L4 91.1")
    jobs.run("answer", file=results(), **{**ASKED, "MARGIN": "1.5"}, GITHUB_RUN_ID="92")
    (third,) = ours(hub)
    assert part not in third
    assert re.findall(r"begin (\S+ \S+) ", third) == ["A100 92.1", "L4 91.1"]
    assert hub.writes().count("POST issues/7/comments") == 1


def test_the_same_answer_again_changes_nothing(jobs: Any, hub: Hub, results: Results) -> None:
    file = results()
    jobs.run("answer", file=file, **ASKED)
    before = ours(hub)
    hub.asked.clear()
    assert jobs.run("answer", file=file, **ASKED).status == 0
    assert ours(hub) == before
    assert hub.writes() == ["POST issues/comments/501/reactions"]


def test_earlier_run_does_not_overwrite_a_later_one(jobs: Any, hub: Hub, results: Results) -> None:
    jobs.run("answer", file=results(), **ASKED, GITHUB_RUN_ID="100")
    before = ours(hub)
    said = jobs.run("answer", file=results(), **{**ASKED, "MARGIN": "1.5"}, GITHUB_RUN_ID="99")
    assert "a later run has answered already" in said.log
    assert ours(hub) == before


@pytest.mark.parametrize("cards", [("A100", "A100"), ("A100", "L4")])
def test_two_answers_at_once_end_as_one_comment(
    jobs: Any, hub: Hub, results: Results, cards: tuple[str, str]
) -> None:
    hub.meeting = (r"GET issues/7/comments", threading.Barrier(2))  # neither finds a comment
    file = results()
    waiting = [
        jobs.start("answer", file=file, **{**ASKED, "CARD": card}, GITHUB_RUN_ID=str(90 + place))
        for place, card in enumerate(cards)
    ]
    said = [wait() for wait in waiting]
    assert hub.writes().count("POST issues/7/comments") == 2
    (body,) = ours(hub)
    if cards[0] == cards[1]:
        assert re.findall(r"begin (\S+) (\S+) ", body) == [("A100", "91.1")]
        assert said[1].status == 0
    else:
        assert re.findall(r"begin (\S+) (\S+) ", body) == [("A100", "90.1"), ("L4", "91.1")]
        assert "another card" in body  # the document is that of an A100


def test_comments_of_others_are_theirs(jobs: Any, hub: Hub, results: Results) -> None:
    jobs.run("answer", file=results(), **ASKED)
    stolen = ours(hub)[0].replace("1024", "1")
    hub.repo.comments.clear()
    hub.repo.said(NUMBER, stolen, "stranger")
    hub.repo.said(NUMBER, "<!-- remotegpu-bench -->\nfree", "other[bot]")
    before = dict(hub.repo.comments)
    jobs.run("answer", file=results(), **ASKED)
    assert {key: hub.repo.comments[key] for key in before} == before
    (body,) = ours(hub)
    assert "**from 1024**" in body


def test_comment_is_found_behind_many(jobs: Any, hub: Hub, results: Results) -> None:
    for number in range(230):
        hub.repo.said(NUMBER, f"comment {number}", "stranger")
    jobs.run("answer", file=results(), **ASKED)
    hub.asked.clear()
    jobs.run("answer", file=results(), **{**ASKED, "MARGIN": "1.5"}, GITHUB_RUN_ID="91")
    assert len(ours(hub)) == 1
    assert hub.asked.count("GET issues/7/comments") == 6  # three pages, before and after


def test_comment_that_is_deleted_meanwhile_is_made_anew(
    jobs: Any, hub: Hub, results: Results
) -> None:
    jobs.run("answer", file=results(), **ASKED)
    hub.faults.append(Fault("PATCH issues/comments", 404))
    kept = [key for key, each in hub.repo.comments.items() if each["user"]["login"] == BOT]
    said = jobs.run("answer", file=results(), **{**ASKED, "MARGIN": "1.5"}, GITHUB_RUN_ID="91")
    assert said.status == 0, said.log
    assert "1.5 (50 % faster)" in ours(hub)[0]
    assert len(kept) == len(ours(hub)) == 1


def test_oldest_parts_give_way_where_a_comment_would_be_too_long(
    jobs: Any, hub: Hub, results: Results
) -> None:
    long = "x" * 40_000
    body = "<!-- remotegpu-bench -->"
    for name, run in (("H100", 5), ("L4", 6)):
        body += f"\n\n<!-- remotegpu-bench:begin {name} {run}.1 -->\n{long[: 31_000 + run]}\n"
        body += f"<!-- remotegpu-bench:end {name} -->"
    hub.repo.said(NUMBER, body)
    row = {"branch": "sliding", "window_size": 64, "masked_ms": 1, "fa2_ms": 1, "speedup": 1}
    rows = [{**row, "sequence_length": length} for length in range(1000, 1200)]
    assert jobs.run("answer", file=results(results=rows), **ASKED).status == 0
    (body,) = ours(hub)
    assert re.findall(r"begin (\S+) ", body) == ["A100", "L4"]
    assert "and 140 more in the run's artifact" in body
    assert len(body) < 65_536


# what is no result


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "has left no results"),
        ("", "are no JSON"),
        ("[]", "are no object"),
        ("{}", "device_info of the results is"),
        ("\x00" * 9, "are no JSON"),
        (b"\xff\xfe", "are no JSON"),
        ("[" * 100_000, "are no JSON"),
        (json.dumps(document(format="pytest-remotegpu/fa2", version=2)), "version '2'"),
        (json.dumps(document(format="other/bench", version=1)), "'other/bench'"),
        (json.dumps(document(version="1")), "are of the form"),
        (json.dumps(document(version=True)), "are of the form"),
        (json.dumps(document(parity_passed="yes")), "parity_passed of the results is"),
        (json.dumps(document(results=None)), "results of the results is"),
        (json.dumps(document(results=[1])), "a row of the results"),
        (json.dumps(document(recommendation={"fa2_min_len_win": "1024"})), "a length is wanted"),
        (json.dumps(document(recommendation={"fa2_min_len_win": 1.5})), "a length is wanted"),
        (json.dumps(document(recommendation={"fa2_min_len_win": True})), "a length is wanted"),
        (json.dumps(document(recommendation={"fa2_min_len_win": -7})), "a length is wanted"),
        (json.dumps(document(recommendation={"fa2_min_len_win": 10**30})), "a length is wanted"),
        (json.dumps(document(results=[{**ROW, "sequence_length": 10**400}])), "a length is wanted"),
        (json.dumps(document(results=[{**ROW, "window_size": -1}])), "a length is wanted"),
    ],
)
def test_what_is_no_document_is_said_and_gives_no_threshold(
    jobs: Any, hub: Hub, results: Results, tmp_path: Path, text: str | bytes | None, why: str
) -> None:
    file = tmp_path / "missing.json" if text is None else results(text)
    said = jobs.run("answer", file=file, **ASKED)
    assert said.status == 1
    (body,) = ours(hub)
    assert re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), body).count(why) == 1
    assert "No thresholds" in body
    assert "| sliding" not in body
    assert "fa2_min_len_win` |" not in body
    assert "No thresholds" in said.page
    assert reactions(hub) == ["confused"]


def test_link_to_another_file_is_no_document(
    jobs: Any, hub: Hub, results: Results, tmp_path: Path
) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(results())
    assert jobs.run("answer", file=link, **ASKED).status == 1
    assert "has left no results" in ours(hub)[0]


CARD = document()["device_info"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"parity_passed": False}, "were not shown to be right"),
        ({"results": []}, "nothing was measured"),
        ({"device_info": {**CARD, "cuda_available": False}}, "no GPU was used"),
        ({"device_info": {**CARD, "device_name": "NVIDIA H200"}}, "another card than the A100"),
        ({"device_info": {**CARD, "device_name": ""}}, "another card than the A100"),
        ({"complete": False}, "was cut off"),
        ({"parity_passed": False, "trouble": "@b"}, "- <code>&#64;b</code>"),
        ({"question": {"margin": 1.1}}, "a margin of 1.1, and 1.2 was asked for"),
    ],
)
def test_what_decides_nothing_is_shown_without_thresholds(
    jobs: Any, hub: Hub, results: Results, more: dict[str, Any], why: str
) -> None:
    said = jobs.run("answer", file=results(**more), **ASKED)
    assert said.status == 1
    (body,) = ours(hub)
    assert why in body
    assert "**No thresholds**" in body
    assert "fa2_min_len_win" not in body
    assert reactions(hub) == ["confused"]


@pytest.mark.parametrize(
    ("result", "word"),
    [
        ("failure", "The benchmark failed."),
        ("cancelled", "The benchmark was cancelled."),
        ("skipped", "The benchmark was not started."),
        ("", "The benchmark failed."),
    ],
)
def test_benchmark_that_did_not_end_well_is_said(
    jobs: Any, hub: Hub, results: Results, tmp_path: Path, result: str, word: str
) -> None:
    said = jobs.run("answer", file=results(), **{**ASKED, "RESULT": result})
    assert (said.status, reactions(hub)) == (1, ["confused"])
    assert f"**{word}**" in ours(hub)[0]
    assert "fa2_min_len_win" not in ours(hub)[0]
    said = jobs.run("answer", file=tmp_path / "none", **{**ASKED, "RESULT": result or "failure"})
    assert f"**{word}** No thresholds:" in ours(hub)[0]


def test_numbers_that_are_none_do_not_make_a_row_vanish(
    jobs: Any, hub: Hub, results: Results
) -> None:
    rows = document()["results"]
    rows[0] |= {"speedup": float("nan"), "fa2_ms": float("inf")}
    rows[1] |= {"speedup": None, "masked_ms": 10**400}
    assert jobs.run("answer", file=results(results=rows), **ASKED).status == 0
    assert "| sliding | 256 | 64 | 0.2 | inf | nan |  |" in ours(hub)[0]
    assert "| sliding | 512 | 64 | inf | 0.364 | nan |  |" in ours(hub)[0]


def test_nothing_measured_for_one_key_is_no_data(jobs: Any, hub: Hub, results: Results) -> None:
    said = jobs.run("answer", file=results(recommendation={"fa2_min_len_win": -1}), **ASKED)
    assert said.status == 0
    assert "(`fa2_min_len_win`) | **never** | 999999 |" in ours(hub)[0]
    assert "(`fa2_min_len_cmp`) | **no data** |  |" in ours(hub)[0]


def answer(key: str, first: Any, last: Any, **more: Any) -> dict[str, Any]:
    """Make what a document says of a key beside its number."""
    both = {
        name: {"answer": said[0], "value": said[1], "why": "x"}
        for name, said in (("first", first), ("last", last))
    }
    asked = {"margin": 1.2, "regime": "eager", "reference": "masked"}
    return {"key": key, **asked, **both, **more}


def test_document_that_says_more_is_told_in_its_words(jobs: Any, results: Results) -> None:
    win, cmp = "fa2_min_len_win", "fa2_min_len_cmp"
    thresholds = [
        answer(win, ("always", 256), ("from", 1024)),
        answer(win, ("never", None), ("never", None), margin=1.5),
        answer(win, ("never", None), ("never", None), regime="device"),
        answer(cmp, ("never", None), ("never", None)),
        answer("@everyone", ("from", "<b>"), ("evil", 1)),
        "odd",
    ]
    question = {"margin": 1.2, "regime": "eager", "reference": "masked"}
    more = {"format": "pytest-remotegpu/fa2", "version": 1, "question": question}
    said = jobs.run("answer", file=results(thresholds=thresholds, **more), **ASKED)
    assert said.status == 0, said.log
    assert "(`fa2_min_len_win`) | **always (measured from 256) to from 1024** | 1024 |" in said.page
    assert "(`fa2_min_len_cmp`) | **never** | 999999 |" in said.page
    assert "everyone" not in said.page


@pytest.mark.parametrize(
    ("last", "number"),
    [(("from", 8192), 8193), (("always", 8192), 8193), (("never", None), 999999), (None, 999999)],
)
def test_length_that_stands_for_off_is_no_threshold(
    jobs: Any, results: Results, last: Any, number: int
) -> None:
    win = "fa2_min_len_win"
    thresholds = [answer(win, ("from", 4096), last)] if last else []
    question = {"margin": 1.2, "regime": "eager", "reference": "masked"}
    more = {"question": question, "thresholds": thresholds, "recommendation": {win: 8192}}
    said = jobs.run("answer", file=results(**more), **ASKED)
    assert said.status == 0, said.log
    assert re.findall(rf"\(`{win}`\) .* \| (\d+) \|", said.page) == [str(number)]


EVIL = "<img src=x> @everyone #1 [a](http://evil) | `x` --> <!-- remotegpu-bench:end A100 -->\n# A"


@pytest.mark.parametrize("key", ["device_name", "torch_version", "cuda_version"])
def test_no_text_of_a_document_is_markup(jobs: Any, hub: Hub, results: Results, key: str) -> None:
    device = {**CARD, key: f"NVIDIA A100 {EVIL}"}
    jobs.run("answer", file=results(device_info=device, timestamp=EVIL), **ASKED)
    (body,) = ours(hub)
    outside = re.sub(r"<code>[^<>]*</code>", "", body)
    for sign in ("evil", "everyone", "<img", "#1", "`x`"):
        assert sign not in outside
    assert re.findall(r"<!-- .*? -->", body) == [
        "<!-- remotegpu-bench -->",
        "<!-- remotegpu-bench:begin A100 90.1 -->",
        "<!-- remotegpu-bench:end A100 -->",
    ]
    assert "\n# A" not in body
    jobs.run("answer", file=results(), **{**ASKED, "MARGIN": "1.5"}, GITHUB_RUN_ID="91")
    assert "everyone" not in ours(hub)[0]


# GitHub


def test_comment_of_which_it_is_not_known_whether_it_was_made_is_made_once(
    jobs: Any, hub: Hub, results: Results
) -> None:
    hub.faults.append(Fault("POST issues/7/comments", 502, done=True))
    assert jobs.run("answer", file=results(), **ASKED).status == 0
    assert len(ours(hub)) == 1
    assert hub.writes().count("POST issues/7/comments") == 1


@pytest.mark.parametrize("status", [0, 500])
def test_comment_that_was_not_made_is_made_then(
    jobs: Any, hub: Hub, results: Results, status: int
) -> None:
    hub.faults.append(Fault("POST issues/7/comments", status))
    assert jobs.run("answer", file=results(), **ASKED).status == 0
    assert len(ours(hub)) == 1
    assert hub.writes().count("POST issues/7/comments") == 2


@pytest.mark.parametrize(
    ("status", "body", "word"),
    [
        (403, b'{"message": "Resource not accessible by integration"}', "`permissions` may lack"),
        (404, b'{"message": "Not Found"}', "the token may not see it"),
        (422, b'{"message": "Invalid", "errors": [{"message": "too\\nlong"}]}', "(Invalid; too lo"),
        (410, b"<html>", "GitHub answered 410"),
    ],
)
def test_comment_that_can_not_be_made_is_an_error(
    jobs: Any, hub: Hub, results: Results, status: int, body: bytes, word: str
) -> None:
    hub.faults.append(Fault("POST issues/7/comments", status, 9, body=body))
    said = jobs.run("answer", file=results(), **ASKED)
    assert said.status == 1
    assert f"::error::POST issues/7/comments: GitHub answered {status}" in said.log
    assert word in said.log.replace("%0A", "\n")
    assert hub.writes().count("POST issues/7/comments") == 1
    assert "**from 1024**" in said.page  # which needs nobody


def test_rate_limit_is_waited_for(jobs: Any, hub: Hub, results: Results) -> None:
    hub.faults += [
        Fault("GET issues/7/comments", 429, headers={"Retry-After": "1"}),
        Fault("POST issues/7/comments", 403, headers={"Retry-After": "0"}),
        Fault(
            "GET issues/7/comments",
            403,
            headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()))},
        ),
    ]
    assert jobs.run("answer", file=results(), **ASKED).status == 0
    assert len(ours(hub)) == 1


@pytest.mark.parametrize(
    "headers",
    [{"Retry-After": "3600"}, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9999999999"}],
)
def test_rate_limit_that_takes_too_long_is_an_error(
    jobs: Any, hub: Hub, results: Results, headers: dict[str, str]
) -> None:
    hub.faults.append(Fault("GET issues/7/comments", 403, 9, headers=headers))
    said = jobs.run("answer", file=results(), **ASKED)
    assert said.status == 1
    assert "its rate limit is used up; run the job again later" in said.log
    assert hub.asked == ["GET issues/7/comments"]


def test_reaction_that_fails_changes_nothing(jobs: Any, hub: Hub, results: Results) -> None:
    del hub.repo.comments[501]
    said = jobs.run("answer", file=results(), **ASKED)
    assert said.status == 0
    assert (
        "::warning::no reaction: POST issues/comments/501/reactions: GitHub answered 404"
        in said.log
    )
    assert len(ours(hub)) == 1


# what was seen, and what was not run


def test_reactions_follow_each_other(jobs: Any, hub: Hub, results: Results) -> None:
    hub.repo.reactions[1] = {"id": 1, "comment": 501, "user": {"login": "bob"}, "content": "eyes"}
    hub.repo.reactions[2] = {"id": 2, "comment": 501, "user": {"login": BOT}, "content": "heart"}
    jobs.run("react", REACTION="eyes", REPLY="", **ASKED)
    assert reactions(hub) == ["eyes", "heart", "eyes"]
    assert ours(hub) == []
    jobs.run("answer", file=results(), **ASKED)
    assert reactions(hub) == ["eyes", "heart", "rocket"]
    jobs.run("answer", file=results(""), **ASKED)
    assert reactions(hub) == ["eyes", "heart", "confused"]


def test_what_was_not_run_stands_in_the_comment_until_something_is(
    jobs: Any, hub: Hub, results: Results
) -> None:
    jobs.run("answer", file=results(), **ASKED)
    reply = "'$(x) @ann' is not understood. The command is: /benchmark CARD"
    said = jobs.run("react", REACTION="confused", REPLY=reply, **ASKED, GITHUB_RUN_ID="91")
    assert said.status == 0
    (body,) = ours(hub)
    assert body.index("begin note 91.1") < body.index("begin A100 90.1")
    assert "**Not run:** <code>" in body
    assert "@ann" not in body
    jobs.run("answer", file=results(), **ASKED, GITHUB_RUN_ID="92")
    assert re.findall(r"begin (\S+) ", ours(hub)[0]) == ["A100"]


def test_reaction_is_one_of_three(jobs: Any, hub: Hub) -> None:
    said = jobs.run("react", REACTION="", REPLY="", **ASKED)
    assert (said.status, hub.asked) == (0, [])


# by hand


def test_answer_to_a_dispatch_is_the_page_of_the_run(jobs: Any, hub: Hub, results: Results) -> None:
    said = jobs.run("answer", file=results(), **{**ASKED, "NUMBER": "", "COMMENT": ""})
    assert (said.status, hub.asked) == (0, [])
    assert "**from 1024**" in said.page


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({"PROPOSAL": "opened", "PROPOSAL_NUMBER": "12"}, "new thresholds are proposed in #12."),
        ({"PROPOSAL": "updated", "PROPOSAL_NUMBER": "12"}, "new thresholds are proposed in #12."),
        ({"PROPOSAL": "closed", "PROPOSAL_NUMBER": "12"}, "has these thresholds already; #12 was"),
        ({"PROPOSAL": "none", "PROPOSAL_WHY": "a. @b"}, "proposed: <code>a</code><br><code>&#64;b"),
        ({"PROPOSAL": "opened", "PROPOSAL_NUMBER": "1 @x"}, "the job that proposes them did not"),
        ({"PROPOSAL": ""}, "the job that proposes them did not end well"),
    ],
)
def test_answer_says_what_has_become_of_the_thresholds(
    jobs: Any, results: Results, told: dict[str, str], line: str
) -> None:
    said = jobs.run("answer", file=results(), **{**ASKED, "NUMBER": "", "COMMENT": "", **told})
    assert said.status == 0
    assert line in said.page


@pytest.mark.parametrize(
    "told",
    [{"SHA": "main"}, {"MARGIN": "x"}, {"CARD": "a b"}, {"NUMBER": "x"}, {"GITHUB_RUN_ID": "-1"}],
)
def test_wrong_call_of_the_workflow_is_an_error(
    jobs: Any, hub: Hub, results: Results, told: dict[str, str]
) -> None:
    said = jobs.run("answer", file=results(), **{**ASKED, **told})
    assert (said.status, hub.asked) == (1, [])
    assert said.log.startswith("::error::")
