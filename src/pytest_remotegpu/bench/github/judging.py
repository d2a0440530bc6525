"""Who may have which commit measured: decided from the event and from what GitHub says of it.

A comment comes with no commit. The one to measure is the head that was current when the comment was
made, and what is not certain is a no. Nothing of a pull request is run here.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from http.client import NOT_FOUND
from typing import Any, Final

from pytest_remotegpu.bench.github.api import Api, ApiError
from pytest_remotegpu.bench.github.asking import (
    COMMAND,
    COMMIT,
    GRAMMAR,
    AskingError,
    Wish,
    is_addressed,
    parse,
    read_card,
    read_margin,
    shown,
)
from pytest_remotegpu.bench.github.runner import RunnerError, number_at, text_at
from pytest_remotegpu.errors import RemoteGpuError

__all__ = ["Decision", "NoError", "Rules", "judge"]

MAY_WRITE: Final = ("admin", "write")
"""The interface tells `maintain` as `write`, `triage` as `read`, a custom role as its base."""
EYES: Final = "eyes"
CONFUSED: Final = "confused"


class NoError(RemoteGpuError):
    """Raised where a wish of somebody who may write is refused; the text is meant for him."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a project has settled.

    :ivar cards: that may be asked for. :ivar margin: where none is named.
    :ivar forks: whether a commit of a fork may be measured, if it is named in full.
    """

    cards: Sequence[str]
    margin: str
    forks: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes of an event.

    :ivar run: whether a benchmark is run. :ivar why: a sentence for the log.
    :ivar wish: what to measure, its margin and commit included, where one is run.
    :ivar base: the branch that new thresholds are for; empty where there is none to propose to.
    :ivar number: of the pull request; 0 where there is none. :ivar comment: that asked, likewise.
    :ivar reaction: to the comment; empty for none. :ivar reply: to it; empty for none.
    :ivar failed: whether GitHub did not say what has to be known.
    """

    run: bool
    why: str
    wish: Wish = field(default_factory=lambda: Wish(""))
    base: str = ""
    number: int = 0
    comment: int = 0
    reaction: str = ""
    reply: str = ""
    failed: bool = False

    def outputs(self) -> dict[str, str]:
        """Give it as outputs of the job."""
        return {
            "allowed": str(self.run).lower(),
            "card": self.wish.card,
            "margin": self.wish.margin,
            "sha": self.wish.commit,
            "base": self.base,
            "number": str(self.number or ""),
            "comment": str(self.comment or ""),
            "reaction": self.reaction,
            "reply": self.reply,
        }


def judge(event: Mapping[str, Any], environ: Mapping[str, str], rules: Rules, api: Api) -> Decision:
    """Decide about an event.

    :param environ: what the job is told: the event's name and commit; a dispatch's CARD, MARGIN.
    :raises RunnerError: for an event that can't be right.
    :raises AskingError: where a dispatch asks for what can't be meant.
    """
    name = environ.get("GITHUB_EVENT_NAME", "")
    if name == "workflow_dispatch":
        return _dispatched(environ, rules)
    if name != "issue_comment":
        raise RunnerError(f"the event {name!r} is none that benchmarks run for")
    return _commented(event, rules, api)


def _dispatched(environ: Mapping[str, str], rules: Rules) -> Decision:
    card = read_card(environ.get("CARD", ""), rules.cards)
    margin = read_margin(environ.get("MARGIN") or rules.margin)
    sha, ref = environ.get("GITHUB_SHA", ""), environ.get("GITHUB_REF", "")
    _is_commit(sha)
    base = ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else ""
    return Decision(True, f"{card} at {sha}, by hand", Wish(card, margin, sha), base)


def _commented(event: Mapping[str, Any], rules: Rules, api: Api) -> Decision:
    if (action := text_at(event, "action")) != "created":
        return Decision(False, f"a comment that was {action} asks for nothing; a new one does")
    issue, comment = event.get("issue"), event.get("comment")
    if not isinstance(issue, dict) or not isinstance(comment, dict):
        raise RunnerError("the event has no issue, or no comment")
    if not issue.get("pull_request"):
        return Decision(False, "the comment is on an issue; one on a pull request is wanted")
    body = comment.get("body")
    if not isinstance(body, str) or not is_addressed(body):
        return Decision(False, f"the comment does not begin with {COMMAND}")
    login = text_at(comment, "user", "login")
    if text_at(event, "sender", "login") != login:
        raise RunnerError("the comment is of somebody else than the event")
    asked = Decision(
        False,
        "",
        number=number_at(issue, "number"),
        comment=number_at(comment, "id"),
        reaction=CONFUSED,
    )
    try:
        permission = _permission(login, api)
    except (ApiError, RunnerError) as error:
        return replace(asked, why=str(error), failed=True)
    if permission not in MAY_WRITE:
        why = f"{login} has the permission {permission!r}; somebody who may write has to ask"
        return replace(asked, why=why)
    return _wished(asked, login, body, text_at(comment, "created_at"), rules, api)


def _wished(asked: Decision, login: str, body: str, when: str, rules: Rules, api: Api) -> Decision:
    """Decide about the comment of somebody who may write."""
    try:
        wish, base = _granted(body, asked.number, when, rules, api)
    except AskingError as error:
        return replace(asked, why=str(error), reply=f"{error}. The command is: {GRAMMAR}")
    except NoError as error:
        return replace(asked, why=str(error), reply=str(error))
    except (ApiError, RunnerError) as error:
        return replace(asked, why=str(error), reply=str(error), failed=True)
    why = f"{login} asked for {wish.card} at {wish.commit}"
    return replace(asked, run=True, why=why, wish=wish, base=base, reaction=EYES)


def _permission(login: str, api: Api) -> str:
    """Ask what somebody may do; the event's word for it is not enough."""
    who = urllib.parse.quote(login, safe="")
    try:
        answer = api.get(f"collaborators/{who}/permission")
    except ApiError as error:
        if error.status == NOT_FOUND:  # whoever is no collaborator
            return "none"
        raise
    if text_at(answer, "user", "login").lower() != login.lower():
        raise RunnerError(f"GitHub was asked about {login} and spoke of somebody else")
    return text_at(answer, "permission")


def _granted(body: str, number: int, when: str, rules: Rules, api: Api) -> tuple[Wish, str]:
    """Give what is to be measured, and the branch that it is for.

    :raises AskingError: where it is not understood.
    :raises NoError: where the commit can't be told for certain, or must not be run.
    """
    wish = parse(body, rules.cards)
    pull = api.get(f"pulls/{number}")
    if (state := text_at(pull, "state")) != "open":
        raise NoError(f"the pull request is {state}; open it again, and ask anew")
    head = _is_commit(text_at(pull, "head", "sha"))
    again = f"{COMMAND} {wish.card} {wish.margin or rules.margin} at {head}"
    if wish.commit and wish.commit != head:
        raise NoError(
            f"{wish.commit} was named, and the head is {head} now;"
            " look at what is new, and ask anew"
        )
    repo = pull["head"].get("repo")
    own = isinstance(repo, dict) and text_at(repo, "full_name").lower() == api.repository.lower()
    branch = text_at(pull, "head", "ref")
    if not own:
        _check_fork(wish, again, rules)
    elif not wish.commit:
        _check_time(branch, head, when, again, api)
    margin = wish.margin or read_margin(rules.margin)
    return Wish(wish.card, margin, head), branch if own else ""


def _check_fork(wish: Wish, again: str, rules: Rules) -> None:
    """Refuse the code of a fork, unless the project lets it run and its commit was named."""
    if not rules.forks:
        raise NoError(
            "the pull request comes from a fork, and its code would run with this repository's"
            " secrets. Push what you have read to a branch here, and ask there; or set the"
            " repository's variable GPU_BENCH_FORKS to `named`, and name the commit"
        )
    if not wish.commit:
        raise NoError(
            "the pull request comes from a fork, and its code will run with this repository's"
            f" secrets. Read it, and name the commit that you have read: {again}"
        )


def _check_time(branch: str, head: str, when: str, again: str, api: Api) -> None:
    """Refuse a head that may have come after the comment.

    A commit's own dates are whatever who made it likes; the repository's activity has the time at
    which GitHub got it.

    :param when: the comment was made.
    """
    try:
        pushes = list(_latest(branch, api))
    except (ApiError, RunnerError) as error:
        raise NoError(
            f"it can't be told when the head became what it is ({error}). Name the commit: {again}"
        ) from error
    if not pushes or pushes[0][1] != head:
        raise NoError(f"it can't be told since when {head} is the head. Name the commit: {again}")
    if pushes[0][0] >= _time(when):
        raise NoError(
            f"the head became {head} when the comment was there already."
            f" Look at what is new, and name the commit: {again}"
        )


def _latest(branch: str, api: Api) -> list[tuple[datetime, str]]:
    """Give when a branch got which commit, the latest first."""
    ref = f"refs/heads/{branch}"
    answer = api.first("activity", ref=ref)
    found = [
        (_time(text_at(each, "timestamp")), text_at(each, "after"))
        for each in answer
        if each.get("ref") == ref
    ]
    return sorted(found, key=lambda each: each[0], reverse=True)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise RunnerError(f"{shown(text)} is no time") from error
    if time.tzinfo is None:
        raise RunnerError(f"{shown(text)} has no time zone")
    return time


def _is_commit(text: str) -> str:
    if not COMMIT.fullmatch(text):
        raise RunnerError(f"the commit is {shown(text)}, which can't be right")
    return text
