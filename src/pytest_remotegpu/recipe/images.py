"""Base images: which Python they have, and what a Dockerfile copies.

Reads texts; pulls and builds nothing, and looks into no folder.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe.literals import has_password, is_confidential, secret_assignments

__all__ = ["Dockerfile", "given_away", "has_python", "python_of"]

BARE: Final = re.compile(
    r"(nvidia/cuda|nvidia/driver|ubuntu|debian|fedora|rockylinux|almalinux|amazonlinux"
    r"|buildpack-deps)"
)
"""Images of distributions, and of CUDA on them: whatever Python they have is not meant for use."""
WITH_PYTHON: Final = re.compile(r"(python|pytorch/pytorch|tensorflow/tensorflow|nvidia/(?!cuda).+)")
HUB: Final = re.compile(r"(docker\.io|index\.docker\.io|registry-1\.docker\.io|nvcr\.io)/")
INSTALLS: Final = re.compile(r"\b(pip3?|uv|conda|mamba|micromamba|python3?(\.\d+)?|pyenv)\b")
ESCAPE: Final = re.compile(r"#\s*escape\s*=\s*`", re.IGNORECASE)
ARGUMENT: Final = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


def _repository(reference: str) -> str:
    """Give an image's name without registry, tag and digest, as far as it is well known."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = head + slash + last.partition(":")[0]
    return HUB.sub("", name).removeprefix("library/")


def python_of(reference: str) -> str:
    """Give the Python's major and minor version that an image's name tells; empty where none."""
    if _repository(reference) != "python":
        return ""
    tag = reference.partition("@")[0].rpartition("/")[2].partition(":")[2]
    match = re.match(r"(\d+\.\d+)(?![\d])", tag)
    return match[1] if match else ""


def has_python(reference: str) -> bool | None:
    """Say whether an image brings the Python to be used; ``None`` where its name does not tell."""
    name = _repository(reference)
    if BARE.fullmatch(name):
        return False
    return True if WITH_PYTHON.fullmatch(name) else None


@dataclass(frozen=True)
class Dockerfile:
    """What a Dockerfile says that matters here.

    :ivar base: the image that its last stage is built on. :ivar installs: whether a command of it
        has to do with Python. :ivar copies: paths and patterns that it copies from its context,
        each with the number of its line. :ivar secrets: what it gives away, likewise.
    """

    base: str
    installs: bool
    copies: tuple[tuple[int, str], ...]
    secrets: tuple[tuple[int, str], ...] = ()

    @classmethod
    def parse(cls, name: str, text: str) -> Dockerfile:
        """Read the file's text.

        :raises UsageError: where it builds on nothing.
        """
        stages: dict[str, str] = {}
        arguments: dict[str, str] = {}
        base, installs = "", False
        copies: list[tuple[int, str]] = []
        secrets: list[tuple[int, str]] = []
        for number, word, rest in _instructions(text):
            secrets += [(number, what) for what in given_away(word, rest)]
            if word == "ARG" and not base:
                key, _, value = rest.partition("=")
                arguments[key.strip()] = value.strip().strip("'\"")
            elif word == "FROM":
                base = _from(_filled(rest, arguments), stages)
            elif word == "RUN":
                installs = installs or bool(INSTALLS.search(rest))
            elif word in ("COPY", "ADD"):
                copies += [(number, path) for path in _copied(rest)]
        if not base:
            raise UsageError(
                f"{name} has no FROM, so it builds on nothing; begin it with FROM IMAGE, or have "
                "remotegpu_image name another file"
            )
        return cls(base, installs, tuple(copies), tuple(secrets))

    @property
    def has_python(self) -> bool:
        """Whether the image brings the Python to be used: only a bare one does not."""
        return has_python(self.base) is not False or self.installs


def given_away(word: str, rest: str) -> Iterator[str]:
    """Say what secrets an instruction has in it: variables by name, addresses as such."""
    if word in ("ENV", "ARG", "RUN", "LABEL"):
        yield from (f"sets {name}" for name in secret_assignments(rest))
    name, _, value = rest.partition(" ")
    if word == "ENV" and "=" not in name and is_confidential(name) and "$" not in value:
        yield f"sets {name}"
    if has_password(rest):
        yield "has an address with a password in it"


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    escape = "`" if ESCAPE.match(text) else "\\"
    kept, start, until = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if until:  # the inside of a here-document
            until = "" if line.strip() == until else until
            continue
        if line.lstrip().startswith("#") or (not line.strip() and kept):
            continue
        start = start if kept else number
        if line.rstrip().endswith(escape):
            kept += line.rstrip()[:-1] + " "
            continue
        word, _, rest = (kept + line).strip().partition(" ")
        kept = ""
        document = re.search(r"<<-?[\"']?(\w+)", rest)
        until = document[1] if document and word.upper() in ("RUN", "COPY", "ADD") else ""
        if word:
            yield start, word.upper(), rest.strip()


def _filled(text: str, arguments: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return arguments.get(match[1] or match[3]) or match[2] or ""

    return ARGUMENT.sub(value, text)


def _from(rest: str, stages: dict[str, str]) -> str:
    words = [word for word in rest.split() if not word.startswith("--")]
    image = words[0] if words else ""
    base = stages.get(image.lower(), image)
    if [word.upper() for word in words[1:2]] == ["AS"]:
        stages[words[-1].lower()] = base
    return base


def _copied(rest: str) -> list[str]:
    """Give the sources of a COPY or ADD that lie in its context."""
    words = rest.split()
    flags = [word for word in words if word.startswith("--")]
    if any(flag.startswith("--from") for flag in flags):
        return []
    rest = rest[rest.index(flags[-1]) + len(flags[-1]) :].strip() if flags else rest
    if rest.startswith("<<"):
        return []
    try:
        parts = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    except ValueError:
        return []
    sources = [str(part) for part in parts[:-1]]
    return [path for path in sources if not re.match(r"[a-z]+://|git@|<<", path)]
