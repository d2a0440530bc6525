"""Who may have which commit measured, told from events and by a GitHub on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from hub.events import AFTER, NUMBER, WHEN, comment
from hub.server import Fault, Hub
from hub.state import user

PERMISSION = "GET collaborators/ann/permission"


@pytest.mark.parametrize(
    ("body", "card", "margin"),
    [
        ("/benchmark A100", "A100", "1.2"),
        ("/benchmark A100 1.5", "A100", "1.5"),
        ("/benchmark \t A100-80GB   1.10\r\n\r\n", "A100-80GB", "1.1"),
        ("/benchmark L4 2\n", "L4", "2"),
    ],
)
@pytest.mark.parametrize("role", [("write", "write"), ("write", "maintain"), ("admin", "admin")])
def test_comment_of_who_may_write_runs_the_head_that_was_there(
    jobs: Any, hub: Hub, head: str, body: str, card: str, margin: str, role: tuple[str, str]
) -> None:
    hub.repo.permissions["ann"] = role
    said = jobs.run("asked", comment(body))
    assert said.status == 0, said.log
    assert said.outputs == {
        "allowed": "true",
        "card": card,
        "margin": margin,
        "sha": head,
        "base": "patch",
        "number": "7",
        "comment": "501",
        "reaction": "eyes",
        "reply": "",
    }
    assert hub.asked == [PERMISSION, "GET pulls/7", "GET activity"]


@pytest.mark.parametrize("role", [("read", "read"), ("read", "triage"), ("none", "none"), None])
def test_comment_of_anybody_else_gets_a_reaction_and_no_word(
    jobs: Any, hub: Hub, role: tuple[str, str] | None
) -> None:
    del hub.repo.permissions["ann"]
    if role:
        hub.repo.permissions["ann"] = role
    said = jobs.run("asked", comment("/benchmark A100"))
    assert (said.status, said.outputs["allowed"], said.outputs["sha"]) == (0, "false", "")
    assert (said.outputs["reaction"], said.outputs["reply"]) == ("confused", "")
    assert "::warning::ann has the permission" in said.log
    assert hub.asked == [PERMISSION]


HOSTILE = [
    "/benchmark A100; rm -rf /",
    "/benchmark A100 && touch owned",
    "/benchmark $(touch owned)",
    "/benchmark `touch owned`",
    "/benchmark A100\n/benchmark H100",
    "/benchmark A100\nallowed=true",
    "/benchmark A100\n\n::set-output name=allowed::true",
    "/benchmark A100 1.2\x00",
    "/benchmark A100 --remote-max-cost=1000",
    "/benchmark \u0391100",  # a Greek letter
    "/benchmark \uff2100",  # a wide one
    "/benchmark A100\u00a01.2",
    "/benchmark A100\u202e2.1",
    "/benchmark A100 1,2",
    "/benchmark A100 \u0661.\u0662",  # Arabic digits
    "/benchmark A100 nan",
    "/benchmark A100 1e1",
    "/benchmark A100 0.9",
    "/benchmark A100 10.5",
    "/benchmark A100 -1",
    "/benchmark A100 1.2 1.3",
    "/benchmark A100 at",
    "/benchmark A100 at main",
    "/benchmark A100 at abc1234",
    "/benchmark a100",
    "/benchmark Z9000",
    "/benchmark",
    "/benchmark T4",
    "/benchmark A100 " + "x" * 65_000,
    "/benchmark" + " " * 400 + "A100",
    "/benchmark " + "@everyone " * 6_000,
]


@pytest.mark.parametrize("body", HOSTILE, ids=ascii)
def test_what_is_not_the_command_to_the_letter_is_answered_with_the_grammar(
    jobs: Any, hub: Hub, body: str
) -> None:
    said = jobs.run("asked", comment(body))
    assert (said.status, said.outputs["allowed"]) == (0, "false"), said.log
    assert said.outputs["reaction"] == "confused"
    reply = said.outputs["reply"]
    assert reply.endswith("The command is: /benchmark CARD [MARGIN] [at COMMIT]")
    assert reply.isascii()
    assert "\n" not in reply
    assert len(reply) < 300
    assert said.log.count("\n") == 1
    assert hub.asked == [PERMISSION]
    assert {said.outputs[name] for name in ("card", "margin", "sha", "base")} == {""}


def test_card_that_is_too_old_is_refused_with_advice(jobs: Any) -> None:
    reply = jobs.run("asked", comment("/benchmark T4"), CARDS="T4 L4").outputs["reply"]
    assert "needs compute capability 8.0 or newer, and a T4 has 7.5; take one of: T4, L4" in reply


@pytest.mark.parametrize(
    "body",
    [
        "Please /benchmark A100",
        "> /benchmark A100",
        "/benchmarks A100",
        "/benchm\u0430rk A100",  # a Cyrillic letter
        "/Benchmark A100",
        "/benchmark\u00a0A100",
        " /benchmark A100",
        "\u200b/benchmark A100",
        "",
        None,
        "x" * 65_536,
    ],
    ids=ascii,
)
def test_what_is_not_said_to_us_is_left_alone(jobs: Any, hub: Hub, body: Any) -> None:
    said = jobs.run("asked", comment(body))
    assert (said.status, said.outputs["allowed"]) == (0, "false")
    assert (said.outputs["reaction"], said.outputs["reply"], hub.asked) == ("", "", [])


@pytest.mark.parametrize("action", ["edited", "deleted"])
def test_comment_that_is_not_new_asks_for_nothing(jobs: Any, hub: Hub, action: str) -> None:
    said = jobs.run("asked", comment("/benchmark A100", action=action))
    assert (said.status, said.outputs["allowed"], hub.asked) == (0, "false", [])


def test_comment_on_an_issue_asks_for_nothing(jobs: Any, hub: Hub) -> None:
    event = comment("/benchmark A100")
    del event["issue"]["pull_request"]
    said = jobs.run("asked", event)
    assert (said.status, said.outputs["allowed"], hub.asked) == (0, "false", [])


# the head


def test_head_that_came_after_the_comment_is_refused(jobs: Any, hub: Hub, head: str) -> None:
    hub.repo.pulls[NUMBER]["head"]["sha"] = new = "b" * 40
    hub.repo.pushed("patch", new, AFTER)
    said = jobs.run("asked", comment("/benchmark A100"))
    assert (said.status, said.outputs["allowed"], said.outputs["sha"]) == (0, "false", "")
    assert said.outputs["reaction"] == "confused"
    assert f"name the commit: /benchmark A100 1.2 at {new}" in said.outputs["reply"]
    assert head not in said.outputs["reply"]


def test_head_that_came_in_the_second_of_the_comment_is_refused(jobs: Any, hub: Hub) -> None:
    hub.repo.activity[0]["timestamp"] = WHEN
    assert jobs.run("asked", comment("/benchmark A100")).outputs["allowed"] == "false"
    hub.repo.activity[0]["timestamp"] = "2026-05-01T12:59:59+02:00"
    assert jobs.run("asked", comment("/benchmark A100")).outputs["allowed"] == "true"


def test_head_that_was_pushed_back_to_what_it_was_is_refused(
    jobs: Any, hub: Hub, head: str
) -> None:
    hub.repo.pushed("patch", "b" * 40, AFTER)
    hub.repo.pushed("patch", head, "2026-05-01T11:00:02Z", "force_push")
    assert jobs.run("asked", comment("/benchmark A100")).outputs["allowed"] == "false"


def test_push_while_it_is_decided_is_refused(jobs: Any, hub: Hub) -> None:
    hub.repo.pushed("patch", "b" * 40, AFTER)  # which the pull request does not show yet
    said = jobs.run("asked", comment("/benchmark A100"))
    assert said.outputs["allowed"] == "false"
    assert "can't be told since when" in said.outputs["reply"]


@pytest.mark.parametrize("fault", [404, 403, 301])
def test_head_of_which_the_time_is_not_known_has_to_be_named(
    jobs: Any, hub: Hub, head: str, fault: int
) -> None:
    hub.faults.append(Fault("GET activity", fault, times=99))
    said = jobs.run("asked", comment("/benchmark A100 1.5"))
    assert (said.status, said.outputs["allowed"]) == (0, "false")
    assert said.outputs["reply"].endswith(f"Name the commit: /benchmark A100 1.5 at {head}")


@pytest.mark.parametrize(
    "change",
    [{"timestamp": "yesterday"}, {"timestamp": "2026-05-01T10:00:00"}, {"after": None}, None],
)
def test_activity_that_is_odd_or_empty_is_a_no(
    jobs: Any, hub: Hub, change: dict[str, Any] | None
) -> None:
    if change is None:
        hub.repo.activity.clear()
    else:
        hub.repo.activity[0].update(change)
    said = jobs.run("asked", comment("/benchmark A100"))
    assert (said.status, said.outputs["allowed"]) == (0, "false")
    assert "can't be told" in said.outputs["reply"]


def test_commit_that_is_named_needs_no_time(jobs: Any, hub: Hub, head: str) -> None:
    hub.repo.activity.clear()
    said = jobs.run("asked", comment(f"/benchmark A100 at {head}"))
    assert (said.outputs["allowed"], said.outputs["sha"]) == ("true", head)
    assert "GET activity" not in hub.asked


def test_commit_that_is_named_and_not_the_head_is_refused(jobs: Any, hub: Hub, head: str) -> None:
    hub.repo.pulls[NUMBER]["head"]["sha"] = "b" * 40
    said = jobs.run("asked", comment(f"/benchmark A100 1.2 at {head}"))
    assert (said.outputs["allowed"], said.outputs["sha"]) == ("false", "")
    assert f"the head is {'b' * 40} now" in said.outputs["reply"]


@pytest.mark.parametrize("state", ["closed", "merged"])
def test_pull_request_that_is_not_open_is_refused(jobs: Any, hub: Hub, state: str) -> None:
    hub.repo.pulls[NUMBER]["state"] = state
    said = jobs.run("asked", comment("/benchmark A100"))
    assert said.outputs["allowed"] == "false"
    assert f"the pull request is {state}" in said.outputs["reply"]


# forks


@pytest.mark.parametrize("named", [False, True])
def test_fork_gets_nothing_unless_the_project_has_settled_it(
    jobs: Any, hub: Hub, head: str, named: bool
) -> None:
    hub.repo.open_pull(NUMBER, "patch", head, fork="stranger/house", login="stranger")
    said = jobs.run("asked", comment(f"/benchmark A100{f' at {head}' if named else ''}"))
    assert (said.status, said.outputs["allowed"], said.outputs["sha"]) == (0, "false", "")
    assert "comes from a fork" in said.outputs["reply"]
    assert "GPU_BENCH_FORKS" in said.outputs["reply"]


@pytest.mark.parametrize("gone", [False, True])
def test_fork_gets_nothing_unless_its_commit_is_named(
    jobs: Any, hub: Hub, head: str, gone: bool
) -> None:
    pull = hub.repo.open_pull(NUMBER, "patch", head, fork="stranger/house", login="stranger")
    if gone:
        pull["head"]["repo"] = None
    said = jobs.run("asked", comment("/benchmark A100"), FORKS="named")
    assert said.outputs["allowed"] == "false"
    assert said.outputs["reply"].endswith(f"/benchmark A100 1.2 at {head}")
    said = jobs.run("asked", comment(f"/benchmark A100 at {head}"), FORKS="named")
    assert (said.outputs["allowed"], said.outputs["sha"]) == ("true", head)
    assert said.outputs["base"] == ""  # nothing can be proposed there


@pytest.mark.parametrize("value", ["true", "1", "NAMED", "named "])
def test_setting_for_forks_is_one_word(jobs: Any, hub: Hub, head: str, value: str) -> None:
    hub.repo.open_pull(NUMBER, "patch", head, fork="stranger/house")
    said = jobs.run("asked", comment(f"/benchmark A100 at {head}"), FORKS=value)
    assert said.outputs["allowed"] == "false"


# GitHub


@pytest.mark.parametrize("what", [PERMISSION, "GET pulls/7"])
@pytest.mark.parametrize("status", [301, 302, 401, 403, 422])
def test_error_of_the_interface_is_a_no(jobs: Any, hub: Hub, what: str, status: int) -> None:
    headers = {"Location": f"{hub.url}/elsewhere"}
    hub.faults.append(Fault(what, status, 9, headers=headers))
    said = jobs.run("asked", comment("/benchmark A100"))
    assert (said.status, said.outputs["allowed"], said.outputs["sha"]) == (1, "false", "")
    assert said.outputs["reaction"] == "confused"
    assert f"::error::{what}: GitHub answered {status}" in said.log
    assert "GET elsewhere" not in hub.asked


@pytest.mark.parametrize("what", [PERMISSION, "GET pulls/7"])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'"write"', b"\xff", b"{}"])
def test_odd_answer_is_a_no(jobs: Any, hub: Hub, what: str, body: bytes) -> None:
    hub.faults.append(Fault(what, 200, 9, body=body))
    said = jobs.run("asked", comment("/benchmark A100"))
    assert (said.status, said.outputs["allowed"], said.outputs["sha"]) == (1, "false", "")


def test_answer_about_somebody_else_is_a_no(jobs: Any, hub: Hub) -> None:
    body = b'{"permission": "admin", "user": {"login": "bob"}}'
    hub.faults.append(Fault(PERMISSION, 200, body=body))
    said = jobs.run("asked", comment("/benchmark A100"))
    assert (said.status, said.outputs["allowed"]) == (1, "false")
    assert "spoke of somebody else" in said.log


@pytest.mark.parametrize("status", [0, 500, 503])
def test_interface_that_fails_once_is_asked_again(jobs: Any, hub: Hub, status: int) -> None:
    hub.faults.append(Fault("GET pulls/7", status))
    said = jobs.run("asked", comment("/benchmark A100"))
    assert (said.status, said.outputs["allowed"]) == (0, "true")
    assert hub.asked.count("GET pulls/7") == 2


def test_interface_that_is_not_there_is_a_no(jobs: Any) -> None:
    said = jobs.run("asked", comment("/benchmark A100"), GITHUB_API_URL="http://127.0.0.1:1")
    assert (said.status, said.outputs["allowed"]) == (1, "false")
    assert "GitHub can't be asked" in said.log


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ({"GITHUB_API_URL": "http://api.example.org"}, "https is wanted"),
        ({"GITHUB_API_URL": ""}, "https is wanted"),
        ({"GITHUB_TOKEN": ""}, "GITHUB_TOKEN is empty"),
        ({"GITHUB_TOKEN": "t0ken-of-the-job\n"}, "GITHUB_TOKEN has a space, a line end"),
        ({"GITHUB_TOKEN": "t0ken-of-the-job\u00e9"}, "GITHUB_TOKEN has a space, a line end"),
        ({"GITHUB_REPOSITORY": "house"}, "OWNER/NAME is wanted"),
        ({"CARDS": " "}, "CARDS is empty"),
        ({"GITHUB_EVENT_NAME": "pull_request_target"}, "is none that benchmarks run for"),
        ({"GITHUB_EVENT_NAME": ""}, "is none that benchmarks run for"),
    ],
)
def test_wrong_setting_is_a_no(jobs: Any, hub: Hub, told: dict[str, str], word: str) -> None:
    said = jobs.run("asked", comment("/benchmark A100"), **told)
    assert (said.status, said.outputs, hub.asked) == (1, {}, [])
    assert word in said.log


@pytest.mark.parametrize(
    "event",
    [
        "",
        "[]",
        comment("/benchmark A100", issue=None),
        comment("/benchmark A100", comment=None),
        comment("/benchmark A100", sender=user("bob")),
        comment(
            "/benchmark A100",
            issue={"number": "7", "pull_request": {}, "x": 1} | {"pull_request": {"url": "x"}},
        ),
        comment("/benchmark A100", action=None),
    ],
)
def test_odd_event_is_a_no(jobs: Any, hub: Hub, event: Any) -> None:
    said = jobs.run("asked", event)
    assert (said.status, said.outputs, hub.asked) == (1, {}, [])
    assert said.log.count("\n") == 1


# by hand

BY_HAND = {
    "GITHUB_EVENT_NAME": "workflow_dispatch",
    "GITHUB_REF": "refs/heads/release/2",
    "GITHUB_SHA": "c" * 40,
}


def test_dispatch_runs_its_own_commit(jobs: Any, hub: Hub) -> None:
    said = jobs.run("asked", {}, **BY_HAND, CARD="H100", MARGIN="1.10")
    assert said.status == 0, said.log
    assert said.outputs == {
        "allowed": "true",
        "card": "H100",
        "margin": "1.1",
        "sha": "c" * 40,
        "base": "release/2",
        "number": "",
        "comment": "",
        "reaction": "",
        "reply": "",
    }
    assert hub.asked == []


def test_dispatch_of_a_tag_has_no_branch_to_propose_to(jobs: Any) -> None:
    told = {**BY_HAND, "GITHUB_REF": "refs/tags/v1"}
    said = jobs.run("asked", {}, **told, CARD="L4", DEFAULT_MARGIN="1.5")
    assert (said.outputs["margin"], said.outputs["base"]) == ("1.5", "")


@pytest.mark.parametrize(
    "told",
    [
        {"CARD": ""},
        {"CARD": "T4"},
        {"CARD": "A100\nsha=x"},
        {"MARGIN": "$(touch owned)"},
        {"MARGIN": "0"},
        {"GITHUB_SHA": "main"},
    ],
)
def test_dispatch_that_can_not_be_meant_is_refused(jobs: Any, told: dict[str, str]) -> None:
    said = jobs.run("asked", {}, **{**BY_HAND, "CARD": "L4", **told})
    assert (said.status, said.outputs) == (1, {})
