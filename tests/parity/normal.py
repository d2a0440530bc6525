"""The one table of what may differ between two runs, and how it is made equal.

Everything that is not named here must be the same. It must not know where the texts come from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any


class Place(Enum):
    """Where a rule applies."""

    TEXT = "any text: replaced by the replacement"
    JUNIT_ATTRIBUTE = "an attribute of a junit element: left out"
    JUNIT_PROPERTY = "a junit property: left out"
    HEADER_LINE = "a line above or among the results: left out"
    PROGRESS_LINE = "a part of a line among the results: taken away"
    TERMINAL_SECTION = "a titled section of the terminal output: left out"
    USER_PROPERTY = "a user property of a report: left out"
    REPORT_ATTRIBUTE = "a further attribute on a report: left out"


@dataclass(frozen=True)
class Rule:
    """One thing that may differ.

    `pattern` is a regular expression, searched in texts and matched whole elsewhere; `{root}` in it
    stands for the folder that holds one run's copy of the project.
    """

    name: str
    place: Place
    pattern: str
    replacement: str = ""


# Each part has to begin with a slash: a long line without one must not cost its length squared.
TEMPORARY = r"(?:<root>)?(?:/[\w.-]+)*?/pytest-of-[^/\s'\"]+/[^/\s'\"]+"

# What `-v` writes at once, in bold where there are colours.
COLLECTING = r"(?:\x1b\[1m|\b)collecting \.\.\. ?(?:\x1b\[0m)?"

NORMALISED: tuple[Rule, ...] = (
    Rule("the copy's folder", Place.TEXT, r"{root}", "<root>"),
    Rule("temporary paths", Place.TEXT, TEMPORARY, "<tmp>"),
    Rule(
        "a process of pytest-xdist may have far ones",
        Place.TEXT,
        r"(<tmp>/popen-gw\d+)-local-gw\d+-\d+",
        r"\1",
    ),
    Rule("addresses", Place.TEXT, r"\b0x[0-9a-fA-F]{6,16}\b", "<address>"),
    Rule(
        "durations in a line",
        Place.TEXT,
        r"\b\d+\.\d\d(?:\d*)s(?= (?:call|setup|teardown) )",
        "<t>",
    ),
    Rule("total duration", Place.TEXT, r"\bin \d+\.\d\ds(?: \(\d+:\d\d:\d\d\))?", "in <t>"),
    Rule(
        "timestamps",
        Place.TEXT,
        r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(?:[+-]\d\d:\d\d|Z)?",
        "<when>",
    ),
    Rule("age of the cache", Place.TEXT, r"\bcache from \d+:\d\d:\d\d ago", "cache from <t> ago"),
    Rule("pids", Place.TEXT, r"\bpid[ =:]+\d+", "pid <pid>"),
    Rule("progress", Place.PROGRESS_LINE, r"\s*(?:\x1b\[[\d;]*m)*\s*\[\s*\d+%\](?:\x1b\[[\d;]*m)*"),
    Rule("junit durations", Place.JUNIT_ATTRIBUTE, r"time"),
    Rule("junit timestamps", Place.JUNIT_ATTRIBUTE, r"timestamp"),
    Rule("junit hostname", Place.JUNIT_ATTRIBUTE, r"hostname"),
    Rule("our junit properties", Place.JUNIT_PROPERTY, r"remotegpu.*"),
    Rule("our user properties", Place.USER_PROPERTY, r"remotegpu.*"),
    # a process of pytest-xdist writes to the stream that the session writes its lines to in pieces
    Rule("our line within another", Place.TEXT, r"(?<=items\])remote: .*", ""),
    # pytest ends that line itself where nothing is written meanwhile; here a machine may be built
    Rule("collection goes on", Place.TEXT, rf"{COLLECTING}(?=collected )", ""),
    Rule("collection begins", Place.HEADER_LINE, COLLECTING),
    # a plain run has one host only: no other can lack what it has
    Rule(
        "what another host lacks",
        Place.TEXT,
        r"\nhost lacks: [^\n]+\n(?:add|on the far side:) [^\n]+",
        "",
    ),
    Rule("our lines", Place.HEADER_LINE, r"remote: .*"),
    Rule("our summary", Place.TERMINAL_SECTION, r"remote summary"),
    Rule("pytest's own report attributes", Place.REPORT_ATTRIBUTE, r"_.*|\$report_type"),
    Rule(
        "our report attributes", Place.REPORT_ATTRIBUTE, r"node|worker_id|testrun_uid|remotegpu.*"
    ),
)


def replaced(value: str, roots: tuple[str, ...]) -> str:
    """Apply the rules for texts."""
    for rule in NORMALISED:
        if rule.place is Place.TEXT:
            for root in roots if "{root}" in rule.pattern else ("",):
                value = re.sub(rule.pattern.replace("{root}", root), rule.replacement, value)
    return value


# Node ids and keywords come again in each report.
LONG = 500
replaced_before = lru_cache(maxsize=10_000)(replaced)


@dataclass(frozen=True)
class Normaliser:
    """Applies the table to the results of one run.

    Attributes:
        roots: regular expressions of the folders that hold the project in that run.
    """

    roots: tuple[str, ...]

    def text(self, value: str) -> str:
        """Replace in a text what may differ."""
        if len(value) > LONG:
            return replaced(value, self.roots)
        return replaced_before(value, self.roots)

    def data(self, value: Any) -> Any:
        """Replace what may differ in every text of JSON-like data."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.data(part) for part in value]
            case dict():
                return {self.text(key): self.data(part) for key, part in value.items()}
            case _:
                return value


def left_out(place: Place, name: str) -> bool:
    """Tell whether the table leaves out the named thing at this place."""
    return any(r.place is place and re.fullmatch(r.pattern, name) for r in NORMALISED)


def without_progress(line: str) -> str:
    """Take away the parts of a line among the results that the table names."""
    for rule in NORMALISED:
        if rule.place is Place.PROGRESS_LINE:
            line = re.sub(rule.pattern, rule.replacement, line)
    return line
