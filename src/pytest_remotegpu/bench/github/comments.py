"""The one comment of a pull request that benchmarks write into, each its own part.

Several jobs may write at once. Each reads, changes its part, and reads again until what is there is
what it wants to be there, and is there once; so two that have each made a comment end with one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import NOT_FOUND
from typing import Any, Final

from pytest_remotegpu.bench.github.api import Api, ApiError, NotSureError
from pytest_remotegpu.bench.github.runner import number_at

__all__ = ["NOTE", "Part", "put"]

MARK: Final = "<!-- remotegpu-bench -->"
NOTE: Final = "note"
"""The part that answers what was not run; the others are named after their card."""
PART: Final = re.compile(
    r"^<!-- remotegpu-bench:begin (?P<name>\S+) (?P<run>\d{1,18})\.(?P<attempt>\d{1,18}) -->\n"
    r"(?P<text>.*?)\n"
    r"^<!-- remotegpu-bench:end (?P=name) -->$",
    re.MULTILINE | re.DOTALL,
)
ROUNDS: Final = 6
LONGEST: Final = 65_000
"""Of a comment, in signs; GitHub takes 65,536."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the comment.

    :ivar order: run and attempt that wrote it; a later one is not overwritten by an earlier one.
    :ivar text: in Markdown.
    """

    order: tuple[int, int]
    text: str


def put(
    api: Api, number: int, name: str, part: Part, login: str, *, drop: tuple[str, ...] = ()
) -> str:
    """Write a part into the comment, which is made where there is none.

    :param number: of the pull request. :param name: of the part.
    :param login: whose comments are ours; nobody else's is touched, whatever stands in it.
    :param drop: parts that are taken out if they are older.
    :return: the comment's address, or an empty text where a later run has answered already.
    :raises ApiError: where the comment may not say what it should.
    """
    trouble: ApiError | None = None
    for tried in range(1, ROUNDS + 1):
        ours = _find(api, number, login)
        there = _merged(ours)
        late = name in there and there[name].order > part.order
        body = _write(there if late else _with(there, name, part, drop))
        if not ours:
            if trouble:
                api.pause(tried - 1)
            trouble = _made(api, number, body)
            continue
        first, *further = ours
        if first["body"] == body and not further:
            return "" if late else str(first.get("html_url") or "")
        _tidy(api, first, body, further)
    raise trouble or ApiError(
        f"the comment of pull request {number} is changed by others again and again"
    )


def _find(api: Api, number: int, login: str) -> list[dict[str, Any]]:
    """Give our comments, the oldest first."""
    found = [
        each
        for each in api.list(f"issues/{number}/comments")
        if _login(each) == login and str(each.get("body", "")).startswith(MARK)
    ]
    return sorted(
        ({**each, "body": str(each["body"]).replace("\r\n", "\n")} for each in found),
        key=lambda each: number_at(each, "id"),
    )


def _login(comment: Mapping[str, Any]) -> str:
    user = comment.get("user")
    return str(user.get("login")) if isinstance(user, dict) else ""


def _merged(comments: list[dict[str, Any]]) -> dict[str, Part]:
    """Give the latest part of each name."""
    parts: dict[str, Part] = {}
    for comment in comments:
        for found in PART.finditer(comment["body"]):
            part = Part((int(found["run"]), int(found["attempt"])), found["text"])
            if found["name"] not in parts or parts[found["name"]].order < part.order:
                parts[found["name"]] = part
    return parts


def _with(
    there: Mapping[str, Part], name: str, part: Part, drop: tuple[str, ...]
) -> dict[str, Part]:
    kept = {key: old for key, old in there.items() if key not in drop or old.order > part.order}
    return {**kept, name: part}


def _write(parts: Mapping[str, Part]) -> str:
    """Write the comment; the oldest parts are left out where it would be too long."""
    kept = dict(sorted(parts.items(), key=lambda each: (each[0] != NOTE, each[0])))
    while True:
        blocks = [
            f"<!-- remotegpu-bench:begin {name} {part.order[0]}.{part.order[1]} -->\n{part.text}\n"
            f"<!-- remotegpu-bench:end {name} -->"
            for name, part in kept.items()
        ]
        body = "\n\n".join([MARK, *blocks])
        if len(body) <= LONGEST or len(kept) == 1:
            return body
        del kept[min(kept, key=lambda name: kept[name].order)]


def _made(api: Api, number: int, body: str) -> ApiError | None:
    """Make the comment; where it may not have been made, say why, and whoever looks will see."""
    try:
        api.make(f"issues/{number}/comments", {"body": body})
    except NotSureError as error:
        return error
    return None


def _tidy(api: Api, first: dict[str, Any], body: str, further: list[dict[str, Any]]) -> None:
    """Have the oldest comment say it, and then take the others away."""
    try:
        if first["body"] != body:
            api.change(f"issues/comments/{first['id']}", {"body": body})
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return
    for each in further:
        api.delete(f"issues/comments/{each['id']}")
