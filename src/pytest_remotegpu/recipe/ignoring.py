"""``.dockerignore``: which files of its context a Dockerfile can't copy.

Reads one such file, given as text, by Docker's rules.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

__all__ = ["NAME", "Ignored"]

NAME: Final = ".dockerignore"
_PART: Final = re.compile(r"\*\*/?|\*|\?|\[[^\]]+\]|\\.|.")


@dataclass(frozen=True)
class Ignored:
    """What such a file says.

    :ivar rules: patterns, each with whether it ignores; the last one that fits counts.
    """

    rules: tuple[tuple[re.Pattern[str], bool], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Ignored:
        """Read the file's text; lines that are no patterns are left out, as Docker does."""
        rules = []
        for line in text.removeprefix("\ufeff").splitlines():
            word = line.strip()
            if line.startswith("#") or not word:
                continue
            negated = word.startswith("!")
            pattern = os.path.normpath(word[negated:].strip() or ".").lstrip("/")
            if pattern not in ("", "."):
                rules.append((_compiled(pattern), not negated))
        return cls(tuple(rules))

    def has(self, path: str) -> bool:
        """Say whether a file is left out, itself or with a folder that it lies in.

        :param path: from the context, with ``/``.
        """
        inner = PurePosixPath(path)
        places = [str(inner), *(str(above) for above in inner.parents if above.name)]
        ignored = False
        for pattern, ignores in self.rules:
            if ignores is not ignored and any(map(pattern.fullmatch, places)):
                ignored = ignores
        return ignored


def _compiled(pattern: str) -> re.Pattern[str]:
    text = "".join(map(_translated, _PART.findall(pattern)))
    try:
        return re.compile(text)
    except re.error:
        return re.compile(re.escape(pattern))


def _translated(part: str) -> str:
    if part == "**/":
        return "(?:.*/)?"
    if part == "**":
        return ".*"
    if part == "*":
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part.startswith("[") and len(part) > 1:
        return part
    return re.escape(part[1:] if len(part) > 1 else part)
