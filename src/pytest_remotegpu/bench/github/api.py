"""GitHub's interface for one repository: what is asked and told, and again where that is safe.

Knows requests and answers, nothing of benchmarks. The token is sent in a header and stands nowhere
else: in no error, no log.
"""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_remotegpu.errors import RemoteGpuError

__all__ = ["Api", "ApiError", "NotSureError", "open_api"]

SECONDS: Final = 20.0
"""For one answer."""
TRIES: Final = 4
PATIENCE: Final = 60.0
"""In all, in seconds, for waits between tries of one request."""
PER_PAGE: Final = 100
PAGES: Final = 100
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


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token would go along to wherever that leads."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. :ivar status: of HTTP. :ivar headers: in small letters. :ivar body: JSON."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def open_api(environ: Mapping[str, str], wait: Callable[[float], None] = time.sleep) -> Api:
    """Make the interface from what a job is told.

    :raises ApiError: where GITHUB_API_URL, GITHUB_REPOSITORY or GITHUB_TOKEN can't be right.
    """
    url, token = environ.get("GITHUB_API_URL", ""), environ.get("GITHUB_TOKEN", "")
    repository = environ.get("GITHUB_REPOSITORY", "")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname != "127.0.0.1":
        raise ApiError(f"GITHUB_API_URL is {url!r}; https is wanted")
    if not token:
        raise ApiError("GITHUB_TOKEN is empty; pass the job's own token")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ApiError("GITHUB_TOKEN has a space, a line end or worse in it; pass the token alone")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise ApiError(f"GITHUB_REPOSITORY is {repository!r}; OWNER/NAME is wanted")
    return Api(url, repository, token, wait)


class Api:
    """The interface.

    :param url: where it is. :param repository: as in ``owner/name``. :param token: for the header.
    :param wait: lets so many seconds pass.
    """

    def __init__(
        self, url: str, repository: str, token: str, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.repository = repository
        self._base = f"{url.rstrip('/')}/repos/{urllib.parse.quote(repository)}"
        self._headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "User-Agent": "pytest-remotegpu",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        self._opener = urllib.request.build_opener(_Stay)
        self._wait = wait

    @property
    def owner(self) -> str:
        """Whose the repository is."""
        return self.repository.partition("/")[0]

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """Read an object.

        :param path: below the repository; :func:`urllib.parse.quote` what is not known.
        :raises ApiError: where there is none.
        """
        return _object(path, self._send("GET", path, query))

    def list(self, path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        """Read all objects of a list, page after page.

        :raises ApiError: where a page can't be had, or is none.
        """
        for number in range(1, PAGES + 1):
            answer = self._send("GET", path, {**query, "per_page": PER_PAGE, "page": number})
            yield from _objects(path, answer)
            if 'rel="next"' not in answer.headers.get("link", ""):
                return
        raise ApiError(f"GET {path}: there are more than {PAGES * PER_PAGE}, and not all were read")

    def first(self, path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        """Read the objects of a list's first page.

        :raises ApiError: where it can't be had, or is none.
        """
        yield from _objects(path, self._send("GET", path, query))

    def change(self, path: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """Change what is there (PATCH); told twice, it is as told once.

        :raises ApiError: where it may be as it was.
        """
        return _object(path, self._send("PATCH", path, told=told))

    def make(self, path: str, told: Mapping[str, Any], *, again: bool = False) -> dict[str, Any]:
        """Make something (POST).

        :param again: whether making it twice does no harm, so that it may be tried again.
        :raises NotSureError: where it may have been made, or not.
        :raises ApiError: where it was not made.
        """
        return _object(path, self._send("POST", path, told=told, again=again))

    def delete(self, path: str) -> bool:
        """Delete something, and say whether it was there.

        :raises ApiError: where it may be there still.
        """
        try:
            self._send("DELETE", path)
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return False
            raise
        return True

    def pause(self, tried: int) -> None:
        """Wait before something is tried again, the longer the more often it was tried."""
        self._wait(2.0 ** (tried - 1))

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        told: Mapping[str, Any] | None = None,
        *,
        again: bool = True,
    ) -> Answer:
        """Ask, and ask again for as long as that is safe and may help."""
        waited, tried = 0.0, 0
        while True:
            tried += 1
            answer, why = self._tried(method, path, query, told)
            if answer is not None and answer.status < http.client.MULTIPLE_CHOICES:
                return answer
            pause = _pause(answer, tried, again=again)
            if pause is None or tried == TRIES or waited + pause > PATIENCE:
                break
            self._wait(pause)
            waited += pause
        status = answer.status if answer else 0
        unsure = not again and not 0 < status < BROKEN
        raise (NotSureError if unsure else ApiError)(f"{method} {path}: {why}", status)

    def _tried(self, *asked: Any) -> tuple[Answer | None, str]:
        """Ask once; give the answer, or none, and what is wrong."""
        try:
            answer = self._once(*asked)
        except (OSError, http.client.HTTPException) as error:
            return None, f"GitHub can't be asked ({error})"
        return answer, _why(answer)

    def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None,
        told: Mapping[str, Any] | None,
    ) -> Answer:
        tail = f"?{urllib.parse.urlencode(query)}" if query else ""
        more = {} if told is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 -- open_api() has looked at the scheme
            f"{self._base}/{path}{tail}",
            data=None if told is None else json.dumps(told).encode(),
            headers={**self._headers, **more},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                return Answer(answer.status, _headers(answer), _body(answer))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _headers(error), _body(error))


def _headers(answer: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _body(answer: Any) -> bytes:
    body: bytes = answer.read(LONGEST + 1)
    if len(body) > LONGEST:
        raise http.client.HTTPException(f"the answer is longer than {LONGEST} bytes")
    return body


def _pause(answer: Answer | None, tried: int, *, again: bool) -> float | None:
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


def _why(answer: Answer) -> str:
    """Say what GitHub answered, in its own words where it has some, and the way out."""
    if http.client.MULTIPLE_CHOICES <= answer.status < http.client.BAD_REQUEST:
        return f"GitHub answered {answer.status}, the repository has moved; nothing was followed"
    words = _words(answer.body)
    advice = ADVICE.get(answer.status)
    limited = answer.status in BUSY and _pause(answer, 1, again=True) is not None
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


def _object(path: str, answer: Answer) -> dict[str, Any]:
    found = _parsed(path, answer)
    if not isinstance(found, dict):
        raise ApiError(f"{path}: GitHub's answer is no object", answer.status)
    return found


def _objects(path: str, answer: Answer) -> Iterator[dict[str, Any]]:
    page = _parsed(path, answer)
    if not isinstance(page, list) or not all(isinstance(each, dict) for each in page):
        raise ApiError(f"{path}: GitHub's answer is no list of objects", answer.status)
    yield from page
