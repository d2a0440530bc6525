"""What the interface answers: one function for each method and path. Knows no HTTP."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hub.state import BOT, OWNER, Refused, Repository, user

Query = dict[str, str]
Told = dict[str, Any]
Route = Callable[..., Any]
F = TypeVar("F", bound=Route)
ROUTES: list[tuple[str, re.Pattern[str], Route]] = []


@dataclass
class Listed:
    """A list, of which a page is shown."""

    rows: list[Told]


def route(method: str, path: str) -> Callable[[F], F]:
    """Have a function answer a method and path."""

    def mark(function: F) -> F:
        ROUTES.append((method, re.compile(path), function))
        return function

    return mark


def only(told: Told, must: str, may: str = "") -> None:
    """Complain of what is missing from what was told, and of what is too much."""
    required, allowed = set(must.split()), set(must.split()) | set(may.split())
    if not required <= told.keys() or not told.keys() <= allowed:
        raise Refused(422, f"Validation Failed: {sorted(told)} for {sorted(allowed)}")


@route("GET", r"collaborators/(?P<login>[^/]+)/permission")
def permission(repo: Repository, login: str) -> Told:
    """Say what somebody may do."""
    if login not in repo.permissions:
        raise Refused(404, f"{login} is not a user")
    base, role = repo.permissions[login]
    return {"permission": base, "role_name": role, "user": user(login)}


@route("GET", r"activity")
def activity(repo: Repository, query: Query) -> Listed:
    """List pushes to a branch, the latest first."""
    return Listed([each for each in repo.activity if each["ref"] == query["ref"]])


# pull requests


def found_pull(repo: Repository, number: str) -> Told:
    """Give a pull request."""
    if int(number) not in repo.pulls:
        raise Refused(404, "Not Found")
    return repo.pulls[int(number)]


@route("GET", r"pulls/(?P<number>\d+)")
def pull(repo: Repository, number: str) -> Told:
    """Describe a pull request."""
    return found_pull(repo, number)


@route("PATCH", r"pulls/(?P<number>\d+)")
def change_pull(repo: Repository, number: str, told: Told) -> Told:
    """Change its words, or close it."""
    only(told, "", "title body state base")
    found = found_pull(repo, number)
    found.update(told)
    return found


@route("GET", r"pulls")
def pulls(repo: Repository, query: Query) -> Listed:
    """List pull requests of a state, a head and a base."""
    return Listed(
        [
            each
            for each in repo.pulls.values()
            if query.get("state", "open") in (each["state"], "all")
            and query.get("head") in (None, each["head"]["label"])
            and query.get("base") in (None, each["base"]["ref"])
        ]
    )


@route("POST", r"pulls")
def open_pull(repo: Repository, told: Told) -> Told:
    """Open a pull request from a branch of the same repository."""
    only(told, "title head base", "body draft maintainer_can_modify")
    if not repo.may_open:
        raise Refused(403, "GitHub Actions is not permitted to create or approve pull requests.")
    head, base = told["head"], told["base"]
    if head not in repo.branches or base not in repo.branches:
        raise Refused(422, "Validation Failed", [{"field": "head", "code": "invalid"}])
    if pulls(repo, {"head": f"{OWNER}:{head}", "base": base}).rows:
        message = f"A pull request already exists for {OWNER}:{head}."
        raise Refused(422, "Validation Failed", [{"message": message}])
    if repo.branches[head] == repo.branches[base]:
        message = f"No commits between {base} and {head}"
        raise Refused(422, "Validation Failed", [{"message": message}])
    made = repo.open_pull(repo.next(), head, repo.branches[head], login=BOT)
    made |= {"title": told["title"], "body": told.get("body"), "base": {"ref": base}}
    return made


# comments and reactions


def found_comment(repo: Repository, comment: str) -> Told:
    """Give a comment."""
    if int(comment) not in repo.comments:
        raise Refused(404, "Not Found")
    return repo.comments[int(comment)]


@route("GET", r"issues/(?P<number>\d+)/comments")
def comments(repo: Repository, number: str) -> Listed:
    """List comments, the oldest first."""
    return Listed([each for each in repo.comments.values() if each["issue"] == int(number)])


@route("POST", r"issues/(?P<number>\d+)/comments")
def comment(repo: Repository, number: str, told: Told) -> Told:
    """Write a comment."""
    only(told, "body")
    found_pull(repo, number)
    return repo.said(int(number), told["body"])


@route("PATCH", r"issues/comments/(?P<comment>\d+)")
def change_comment(repo: Repository, comment: str, told: Told) -> Told:
    """Edit a comment, anybody's."""
    only(told, "body")
    found = found_comment(repo, comment)
    found["body"] = told["body"]
    return found


@route("DELETE", r"issues/comments/(?P<comment>\d+)")
def delete_comment(repo: Repository, comment: str) -> None:
    """Delete a comment, anybody's."""
    del repo.comments[found_comment(repo, comment)["id"]]


@route("GET", r"issues/comments/(?P<comment>\d+)/reactions")
def reactions(repo: Repository, comment: str) -> Listed:
    """List reactions to a comment."""
    found = found_comment(repo, comment)["id"]
    return Listed([each for each in repo.reactions.values() if each["comment"] == found])


@route("POST", r"issues/comments/(?P<comment>\d+)/reactions")
def react(repo: Repository, comment: str, told: Told) -> Told:
    """React; a second time is as the first."""
    only(told, "content")
    if told["content"] not in (
        "+1",
        "-1",
        "laugh",
        "confused",
        "heart",
        "hooray",
        "rocket",
        "eyes",
    ):
        raise Refused(422, "Validation Failed")
    for each in reactions(repo, comment).rows:
        if (each["user"]["login"], each["content"]) == (BOT, told["content"]):
            return each
    made = {"id": repo.next(), "comment": int(comment), "user": user(BOT), **told}
    repo.reactions[made["id"]] = made
    return made


@route("DELETE", r"issues/comments/(?P<comment>\d+)/reactions/(?P<reaction>\d+)")
def delete_reaction(repo: Repository, comment: str, reaction: str) -> None:
    """Take a reaction back."""
    found = repo.reactions.get(int(reaction))
    if found is None or found["comment"] != int(comment):
        raise Refused(404, "Not Found")
    del repo.reactions[int(reaction)]


# objects and branches


@route("GET", r"git/ref/heads/(?P<branch>.+)")
def ref(repo: Repository, branch: str) -> Told:
    """Say which commit a branch is at."""
    if branch not in repo.branches:
        raise Refused(404, "Not Found")
    sha = repo.branches[branch]
    return {"ref": f"refs/heads/{branch}", "object": {"type": "commit", "sha": sha}}


@route("POST", r"git/refs")
def make_ref(repo: Repository, told: Told) -> Told:
    """Make a branch."""
    only(told, "ref sha")
    branch = told["ref"].removeprefix("refs/heads/")
    repo.object("commit", told["sha"])
    if branch in repo.branches:
        raise Refused(422, "Reference already exists")
    repo.branches[branch] = told["sha"]
    return ref(repo, branch)


@route("PATCH", r"git/refs/heads/(?P<branch>.+)")
def move_ref(repo: Repository, branch: str, told: Told) -> Told:
    """Move a branch, by force or forward only."""
    only(told, "sha", "force")
    parents = repo.object("commit", told["sha"])["parents"]
    if branch not in repo.branches:
        raise Refused(422, "Reference does not exist")
    if not told.get("force") and repo.branches[branch] not in parents:
        raise Refused(422, "Update is not a fast forward")
    repo.branches[branch] = told["sha"]
    return ref(repo, branch)


@route("GET", r"git/commits/(?P<sha>[0-9a-f]{40})")
def commit(repo: Repository, sha: str) -> Told:
    """Describe a commit."""
    found = repo.object("commit", sha)
    parents = [{"sha": parent} for parent in found["parents"]]
    return {"sha": sha, "tree": {"sha": found["tree"]}, "message": found["message"]} | {
        "parents": parents
    }


@route("POST", r"git/commits")
def make_commit(repo: Repository, told: Told) -> Told:
    """Make a commit."""
    only(told, "message tree", "parents author committer")
    repo.object("tree", told["tree"])
    for parent in told["parents"]:
        repo.object("commit", parent)
    return commit(repo, repo.keep("commit", **told))


@route("GET", r"git/trees/(?P<sha>[0-9a-f]{40})")
def tree(repo: Repository, sha: str) -> Told:
    """Describe a tree, not what lies below."""
    entries = repo.object("tree", sha)["entries"]
    keys = ("path", "mode", "type", "sha")
    return {"sha": sha, "tree": [dict(zip(keys, each, strict=True)) for each in entries]}


@route("POST", r"git/trees")
def make_tree(repo: Repository, told: Told) -> Told:
    """Make a tree from another one and files that it is to have."""
    only(told, "tree", "base_tree")
    files = repo.files(told["base_tree"])
    for entry in told["tree"]:
        only(entry, "path mode type sha")
        blob = repo.object("blob", entry["sha"])
        files[entry["path"]] = (entry["mode"], base64.b64decode(blob["content"]))
    return tree(repo, repo.tree(files))


@route("POST", r"git/blobs")
def make_blob(repo: Repository, told: Told) -> Told:
    """Keep bytes."""
    only(told, "content encoding")
    if told["encoding"] != "base64":
        raise Refused(422, "Validation Failed")
    return {"sha": repo.keep("blob", content=told["content"])}


@route("GET", r"contents/(?P<path>.+)")
def contents(repo: Repository, path: str, query: Query) -> Told | Listed:
    """Read a file of a commit, in lines of base64 as GitHub has it."""
    files = repo.files(repo.object("commit", query["ref"])["tree"])
    if path in files:
        text = base64.encodebytes(files[path][1]).decode()
        return {"type": "file", "encoding": "base64", "content": text, "path": path}
    if any(each.startswith(f"{path}/") for each in files):
        return Listed([{"type": "file", "path": each} for each in files])
    raise Refused(404, "Not Found")
