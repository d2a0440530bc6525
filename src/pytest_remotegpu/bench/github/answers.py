"""GitHub's answers: what they hold, whether asking again may help, what went wrong."""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_remotegpu.errors import RemoteGpuError

__all__ = [
    "BROKEN",
    "Answer",
    "ApiError",
    "NotSureError",
    "pause_before",
    "read_object",
    "read_objects",
    "say_why",
    "take",
]

LONGEST: Final = 10 * 2**20
"""Of an answer, in bytes."""
SAID: Final = 300
"""Of GitHub's own words, in signs."""
BUSY: Final = (http.client.FORBIDDEN, http.client.TOO_MANY_REQUESTS)
BROKEN: Final = 500
ADVICE: Final = {
    401: "the token is not taken; pass the job's own in GITHUB_TOKEN",
    403: "the job's `permissions` may lack one",
    404: "it is not there, or the token may not see it",
}


class ApiError(RemoteGpuError):
    """Raised where GitHub has not done what it was asked to.

    :ivar status: the HTTP status; 0 where there was no answer.
    """

    def __init__(self, what: str, status: int = 0) -> None:
        super().__init__(what)
        self.status = status


class NotSureError(ApiError):
    """Raised where it is not known whether something was made, so that one has to look."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. :ivar status: of HTTP. :ivar headers: in small letters. :ivar body: JSON."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def take(status: int, answer: Any) -> Answer:
    """Take an answer of urllib's.

    :raises http.client.HTTPException: where it is too long.
    """
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Answer(status, headers, _body(answer))


def _body(answer: Any) -> bytes:
    body: bytes = answer.read(LONGEST + 1)
    if len(body) > LONGEST:
        raise http.client.HTTPException(f"the answer is longer than {LONGEST} bytes")
    return body


def pause_before(answer: Answer | None, tried: int, *, again: bool) -> float | None:
    """Say how many seconds to wait before another try; ``None`` for no other try."""
    after = 2.0 ** (tried - 1)
    if answer is None or answer.status >= BROKEN:
        return after if again else None
    if answer.status not in BUSY:
        return None
    told = _number(answer.headers.get("retry-after"))
    if told is not None:
        return told
    if answer.headers.get("x-ratelimit-remaining") == "0":
        reset = _number(answer.headers.get("x-ratelimit-reset"))
        return after if reset is None else max(reset - time.time(), 0.0) + 1
    if answer.status == http.client.TOO_MANY_REQUESTS or b"rate limit" in answer.body:
        return after
    return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def say_why(answer: Answer) -> str:
    """Say what GitHub answered, in its own words where it has some, and the way out."""
    if http.client.MULTIPLE_CHOICES <= answer.status < http.client.BAD_REQUEST:
        return f"GitHub answered {answer.status}, the repository has moved; nothing was followed"
    words = _words(answer.body)
    advice = ADVICE.get(answer.status)
    limited = answer.status in BUSY and pause_before(answer, 1, again=True) is not None
    if limited:
        advice = "its rate limit is used up; run the job again later"
    told = f" ({words})" if words else ""
    return f"GitHub answered {answer.status}{told}{f'; {advice}' if advice else ''}"


def _words(body: bytes) -> str:
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(said, dict):
        return ""
    errors = said.get("errors")
    parts = [said.get("message"), *(errors if isinstance(errors, list) else [])]
    texts = [each.get("message") if isinstance(each, dict) else each for each in parts]
    joined = "; ".join(text for text in texts if isinstance(text, str))
    return "".join(sign if sign.isprintable() else " " for sign in joined)[:SAID]


def _parsed(path: str, answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise ApiError(f"{path}: GitHub's answer is not JSON", answer.status) from error


def read_object(path: str, answer: Answer) -> dict[str, Any]:
    """Read an object.

    :raises ApiError: where the answer is anything else.
    """
    found = _parsed(path, answer)
    if not isinstance(found, dict):
        raise ApiError(f"{path}: GitHub's answer is no object", answer.status)
    return found


def read_objects(path: str, answer: Answer) -> Iterator[dict[str, Any]]:
    """Read a list of objects.

    :raises ApiError: where the answer is anything else.
    """
    page = _parsed(path, answer)
    if not isinstance(page, list) or not all(isinstance(each, dict) for each in page):
        raise ApiError(f"{path}: GitHub's answer is no list of objects", answer.status)
    yield from page
