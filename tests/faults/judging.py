"""Judges a session by what it has written: is each test there once, is all said, is it whole.

Values in, complaints out; knows pytest's output and its junit files, no process.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from .kinds import Expected

__all__ = ["Result", "complaints"]

RESULT: Final = re.compile(
    r"^(?:\S+ )?(\S+\.py::\S+) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE
)
IN_JUNIT: Final = {
    "PASSED": "passed", "FAILED": "failure", "ERROR": "error", "PASSED ERROR": "error",
}  # fmt: skip
BAD_USAGE: Final = 4
"""The exit status of a session that has no results."""


@dataclass(frozen=True)
class Result:
    """A session that has ended.

    :ivar status: ``None`` where it had not ended in time. :ivar text: what it wrote on stdout.
    :ivar errors: on stderr. :ivar path: its project, beside which its junit file lies.
    :ivar readable: whether ``text`` holds the verdicts.
    """

    status: int | None
    text: str
    errors: str
    path: Path
    readable: bool = True


def complaints(result: Result, expected: Expected) -> list[str]:
    """Say in what a session is not as it must be."""
    found = []
    said = result.text + result.errors
    if result.status is None:
        found.append("it has not ended in time")
    elif result.status not in expected.status:
        found.append(f"its exit status is {result.status}, and should be one of {expected.status}")
    found += _wrong_verdicts(result, expected)
    found += [f"it does not say {words!r}" for words in expected.says if not _has(words, said)]
    found += [f"it says {words!r}" for words in expected.never if _has(words, said)]
    for name, (least, most) in expected.lines.items():
        number = _lines(result.path / name)
        if not least <= number <= most:
            found.append(f"{name} has {number} lines, and should have {least} to {most}")
    if expected.reports and result.status not in (None, BAD_USAGE):
        found += ["it says INTERNALERROR"] if "INTERNALERROR>" in said else []
        found += ["it ends with a traceback"] if _uncaught(result.errors) else []
        found += _incomplete(result)
    return found


def _uncaught(errors: str) -> bool:
    """Say whether a traceback is there that Python did not announce as one that it ignored.

    Such a one is the project's own: with ``-s`` its exit handlers write to our stderr.
    """
    ignored = re.compile(r"^Exception ignored in.*\nTraceback \(", re.MULTILINE)
    return "Traceback (" in ignored.sub("", errors)


def _has(words: str, text: str) -> bool:
    return re.search(words, text, re.MULTILINE) is not None


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def _verdicts(text: str) -> dict[str, str]:
    """Read the verdict of each test from what ``-v`` has written."""
    found: dict[str, list[str]] = {}
    for id, word in RESULT.findall(text):
        found.setdefault(id, []).append(word)
    return {id: " ".join(words) for id, words in found.items()}


def _junit(result: Result) -> Counter[tuple[str, str]]:
    """Read the tests of the junit file, each with its outcome."""
    found: Counter[tuple[str, str]] = Counter()
    path = result.path.parent / "j.xml"
    if not path.exists():
        return found
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314 -- pytest has written it here
        tags = {child.tag for child in case}
        outcome = next((tag for tag in ("error", "failure", "skipped") if tag in tags), "passed")
        if case.get("classname"):  # else it stands for a file, or a test that was cut short
            file = case.get("classname", "").replace(".", "/")
            found[f"{file}.py::{case.get('name')}", outcome] += 1
    return found


def _wrong_verdicts(result: Result, expected: Expected) -> list[str]:
    """Compare the tests with those that there should be; by the file where nothing else shows."""
    seen = _verdicts(result.text)
    wanted = expected.verdicts
    if not result.readable:
        seen = dict(iter(_junit(result)))
        wanted = {
            id: tuple(IN_JUNIT.get(verdict, "") for verdict in allowed)
            for id, allowed in wanted.items()
        }
    found = [f"{id} is there" for id in seen if id not in wanted]
    for id, allowed in wanted.items():
        if seen.get(id, "") not in allowed:
            found.append(f"{id} is {seen.get(id, '')!r}, and should be one of {allowed}")
    return found


def _incomplete(result: Result) -> list[str]:
    """Compare what the terminal, the junit file and the exit status say."""
    written = _junit(result)
    outcomes = {outcome for _, outcome in written}
    found = [f"{id} is there {n} times" for (id, _), n in written.items() if n > 1]
    if result.readable:
        seen = _verdicts(result.text)
        wanted = Counter((id, IN_JUNIT.get(verdict, verdict)) for id, verdict in seen.items())
        if written != wanted:
            found.append(f"junit has {sorted((written - wanted).elements())} too much")
            found.append(f"junit lacks {sorted((wanted - written).elements())}")
    if result.status == 0 and outcomes - {"passed"}:
        found.append(f"it is green with {outcomes}")
    return found
