"""What a job is told, and tells its runner: the event, outputs, annotations, the page of the run.

No text can become an output, a command or markup of its own.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.errors import RemoteGpuError

__all__ = [
    "RunnerError",
    "annotation",
    "code",
    "number_at",
    "order",
    "read_event",
    "text_at",
    "write_outputs",
    "write_page",
]

LONGEST: Final = 120
"""Of a text of others in a cell, in signs."""
MARKUP: Final = {ord(sign): f"&#{ord(sign)};" for sign in string.punctuation}


class RunnerError(RemoteGpuError):
    """Raised where what the runner tells can't be right."""


def read_event(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the event that the job was started by.

    :raises RunnerError: where there is none.
    """
    path = environ.get("GITHUB_EVENT_PATH", "")
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunnerError(f"the event can't be read from {path!r} ({error})") from error
    if not isinstance(event, dict):
        raise RunnerError("the event is no object")
    return event


def text_at(data: Any, *keys: str) -> str:
    """Give the text that stands there.

    :raises RunnerError: where there is none; nothing else will do.
    """
    value = data
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, str) or not value:
        raise RunnerError(f"{'.'.join(keys)} is {value!r}, which can't be right")
    return value


def number_at(data: Mapping[str, Any], key: str) -> int:
    """Give the positive whole number that stands there.

    :raises RunnerError: where there is none.
    """
    value = data.get(key)
    if type(value) is not int or value < 1:
        raise RunnerError(f"{key} is {value!r}, which can't be right")
    return value


def order(environ: Mapping[str, str]) -> tuple[int, int]:
    """Give the run and its attempt, which grow with each.

    :raises RunnerError: where they are no numbers.
    """
    found = []
    for name in ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"):
        text = environ.get(name, "")
        if not re.fullmatch("[0-9]{1,18}", text):
            raise RunnerError(f"{name} is {text!r}; a number is wanted")
        found.append(int(text))
    return found[0], found[1]


def write_outputs(environ: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Append to the job's outputs, each between marks that no value can know.

    :raises RunnerError: where there is no file for them.
    """
    lines = []
    for name, value in outputs.items():
        mark = f"end-{secrets.token_hex(16)}"
        lines.append(f"{name}<<{mark}\n{value}\n{mark}\n")
    try:
        with Path(environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
    except (KeyError, OSError) as error:
        raise RunnerError(f"outputs can't be written ({error!r})") from error


def write_page(environ: Mapping[str, str], text: str) -> None:
    """Append to the run's page, where there is one."""
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def annotation(kind: str, text: str) -> str:
    r"""Write a command for the runner's log, in which no text can be a command of its own.

    >>> annotation("notice", "50 %\n::error::no")
    '::notice::50 %25%0A::error::no'
    """
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{kind}::{escaped}"


def code(value: object) -> str:
    r"""Write a text of others so that it is neither markup, nor a mention, nor a link, on one line.

    GitHub looks for mentions and links in what Markdown has become, but not inside of code.

    >>> code("<b>@ann|\n#1")
    '<code>&#60;b&#62;&#64;ann&#124; &#35;1</code>'
    """
    line = " ".join("".join(s if s.isprintable() else " " for s in str(value)).split())
    cut = line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
    return f"<code>{cut.translate(MARKUP)}</code>"
