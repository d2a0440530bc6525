"""Decide whether GPU tests may run for an event, and take the label away when new code arrives.

A label on a pull request says that whoever set it has read exactly the commit that was the head
then. So nothing runs but that commit, and only where who set the label may write to the repository.
What is not certain is a no: an answer of GitHub's interface that is missing, late or odd refuses
the run.

It reads the event and asks the interface. It must run from the base branch, with a token that can
read and nothing more (`judge`), or that may also write to pull requests (`disarm`). It knows
nothing of the project.

Usage: python .ci/gate.py judge|disarm

Reads GITHUB_API_URL, GITHUB_EVENT_NAME, GITHUB_EVENT_PATH, GITHUB_REPOSITORY, GITHUB_SHA and
GITHUB_TOKEN, and what was asked for in GPU, MARKERS, KEYWORDS and MAX_COST. `judge` appends
`allowed`, `sha`, `number`, `gpu`, `markers`, `keywords` and `max-cost` to the file GITHUB_OUTPUT.
Exit status: 0 for a decision, 1 for a refusal, 2 for a wrong call.
"""

import http.client
import json
import math
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

LABELS = ("gpu-tests", "modal-tests")
MAY_WRITE = ("admin", "write")
"""The interface tells `maintain` as `write`, `triage` as `read`, a custom role as its base."""
TRUSTED = ("schedule", "workflow_dispatch")
"""Events of which GitHub itself sees to it that they come from somebody who may write."""
SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9!+,-]{0,63}")
COST = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
LONGEST = 500
SECONDS = 20.0


class RefusedError(Exception):
    """The run is refused; the text says why, and what can be done."""


@dataclass(frozen=True)
class Verdict:
    """What comes of an event.

    :ivar run: whether tests may run. :ivar why: a sentence. :ivar sha: the commit to run.
    :ivar number: of the pull request; 0 where there is none.
    """

    run: bool
    why: str
    sha: str = ""
    number: int = 0


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token would go along to wherever that leads."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Api:
    """GitHub's interface, for one repository.

    :param url: where it is. :param repository: as in ``owner/name``. :param token: may be read from
        nowhere but the header that it is sent in.
    """

    def __init__(self, url: str, repository: str, token: str) -> None:
        self._base = f"{url.rstrip('/')}/repos/{repository}"
        self._headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "gpu-tests",
        }
        self._opener = urllib.request.build_opener(_Stay)

    def get(self, *path: str) -> dict[str, Any]:
        """Read an object.

        :raises RefusedError: where the answer is anything but one.
        """
        try:
            answer = json.loads(self._ask("GET", path))
        except urllib.error.HTTPError as error:
            raise RefusedError(f"{'/'.join(path)}: GitHub answered {error.code}") from error
        except ValueError as error:
            raise RefusedError(f"{'/'.join(path)}: GitHub's answer is not JSON") from error
        if not isinstance(answer, dict):
            raise RefusedError(f"{'/'.join(path)}: GitHub's answer is not an object")
        return answer

    def delete(self, *path: str) -> bool:
        """Delete a thing, and say whether it was there.

        :raises RefusedError: where it may be there still.
        """
        try:
            self._ask("DELETE", path)
        except urllib.error.HTTPError as error:
            if error.code == http.client.NOT_FOUND:
                return False
            raise RefusedError(f"{'/'.join(path)}: GitHub answered {error.code}") from error
        return True

    def _ask(self, method: str, path: tuple[str, ...]) -> bytes:
        tail = "/".join(urllib.parse.quote(part, safe="") for part in path)
        request = urllib.request.Request(  # noqa: S310 - main() has looked at the scheme
            f"{self._base}/{tail}", headers=self._headers, method=method
        )
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            error.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            raise RefusedError(f"{'/'.join(path)}: GitHub can't be asked ({error})") from error


def _odd(what: str, value: object) -> NoReturn:
    raise RefusedError(f"{what} is {value!r}, which can't be right")


def _text(data: Any, *keys: str) -> str:
    """Give the text that stands there in *data*; nothing else will do."""
    value = data
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else _odd(".".join(keys), value)


def _number(event: Mapping[str, Any]) -> int:
    pull = event.get("pull_request")
    number = pull.get("number") if isinstance(pull, dict) else None
    return number if type(number) is int and number > 0 else _odd("pull_request.number", number)


def _sha(value: str) -> str:
    return value if SHA.fullmatch(value) else _odd("the commit", value)


def judge_label(event: Mapping[str, Any], api: Api) -> Verdict:
    """Decide about a label that was set on a pull request.

    The head is asked for last, so that little time lies between the answer and the run.

    :raises RefusedError: where who set it may not, or the head is another one by now.
    """
    label = _text(event, "label", "name")
    if label not in LABELS:
        return Verdict(False, f"the label {label} is not about GPU tests")
    number = _number(event)
    sha = _sha(_text(event, "pull_request", "head", "sha"))
    login = _text(event, "sender", "login")
    answer = api.get("collaborators", login, "permission")
    if _text(answer, "user", "login").lower() != login.lower():
        raise RefusedError(f"GitHub was asked about {login} and spoke of somebody else")
    if (permission := _text(answer, "permission")) not in MAY_WRITE:
        raise RefusedError(
            f"{login} set the label {label} and has the permission {permission!r}; "
            "somebody who may write to the repository has to set it"
        )
    _check_pull(api.get("pulls", str(number)), sha, label)
    return Verdict(True, f"{login} set the label {label} at {sha}", sha, number)


def _check_pull(pull: Mapping[str, Any], sha: str, label: str) -> None:
    """Refuse a pull request that is not as it was when the label was set."""
    if (state := _text(pull, "state")) != "open":
        raise RefusedError(f"the pull request is {state}; open it again, and set the label anew")
    if (head := _text(pull, "head", "sha")) != sha:
        raise RefusedError(
            f"the label {label} was set at {sha}, and the head is {head} now; "
            "look at what is new, and set the label anew"
        )
    labels = pull.get("labels")
    if not isinstance(labels, list) or label not in [_text(each, "name") for each in labels]:
        raise RefusedError(f"the label {label} is gone again; set it anew")


def judge(name: str, event: Mapping[str, Any], sha: str, api: Api) -> Verdict:
    """Decide about an event.

    :param name: as in GITHUB_EVENT_NAME. :param sha: as in GITHUB_SHA, which is never a commit
        of a pull request.
    :raises RefusedError: where tests should run and must not.
    """
    if name in TRUSTED:
        return Verdict(True, f"{name} at {sha}", _sha(sha))
    if name != "pull_request_target":
        raise RefusedError(f"the event {name} is none that GPU tests run for")
    if (action := _text(event, "action")) != "labeled":
        return Verdict(False, f"{action} runs nothing; a label does")
    return judge_label(event, api)


def read_wishes(environ: Mapping[str, str]) -> dict[str, str]:
    """Read what was asked for, under the names of the outputs.

    :raises RefusedError: for what is not of the right form.
    """
    gpu, cost = environ.get("GPU", ""), environ.get("MAX_COST", "")
    if not GPU.fullmatch(gpu):
        raise RefusedError(f"GPU is {gpu!r}; a type of card is wanted, such as T4")
    if not COST.fullmatch(cost) or not 0 < float(cost) < math.inf:
        raise RefusedError(f"MAX_COST is {cost!r}; an amount in USD is wanted, such as 2.50")
    wishes = {"gpu": gpu, "max-cost": cost}
    for name in ("MARKERS", "KEYWORDS"):
        value = environ.get(name, "").strip()
        if not (value.isprintable() and len(value) <= LONGEST):
            raise RefusedError(f"{name} is {value!r}; a line of at most {LONGEST} signs is wanted")
        wishes[name.lower()] = value
    return wishes


def disarm(event: Mapping[str, Any], api: Api) -> list[str]:
    """Take the labels off a pull request, and return those that were there.

    All are tried, whatever the event says of them: one may have been set since.

    :raises RefusedError: where one may be there still.
    """
    number = str(_number(event))
    trouble, gone = [], []
    for label in LABELS:
        try:
            if api.delete("issues", number, "labels", label):
                gone.append(label)
        except RefusedError as error:
            trouble.append(str(error))
    if trouble:
        raise RefusedError("; ".join(trouble))
    return gone


def command(kind: str, text: str) -> str:
    r"""Write a command for the runner's log, in which no text can be a command of its own.

    >>> command("notice", "50 %\n::error::no")
    '::notice::50 %25%0A::error::no'
    """
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{kind}::{escaped}"


def _read_event(path: str) -> dict[str, Any]:
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RefusedError(f"the event can't be read from {path!r} ({error})") from error
    return event if isinstance(event, dict) else _odd("the event", event)


def _open_api(environ: Mapping[str, str]) -> Api:
    url, token = environ.get("GITHUB_API_URL", ""), environ.get("GITHUB_TOKEN", "")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname != "127.0.0.1":
        raise RefusedError(f"GITHUB_API_URL is {url!r}; https is wanted")
    if not token:
        raise RefusedError("GITHUB_TOKEN is empty; pass the job's own token")
    if not (token.isascii() and token.isprintable() and " " not in token):  # urllib would quote it
        raise RefusedError("GITHUB_TOKEN has a space, a line end or worse in it; pass it alone")
    return Api(url, environ.get("GITHUB_REPOSITORY", ""), token)


def _judge(event: Mapping[str, Any], api: Api, environ: Mapping[str, str]) -> str:
    name, sha = environ.get("GITHUB_EVENT_NAME", ""), environ.get("GITHUB_SHA", "")
    verdict = judge(name, event, sha, api)
    said = {"allowed": str(verdict.run).lower()}
    if verdict.run:
        said |= {"sha": verdict.sha, "number": str(verdict.number or ""), **read_wishes(environ)}
    with Path(environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{key}={value}\n" for key, value in said.items())
    return verdict.why


def main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Decide or disarm, say what came of it, and return the exit status."""
    if argv not in (["judge"], ["disarm"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        event = _read_event(environ.get("GITHUB_EVENT_PATH", ""))
        api = _open_api(environ)
        if argv == ["judge"]:
            why = _judge(event, api, environ)
        else:
            why = f"labels taken off: {', '.join(disarm(event, api)) or 'none was there'}"
    except RefusedError as error:
        print(command("error", f"refused: {error}"))
        return 1
    print(command("notice", why))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
