"""GitHub's interface for one repository: what is asked and told, and again where that is safe.

Knows requests and answers, nothing of benchmarks. The token is sent in a header and stands nowhere
else: in no error, no log.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pytest_remotegpu.bench.github.answers import (
    BROKEN,
    Answer,
    ApiError,
    NotSureError,
    pause_before,
    read_object,
    read_objects,
    say_why,
    take,
)

__all__ = ["Api", "ApiError", "NotSureError", "open_api"]

SECONDS: Final = 20.0
"""For one answer."""
TRIES: Final = 4
PATIENCE: Final = 60.0
"""In all, in seconds, for waits between tries of one request."""
PER_PAGE: Final = 100
PAGES: Final = 100


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token would go along to wherever that leads."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


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
        return read_object(path, self._send("GET", path, query))

    def list(self, path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        """Read all objects of a list, page after page.

        :raises ApiError: where a page can't be had, or is none.
        """
        for number in range(1, PAGES + 1):
            answer = self._send("GET", path, {**query, "per_page": PER_PAGE, "page": number})
            yield from read_objects(path, answer)
            if 'rel="next"' not in answer.headers.get("link", ""):
                return
        raise ApiError(f"GET {path}: there are more than {PAGES * PER_PAGE}, and not all were read")

    def first(self, path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        """Read the objects of a list's first page.

        :raises ApiError: where it can't be had, or is none.
        """
        yield from read_objects(path, self._send("GET", path, query))

    def change(self, path: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """Change what is there (PATCH); told twice, it is as told once.

        :raises ApiError: where it may be as it was.
        """
        return read_object(path, self._send("PATCH", path, told=told))

    def make(self, path: str, told: Mapping[str, Any], *, again: bool = False) -> dict[str, Any]:
        """Make something (POST).

        :param again: whether making it twice does no harm, so that it may be tried again.
        :raises NotSureError: where it may have been made, or not.
        :raises ApiError: where it was not made.
        """
        return read_object(path, self._send("POST", path, told=told, again=again))

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
            pause = pause_before(answer, tried, again=again)
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
        return answer, say_why(answer)

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
                return take(answer.status, answer)
        except urllib.error.HTTPError as error:
            with error:
                return take(error.code, error)
