"""Takes pytest's terminal output apart into what can be compared without the order of results.

It knows pytest's layout only: separator lines, failure blocks, the warnings summary.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from .normal import Place, left_out, without_progress

TITLE = re.compile(r"^=+ (?P<title>\S.*\S|\S) =+$")
BLOCK = re.compile(r"^_+ (?P<title>\S.*) _+$")
FILES = re.compile(r"^-+ (?P<title>generated .*) -+$")
DOTS = re.compile(r"^(?P<file>\S+\.\w+ )?(?P<letters>[.,FEsxXRuy-]+)$")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
QUIET = re.compile(r"^(?:\d+ [a-z]+|no tests ran).* in <t>$")
START = "test session starts"
FULL_WIDTH = 100
# A separator line loses some of its length when what it says is normalised.
NEARLY_FULL = 60


@dataclass(frozen=True)
class Terminal:
    """The parts of one terminal output, each part counted so that order plays no role.

    Attributes:
        header: lines above the first result.
        progress: lines among the results, percentages taken away.
        letters: per file, the sorted result letters of the terse display.
        sections: per titled section, its blocks (failures, warnings) or lines (all others).
        closing: the titles without content, which includes the last line with the counts.
    """

    header: Counter[str] = field(default_factory=Counter)
    progress: Counter[str] = field(default_factory=Counter)
    letters: dict[str, str] = field(default_factory=dict)
    sections: dict[str, Counter[str]] = field(default_factory=dict)
    closing: Counter[str] = field(default_factory=Counter)


def is_separator(line: str, pattern: re.Pattern[str]) -> str | None:
    """Give the title of a separator line that about spans the screen, else None."""
    line = COLOUR.sub("", line)
    found = pattern.match(line) if len(line) >= NEARLY_FULL else None
    return None if found is None else found["title"]


def written_file(line: str) -> str | None:
    """Give the line that names a file which was written; its length depends on the path."""
    found = FILES.match(COLOUR.sub("", line))
    return None if found is None else found["title"]


def quiet_count(line: str) -> str | None:
    """Give the last line of a terse run, which is no separator, else None."""
    return line if QUIET.match(COLOUR.sub("", line)) else None


def split(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Cut the output at its titled lines."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in lines:
        title = is_separator(line, TITLE) or written_file(line) or quiet_count(line)
        if title is None:
            parts[-1][1].append(line)
        else:
            parts.append((title, []))
    return parts


def failure_blocks(lines: list[str]) -> Counter[str]:
    """Count the blocks of a FAILURES-like section, each with its title; without titles, lines."""
    if not any(is_separator(line, BLOCK) for line in lines):
        return Counter(line for line in lines if line.strip())
    blocks: list[list[str]] = [[]]
    for line in lines:
        if is_separator(line, BLOCK) is not None:
            blocks.append([])
        blocks[-1].append(line)
    return Counter("\n".join(block) for block in blocks if any(block))


def warning_blocks(lines: list[str]) -> Counter[str]:
    """Count the entries of the warnings summary; the tests named above an entry are sorted."""
    entries = "\n".join(lines).split("\n\n")
    return Counter("\n".join(sorted_head(entry.splitlines())) for entry in entries if entry.strip())


def sorted_head(lines: list[str]) -> list[str]:
    """Sort the leading unindented lines."""
    head = next((n for n, line in enumerate(lines) if line.startswith(" ")), len(lines))
    return sorted(lines[:head]) + lines[head:]


def section(title: str, lines: list[str]) -> Counter[str]:
    """Count a section's parts."""
    if title in {"FAILURES", "ERRORS", "PASSES", "XFAILURES", "XPASSES"}:
        return failure_blocks(lines)
    if title.startswith("warnings summary"):
        return warning_blocks(lines)
    return Counter(line for line in lines if line.strip())


def split_results(lines: list[str]) -> tuple[list[str], list[str]]:
    """Cut the first section after the line that counts the collected tests."""
    ends = [n for n, line in enumerate(lines) if COLOUR.sub("", line).startswith("collect")]
    cut = ends[-1] + 1 if ends else 0
    return lines[:cut], [without_progress(line) for line in lines[cut:] if line.strip()]


def is_result(line: str) -> bool:
    """Tell whether a line among the results is to be compared as it is."""
    return not DOTS.match(line) and not left_out(Place.HEADER_LINE, line)


def letters(lines: list[str]) -> dict[str, str]:
    """Join the terse display's letters per file."""
    joined: dict[str, str] = {}
    for found in filter(None, map(DOTS.match, lines)):
        name = (found["file"] or "").strip()
        joined[name] = "".join(sorted(joined.get(name, "") + found["letters"]))
    return joined


def parse(output: str) -> Terminal:
    """Take a whole output apart; sections that the table leaves out are dropped."""
    result = Terminal()
    for title, lines in split(output.split("\n")):
        if left_out(Place.TERMINAL_SECTION, title):
            continue
        if title in ("", START):
            head, rest = split_results(lines)
            result.header.update(x for x in head if x and not left_out(Place.HEADER_LINE, x))
            result.progress.update(line for line in rest if is_result(line))
            result.letters.update(letters(rest))
        elif content := section(title, lines):
            result.sections[title] = result.sections.get(title, Counter()) + content
        else:
            result.closing[title] += 1
    return result
