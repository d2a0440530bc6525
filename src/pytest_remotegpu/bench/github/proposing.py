"""The pull request with new thresholds: made or brought up to date where the verdict has changed.

There is one for each card and branch, always from the same branch of ours. Each step may be done
already, by an earlier run that was cut off or by one at the same time, and doing it again does no
harm. What somebody else has pushed there is never overwritten.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import FORBIDDEN, NOT_FOUND, UNPROCESSABLE_ENTITY
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pytest_remotegpu.bench import configs
from pytest_remotegpu.bench.github.api import Api, ApiError, NotSureError
from pytest_remotegpu.bench.github.runner import number_at, text_at
from pytest_remotegpu.bench.thresholds import OFF
from pytest_remotegpu.errors import RemoteGpuError, UsageError

__all__ = ["Outcome", "Place", "ProposalError", "Text", "branch_for", "propose", "same_verdict"]

MARK: Final = "Proposed-by: pytest-remotegpu"
"""The last line of our commits' messages, by which they are known."""
PREFIX: Final = "remotegpu-bench"


class ProposalError(RemoteGpuError):
    """Raised where new thresholds can't be proposed; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where thresholds stand.

    :ivar base: the branch. :ivar path: of the configuration, below the repository's root.
    :ivar card: that they are for.
    """

    base: str
    path: str
    card: str


@dataclass(frozen=True, slots=True)
class Text:
    """What a proposal says. :ivar title: one line. :ivar body: in Markdown."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has become of thresholds.

    :ivar state: ``unchanged``, ``opened``, ``updated`` or ``closed``.
    :ivar before: what the configuration has, by key. :ivar number: of the pull request, or 0.
    """

    state: str
    before: Mapping[str, Any]
    number: int = 0


def branch_for(place: Place) -> str:
    """Name the branch that a proposal is made from."""
    return f"{PREFIX}/{place.card}/{place.base}"


def same_verdict(one: Any, other: int) -> bool:
    """Say whether two values of a key mean the same; all that mean "never" do."""
    known = type(one) is int
    return known and (one == other or (one in OFF and other in OFF))


def propose(
    api: Api, place: Place, thresholds: Mapping[str, int], write: Any, login: str
) -> Outcome:
    """Have an open pull request say what was measured, if that is news.

    :param thresholds: by key; what was not measured is not among them.
    :param write: makes the :class:`Text` of what the configuration has by now.
    :param login: whose pull requests are ours.
    :raises ProposalError: where it can't be proposed.
    :raises ApiError: where GitHub does not do it.
    """
    tip = _tip(api, place.base)
    if tip is None:
        raise ProposalError(f"there is no branch {place.base!r}")
    content = _content(api, place.path, tip)
    before, after = _edited(place.path, content, thresholds)
    news = after != content and any(
        not same_verdict(before.get(key), value) for key, value in thresholds.items()
    )
    open_one = _open_one(api, place, login)
    if not news:
        if open_one is None:
            return Outcome("unchanged", before)
        said = "The last benchmark gave what the branch has already, so there is nothing to change."
        api.change(f"pulls/{number_at(open_one, 'number')}", {"state": "closed", "body": said})
        return Outcome("closed", before, number_at(open_one, "number"))
    text: Text = write(before)
    _push(api, place, tip, after, text)
    state, number = _opened(api, place, text, login)
    return Outcome(state, before, number)


def _quoted(path: str) -> str:
    return urllib.parse.quote(path, safe="/")


def _tip(api: Api, branch: str) -> str | None:
    """Give the commit that a branch is at; ``None`` where there is no such branch."""
    try:
        found = api.get(f"git/ref/heads/{_quoted(branch)}")
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise
    return text_at(found, "object", "sha")


def _content(api: Api, path: str, commit: str) -> bytes:
    """Read a file of a commit."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise ProposalError(f"the configuration is {path!r}; a path below the root is wanted")
    try:
        found = api.get(f"contents/{_quoted(path)}", ref=commit)
    except ApiError as error:
        if error.status == NOT_FOUND:
            raise ProposalError(f"there is no {path} at {commit}") from error
        raise
    if found.get("type") != "file" or found.get("encoding") != "base64":
        raise ProposalError(f"{path} at {commit} is no file that can be read this way")
    try:
        return base64.b64decode(str(found.get("content")))
    except binascii.Error as error:
        raise ProposalError(f"{path} at {commit} came in pieces that do not fit") from error


def _edited(path: str, content: bytes, values: Mapping[str, int]) -> tuple[dict[str, Any], bytes]:
    """Give what a configuration has, and its bytes with other values."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder).resolve() / PurePosixPath(path).name
        file.write_bytes(content)
        try:
            return configs.held(file), configs.plan(file, values).after
        except UsageError as error:
            raise ProposalError(str(error).replace(str(file), path)) from error


def _open_one(api: Api, place: Place, login: str) -> dict[str, Any] | None:
    """Find our open pull request, if there is one."""
    head = f"{api.owner}:{branch_for(place)}"
    for each in api.list("pulls", state="open", head=head, base=place.base):
        user = each.get("user")
        if isinstance(user, dict) and user.get("login") == login:
            return each
    return None


def _push(api: Api, place: Place, tip: str, content: bytes, text: Text) -> None:
    """Have our branch be one commit on top of the other one, with the new content."""
    branch = branch_for(place)
    ours = _tip(api, branch)
    if ours is not None:
        there = api.get(f"git/commits/{ours}")
        parents = [text_at(each, "sha") for each in _list(there, "parents")]
        known = text_at(there, "message").rstrip().endswith(MARK)
        if not known and ours != tip:
            raise ProposalError(
                f"somebody has pushed to {branch}, which is left alone; merge or delete it"
            )
        if known and parents == [tip] and _content(api, place.path, ours) == content:
            return
    commit = _commit(api, place, tip, content, text)
    if ours is None:
        try:
            api.make("git/refs", {"ref": f"refs/heads/{branch}", "sha": commit}, again=True)
        except ApiError as error:
            if (
                error.status != UNPROCESSABLE_ENTITY
            ):  # it is there: of a try before, or of another run
                raise
        else:
            return
    api.change(f"git/refs/heads/{_quoted(branch)}", {"sha": commit, "force": True})


def _commit(api: Api, place: Place, tip: str, content: bytes, text: Text) -> str:
    """Make a commit that no branch has yet; nobody sees one that is made twice."""
    encoded = base64.b64encode(content).decode()
    blob = api.make("git/blobs", {"content": encoded, "encoding": "base64"}, again=True)
    base = api.get(f"git/commits/{tip}")
    root = text_at(base, "tree", "sha")
    mode = _mode(api, root, place.path)
    entry = {"path": place.path, "mode": mode, "type": "blob", "sha": text_at(blob, "sha")}
    told = {"base_tree": root, "tree": [entry]}
    tree = api.make("git/trees", told, again=True)
    message = f"{text.title}\n\n{MARK}"
    commit = {"message": message, "tree": text_at(tree, "sha"), "parents": [tip]}
    return text_at(api.make("git/commits", commit, again=True), "sha")


def _mode(api: Api, tree: str, path: str) -> str:
    """Give the mode that a file has, so that it stays."""
    *folders, name = PurePosixPath(path).parts
    for folder in folders:
        tree = text_at(_entry(api, tree, folder, path), "sha")
    return text_at(_entry(api, tree, name, path), "mode")


def _entry(api: Api, tree: str, name: str, path: str) -> Mapping[str, Any]:
    for each in _list(api.get(f"git/trees/{tree}"), "tree"):
        if each.get("path") == name:
            return each
    raise ProposalError(f"{path} is gone")


def _list(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = data.get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ProposalError(f"GitHub's answer has no list of objects under {key!r}")
    return found


def _opened(api: Api, place: Place, text: Text, login: str) -> tuple[str, int]:
    """Have one pull request say it; where it is not known whether one was made, look."""
    told = {"title": text.title, "body": text.body}
    head = {"head": branch_for(place), "base": place.base}
    trouble = ApiError("no pull request was made")
    for tried in (1, 2, 3):
        there = _open_one(api, place, login)
        if there is not None:
            if (there.get("title"), there.get("body")) != (text.title, text.body):
                api.change(f"pulls/{number_at(there, 'number')}", told)
            return "updated", number_at(there, "number")
        if tried > 1:
            api.pause(tried)
        try:
            return "opened", number_at(api.make("pulls", {**told, **head}), "number")
        except ApiError as error:
            trouble = _judged(error, head["head"])
    raise trouble


def _judged(error: ApiError, branch: str) -> ApiError:
    """Give an error back after which a pull request may be there all the same; raise others."""
    if error.status == FORBIDDEN and "rate limit" not in error.what:
        raise ProposalError(
            f"{error}; the setting of the repository (Actions, General) that allows GitHub Actions"
            f" to create pull requests may be off. The change is on {branch}"
        ) from error
    if not isinstance(error, NotSureError) and error.status != UNPROCESSABLE_ENTITY:
        raise error
    return error
