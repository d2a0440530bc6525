"""A repository as GitHub keeps it: people, pull requests, comments, reactions, objects, branches.

Knows no HTTP.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

OWNER, NAME = "our", "house"
REPOSITORY = f"{OWNER}/{NAME}"
BOT = "github-actions[bot]"
BODY = 65_536
"""Signs that a comment may have."""


class Refused(Exception):  # noqa: N818 -- it is an answer
    """An answer with an error's status."""

    def __init__(self, status: int, message: str, errors: list[Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.told = {"message": message, "status": str(status)}
        if errors:
            self.told["errors"] = errors  # type: ignore[assignment]


def user(login: str) -> dict[str, Any]:
    """Describe somebody."""
    kind = "Bot" if login.endswith("[bot]") else "User"
    return {"login": login, "id": abs(hash(login)) % 10**6 + 1, "type": kind}


def digest(data: Any) -> str:
    """Name an object after what it is."""
    return hashlib.sha1(json.dumps(data, sort_keys=True).encode()).hexdigest()  # noqa: S324 -- git's


@dataclass
class Repository:
    """All of it. Numbers and ids grow."""

    permissions: dict[str, tuple[str, str]] = field(default_factory=dict)
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    reactions: dict[int, dict[str, Any]] = field(default_factory=dict)
    activity: list[dict[str, Any]] = field(default_factory=list)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    may_open: bool = True
    last: int = 1000

    def next(self) -> int:
        """Give a number that nothing has yet."""
        self.last += 1
        return self.last

    # objects

    def keep(self, kind: str, **told: Any) -> str:
        """Keep an object, and give its name."""
        sha = digest([kind, told])
        self.objects[sha] = {"kind": kind, **told}
        return sha

    def object(self, kind: str, sha: str) -> dict[str, Any]:
        """Give an object."""
        found = self.objects.get(sha)
        if found is None or found["kind"] != kind:
            raise Refused(404, "Not Found")
        return found

    def tree(self, files: dict[str, tuple[str, bytes]]) -> str:
        """Keep a tree of files, given by path: mode and bytes."""
        entries: dict[str, tuple[str, str, str]] = {}
        folders: dict[str, dict[str, tuple[str, bytes]]] = {}
        for path, (mode, data) in files.items():
            first, _, rest = path.partition("/")
            if rest:
                folders.setdefault(first, {})[rest] = (mode, data)
            else:
                blob = self.keep("blob", content=base64.b64encode(data).decode())
                entries[first] = (mode, "blob", blob)
        for name, inner in folders.items():
            entries[name] = ("040000", "tree", self.tree(inner))
        return self.keep("tree", entries=[[name, *entries[name]] for name in sorted(entries)])

    def files(self, tree: str) -> dict[str, tuple[str, bytes]]:
        """Give the files of a tree by path."""
        found: dict[str, tuple[str, bytes]] = {}
        for name, mode, kind, sha in self.object("tree", tree)["entries"]:
            if kind == "blob":
                content = self.object("blob", sha)["content"]
                found[name] = (mode, base64.b64decode(content))
            else:
                found |= {f"{name}/{path}": file for path, file in self.files(sha).items()}
        return found

    def commit(self, branch: str, files: dict[str, tuple[str, bytes]], message: str = "x") -> str:
        """Push a commit with these files to a branch."""
        parents = [self.branches[branch]] if branch in self.branches else []
        sha = self.keep("commit", tree=self.tree(files), parents=parents, message=message)
        self.branches[branch] = sha
        return sha

    def content(self, branch: str, path: str) -> bytes:
        """Read a file of a branch."""
        return self.files(self.object("commit", self.branches[branch])["tree"])[path][1]

    # people and pull requests

    def pushed(self, branch: str, sha: str, when: str, kind: str = "push") -> None:
        """Note a push, the latest first."""
        entry = {
            "id": self.next(),
            "before": "0" * 40,
            "after": sha,
            "ref": f"refs/heads/{branch}",
            "timestamp": when,
            "activity_type": kind,
            "actor": user("ann"),
        }
        self.activity.insert(0, entry)

    def open_pull(
        self, number: int, branch: str, sha: str, *, fork: str | None = None, login: str = "ann"
    ) -> dict[str, Any]:
        """Open a pull request, from a fork if one is named."""
        self.pulls[number] = {
            "id": self.next(),
            "number": number,
            "state": "open",
            "title": "$(touch owned) `touch owned`",
            "body": "",
            "user": user(login),
            "html_url": f"https://github.example/{REPOSITORY}/pull/{number}",
            "head": {
                "label": f"{(fork or REPOSITORY).split('/')[0]}:{branch}",
                "ref": branch,
                "sha": sha,
                "repo": {"full_name": fork or REPOSITORY, "fork": fork is not None},
            },
            "base": {"ref": "main", "sha": self.branches["main"]},
        }
        return self.pulls[number]

    def said(self, number: int, body: str, login: str = BOT) -> dict[str, Any]:
        """Write a comment."""
        if not 0 < len(body) <= BODY:
            raise Refused(422, "Validation Failed", [{"message": "body is too long"}])
        found = self.next()
        self.comments[found] = {
            "id": found,
            "issue": number,
            "user": user(login),
            "body": body,
            "html_url": f"https://github.example/{REPOSITORY}/pull/{number}#issuecomment-{found}",
        }
        return self.comments[found]
