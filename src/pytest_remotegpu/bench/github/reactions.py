"""The one reaction of ours to a comment: seen, done, or not done."""

from __future__ import annotations

from typing import Final

from pytest_remotegpu.bench.github.api import Api
from pytest_remotegpu.bench.github.runner import number_at

__all__ = ["OURS", "react"]

OURS: Final = ("eyes", "rocket", "confused")


def react(api: Api, comment: int, content: str, login: str) -> None:
    """React to a comment, and take our other reactions back.

    :param content: one of :data:`OURS`. :param login: whose reactions are ours.
    :raises ApiError: where it may look otherwise.
    """
    if content not in OURS:
        raise ValueError(f"{content!r} is none of {OURS}")
    path = f"issues/comments/{comment}/reactions"
    api.make(path, {"content": content}, again=True)  # a second one of the same kind is the first
    for each in list(api.list(path)):
        user = each.get("user")
        mine = isinstance(user, dict) and user.get("login") == login
        if mine and each.get("content") in OURS and each["content"] != content:
            api.delete(f"{path}/{number_at(each, 'id')}")
