"""New thresholds as a pull request: when there is one, what it changes, that it is the only one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hub.events import NUMBER, document
from hub.server import Fault, Hub
from hub.state import BOT

BRANCH = "remotegpu-bench/A100/main"
PATH = "conf/model.yaml"
ASKED = {
    "CARD": "A100",
    "MARGIN": "1.2",
    "SHA": "d" * 40,
    "BASE": "main",
    "CONFIG": PATH,
}
Results = Callable[..., Path]
MEASURED = b"""\
# of the model
runtime:
  fa2_min_len_win: 1024   # measured last year
  fa2_min_len_cmp: 999999
  other: 3
"""


def proposals(hub: Hub, state: str = "open") -> list[dict[str, Any]]:
    """Give our pull requests of a state."""
    found = [each for each in hub.repo.pulls.values() if each["user"]["login"] == BOT]
    return [each for each in found if each["state"] == state]


def has(hub: Hub, win: Any, cmp: Any) -> str:
    """Have the branch have such a configuration."""
    text = f"runtime:\n  fa2_min_len_win: {win}\n  fa2_min_len_cmp: {cmp}\n"
    return hub.repo.commit("main", {PATH: ("100644", text.encode())})


def test_new_verdict_is_proposed(jobs: Any, hub: Hub, results: Results) -> None:
    tip = hub.repo.branches["main"]
    said = jobs.run("propose", file=results(), **ASKED)
    assert said.status == 0, said.log
    (pull,) = proposals(hub)
    assert said.outputs == {"state": "opened", "number": str(pull["number"]), "why": ""}
    assert (pull["head"]["ref"], pull["base"]["ref"]) == (BRANCH, "main")
    assert pull["title"] == "Set the thresholds of FlashAttention-2 for A100"
    assert "| `runtime.fa2_min_len_win` | 512 (from 512) | 1024 (from 1024) |" in pull["body"]
    assert "| `runtime.fa2_min_len_cmp` | -1 (never) | 999999 (never) |" in pull["body"]
    assert "| sliding | 1024 | 64 | 0.9 | 0.6 | 1.5 | ✓ |" in pull["body"]
    commit = hub.repo.objects[hub.repo.branches[BRANCH]]
    assert commit["parents"] == [tip]
    assert hub.repo.files(commit["tree"]) == {PATH: ("100644", MEASURED)}
    assert hub.repo.branches["main"] == tip


def test_mode_and_other_files_stay(jobs: Any, hub: Hub, results: Results) -> None:
    files = {
        "a/b/model.json": ("100755", b'{"runtime": {"fa2_min_len_win": 0, "x": 1.50}}'),
        "a/c.py": ("100755", b"pass\n"),
        "link": ("120000", b"a"),
    }
    hub.repo.commit("main", files)
    said = jobs.run("propose", file=results(), **{**ASKED, "CONFIG": "a/b/model.json"})
    assert said.outputs["state"] == "opened", said.log
    found = hub.repo.files(hub.repo.objects[hub.repo.branches[BRANCH]]["tree"])
    text = b'{"runtime": {"fa2_min_len_cmp": 999999, "fa2_min_len_win": 1024, "x": 1.50}}'
    assert found == {**files, "a/b/model.json": ("100755", text)}


def test_the_same_again_changes_nothing(jobs: Any, hub: Hub, results: Results) -> None:
    file = results()
    first = jobs.run("propose", file=file, **ASKED)
    hub.asked.clear()
    again = jobs.run("propose", file=file, **ASKED)
    assert again.outputs == {**first.outputs, "state": "updated"}
    assert hub.writes() == []


def test_later_verdict_brings_the_same_pull_request_up_to_date(
    jobs: Any, hub: Hub, results: Results
) -> None:
    jobs.run("propose", file=results(), **ASKED)
    said = jobs.run("propose", file=results(recommendation={"fa2_min_len_win": 256}), **ASKED)
    assert said.outputs["state"] == "updated"
    (pull,) = proposals(hub)
    assert "| 512 (from 512) | 256 (from 256) |" in pull["body"]
    assert "fa2_min_len_cmp`" not in pull["body"].partition("###")[0]
    assert b"fa2_min_len_win: 256   # measured" in hub.repo.content(BRANCH, PATH)
    assert b"fa2_min_len_cmp: -1" in hub.repo.content(BRANCH, PATH)


def test_branch_that_has_moved_is_built_upon(jobs: Any, hub: Hub, results: Results) -> None:
    jobs.run("propose", file=results(), **ASKED)
    files = {PATH: ("100644", b"runtime: {fa2_min_len_win: 64}\n"), "b.py": ("100644", b"")}
    tip = hub.repo.commit("main", files)
    jobs.run("propose", file=results(), **ASKED)
    assert hub.repo.objects[hub.repo.branches[BRANCH]]["parents"] == [tip]
    assert len(proposals(hub)) == 1


@pytest.mark.parametrize("never", [-1, 0, 8192, 999999])
def test_verdict_that_has_not_changed_is_not_proposed(
    jobs: Any, hub: Hub, results: Results, never: int
) -> None:
    has(hub, 1024, never)
    said = jobs.run("propose", file=results(), **ASKED)
    assert (said.status, said.outputs["state"]) == (0, "unchanged")
    assert (hub.writes(), proposals(hub)) == ([], [])


def test_proposal_that_is_no_news_any_more_is_closed(jobs: Any, hub: Hub, results: Results) -> None:
    first = jobs.run("propose", file=results(), **ASKED)
    has(hub, 1024, 0)
    said = jobs.run("propose", file=results(), **ASKED)
    assert said.outputs == {**first.outputs, "state": "closed"}
    assert proposals(hub) == []
    has(hub, 1, 0)
    assert jobs.run("propose", file=results(), **ASKED).outputs["state"] == "opened"
    assert len(proposals(hub)) == 1
    assert len(proposals(hub, "closed")) == 1


def test_closed_proposal_is_not_opened_again_but_made_anew(
    jobs: Any, hub: Hub, results: Results
) -> None:
    jobs.run("propose", file=results(), **ASKED)
    proposals(hub)[0]["state"] = "closed"
    assert jobs.run("propose", file=results(), **ASKED).outputs["state"] == "opened"


def test_configuration_is_named_after_the_card(jobs: Any, hub: Hub, results: Results) -> None:
    hub.repo.commit("main", {"A100.toml": ("100644", b"x = 1\n")})
    said = jobs.run("propose", file=results(), **{**ASKED, "CONFIG": "{card}.toml"})
    assert said.outputs["state"] == "opened", said.log
    text = hub.repo.content(BRANCH, "A100.toml")
    assert b"x = 1\n" in text
    assert b"fa2_min_len_win = 1024" in text


def test_pull_requests_branch_gets_a_proposal_of_its_own(
    jobs: Any, hub: Hub, results: Results
) -> None:
    jobs.run("propose", file=results(), **ASKED)
    said = jobs.run("propose", file=results(), **{**ASKED, "BASE": "patch"})
    assert said.outputs["state"] == "opened"
    assert [each["base"]["ref"] for each in proposals(hub)] == ["main", "patch"]
    found = hub.repo.files(
        hub.repo.objects[hub.repo.branches["remotegpu-bench/A100/patch"]]["tree"]
    )
    assert set(found) == {PATH, "a.py"}


# when there is none

CARD = document()["device_info"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"parity_passed": False}, "were not shown to be right"),
        ({"results": []}, "nothing was measured"),
        ({"device_info": {**CARD, "cuda_available": False}}, "no GPU was used"),
        ({"device_info": {**CARD, "device_name": "NVIDIA H100"}}, "another card than the A100"),
        ({"complete": False}, "was cut off"),
        ({"recommendation": {}}, "there were no data"),
        ({"recommendation": {"sel_triton_min_L": 64}}, "there were no data"),
        ({"question": {"margin": 1.5}}, "a margin of 1.5"),
    ],
)
def test_what_decides_nothing_is_not_proposed(
    jobs: Any, hub: Hub, results: Results, more: dict[str, Any], why: str
) -> None:
    said = jobs.run("propose", file=results(**more), **ASKED)
    assert (said.status, said.outputs["state"]) == (0, "none")
    assert why in said.outputs["why"]
    assert hub.asked == []


@pytest.mark.parametrize("told", [{"CONFIG": ""}, {"BASE": ""}])
def test_where_there_is_no_place_nothing_is_proposed(
    jobs: Any, hub: Hub, results: Results, told: dict[str, str]
) -> None:
    said = jobs.run("propose", file=results(), **{**ASKED, **told})
    assert (said.status, said.outputs["state"], hub.asked) == (0, "none", [])


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2}'])
def test_what_is_no_document_is_not_proposed(
    jobs: Any, hub: Hub, results: Results, text: str
) -> None:
    said = jobs.run("propose", file=results(text), **ASKED)
    assert (said.status, said.outputs["state"], hub.asked) == (1, "", [])
    assert said.outputs["why"]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"BASE": "gone"}, "there is no branch 'gone'"),
        ({"CONFIG": "conf/none.yaml"}, "there is no conf/none.yaml at"),
        ({"CONFIG": "conf"}, "is no list"),
        ({"CONFIG": "/etc/passwd"}, "a path below the root is wanted"),
        ({"CONFIG": "conf/../../x.yaml"}, "a path below the root is wanted"),
        ({"CONFIG": "a.py"}, "there is no a.py"),
        ({"CONFIG": "a.py", "BASE": "patch"}, "a configuration ends with one of"),
    ],
)
def test_place_that_is_wrong_is_said(
    jobs: Any, hub: Hub, results: Results, told: dict[str, str], why: str
) -> None:
    said = jobs.run("propose", file=results(), **{**ASKED, **told})
    assert (said.status, said.outputs["state"]) == (1, "")
    assert why.replace("is no list", "GitHub's answer is no object") in said.outputs["why"]
    assert hub.writes() == []


@pytest.mark.parametrize(
    "text", ["runtime: [1", "runtime: 5", "- a", "\xff", "runtime: {a: 1, a: 2}"]
)
def test_configuration_that_is_broken_is_left_alone(
    jobs: Any, hub: Hub, results: Results, text: str
) -> None:
    hub.repo.commit("main", {PATH: ("100644", text.encode("latin-1"))})
    said = jobs.run("propose", file=results(), **ASKED)
    assert (said.status, said.outputs["state"], hub.writes()) == (1, "", [])
    assert said.outputs["why"].startswith(PATH) or f" {PATH} " in said.outputs["why"]
    assert "/tmp" not in said.outputs["why"]  # noqa: S108 -- where it was looked at


def test_what_somebody_has_pushed_is_not_overwritten(jobs: Any, hub: Hub, results: Results) -> None:
    jobs.run("propose", file=results(), **ASKED)
    pushed = hub.repo.commit(BRANCH, {PATH: ("100644", b"runtime: {}\n")}, "Better so")
    said = jobs.run("propose", file=results(), **ASKED)
    assert (said.status, said.outputs["state"]) == (1, "")
    assert f"somebody has pushed to {BRANCH}, which is left alone" in said.outputs["why"]
    assert hub.repo.branches[BRANCH] == pushed


def test_pull_request_of_somebody_else_from_that_branch_is_left_alone(
    jobs: Any, hub: Hub, results: Results
) -> None:
    jobs.run("propose", file=results(), **ASKED)
    proposals(hub)[0]["user"] = {"login": "ann"}
    before = dict(hub.repo.pulls)
    said = jobs.run("propose", file=results(recommendation={"fa2_min_len_win": 64}), **ASKED)
    assert said.status == 1
    assert "A pull request already exists" in said.outputs["why"]
    assert hub.repo.pulls == before


# GitHub


STEPS = [
    "GET git/ref/heads/main",
    "GET contents/",
    "GET pulls$",
    "POST git/blobs",
    "GET git/commits/",
    "GET git/trees/",
    "POST git/trees",
    "POST git/commits",
    "POST git/refs",
    "POST pulls",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("done", [False, True])
def test_error_half_way_is_gone_over(
    jobs: Any, hub: Hub, results: Results, step: str, done: bool
) -> None:
    hub.faults.append(Fault(step, 502, done=done))
    said = jobs.run("propose", file=results(), **ASKED)
    assert said.status == 0, said.log
    assert said.outputs["state"] in ("opened", "updated")
    assert len(proposals(hub)) == 1
    assert hub.repo.content(BRANCH, PATH) == MEASURED


@pytest.mark.parametrize("step", STEPS)
def test_run_that_was_cut_off_half_way_is_finished_by_the_next(
    jobs: Any, hub: Hub, results: Results, step: str
) -> None:
    hub.faults.append(Fault(step, 403, body=b'{"message": "no"}'))
    said = jobs.run("propose", file=results(), **ASKED)
    assert (said.status, said.outputs["state"]) == (1, "")
    assert "GitHub answered 403 (no)" in said.outputs["why"]
    assert proposals(hub) == []
    said = jobs.run("propose", file=results(), **ASKED)
    assert (said.status, said.outputs["state"]) == (0, "opened")
    assert len(proposals(hub)) == 1
    assert hub.repo.content(BRANCH, PATH) == MEASURED


def test_setting_that_forbids_pull_requests_is_named(jobs: Any, hub: Hub, results: Results) -> None:
    hub.repo.may_open = False
    said = jobs.run("propose", file=results(), **ASKED)
    assert said.status == 1
    assert "GitHub Actions is not permitted to create" in said.outputs["why"]
    assert f"may be off. The change is on {BRANCH}" in said.outputs["why"]


def test_two_at_once_end_as_one_pull_request(jobs: Any, hub: Hub, results: Results) -> None:
    hub.meeting = ("GET pulls", threading.Barrier(2))  # neither finds one
    file = results()
    waiting = [jobs.start("propose", file=file, **ASKED) for _ in range(2)]
    said = [wait() for wait in waiting]
    assert [each.status for each in said] == [0, 0], [each.log for each in said]
    assert sorted(each.outputs["state"] for each in said) == ["opened", "updated"]
    assert len(proposals(hub)) == 1
    assert hub.repo.content(BRANCH, PATH) == MEASURED


@pytest.mark.parametrize("step", ["GET git/ref/heads/main", "POST git/blobs", "GET git/trees/"])
@pytest.mark.parametrize("body", [b"[]", b"{}", b"", b'{"object": 1, "sha": 2, "tree": [3]}'])
def test_odd_answer_is_an_error(
    jobs: Any, hub: Hub, results: Results, step: str, body: bytes
) -> None:
    hub.faults.append(Fault(step, 200, 9, body=body))
    said = jobs.run("propose", file=results(), **ASKED)
    assert (said.status, said.outputs["state"]) == (1, "")
    assert said.log.count("\n") == 1


def test_title_of_the_pull_request_goes_nowhere(jobs: Any, hub: Hub, results: Results) -> None:
    assert "touch owned" in hub.repo.pulls[NUMBER]["title"]
    jobs.run("propose", file=results(), **{**ASKED, "BASE": "patch"})
    assert all("owned" not in str(each) for each in proposals(hub))
