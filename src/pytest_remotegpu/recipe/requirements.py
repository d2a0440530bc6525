"""Requirements files, as pip reads them, with their includes in place.

Reads files below one folder; knows nothing of what becomes of them. A line that installs the
project's own code stands for what that code depends on, since the code itself travels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe.literals import WAY_OUT, has_password
from pytest_remotegpu.recipe.values import READS, Files

__all__ = ["Reader", "parsed", "read_text", "shown"]

MOST: Final = 16 * 2**20
"""Bytes that a file may have which is read here."""
VARIABLE: Final = re.compile(r"\$\{([A-Z0-9_]+)\}")
"""As pip has it: capitals only."""
COMMENT: Final = re.compile(r"(^|\s+)#.*$")
INCLUDE: Final = re.compile(r"(?:-r|--requirement)[\s=]*(\S.*)")
CONSTRAIN: Final = re.compile(r"(?:-c|--constraint)[\s=]*(\S.*)")
EDITABLE: Final = re.compile(r"(?:-e|--editable)[\s=]*(\S.*)")
FIND: Final = re.compile(r"(?:-f|--find-links)[\s=]*(\S.*)")
KEPT: Final = re.compile(
    r"(-i|--index-url|--extra-index-url|--pypi-url|--no-index|--no-binary|--only-binary"
    r"|--prefer-binary|--pre)\b"
)
DROPPED: Final = re.compile(r"(--trusted-host|--use-feature|--require-hashes)\b")
REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
PASSWORD: Final = re.compile(r"(://)[^/\s@]+@")
QUERY: Final = re.compile(r"(://[^\s?]*\?)[^\s#]+")
ENDS: Final = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz")


def shown(line: str) -> str:
    """Write a requirement or option so that it can be shown to anybody."""
    return QUERY.sub(r"\1...", PASSWORD.sub(r"\1...@", line))


def public(line: str, where: str) -> str:
    """Give a line back that is to be in an image.

    :raises UsageError: where it has a password in it.
    """
    if has_password(line):
        raise UsageError(
            f"{where}: {shown(line)!r} has a password in it, and {WAY_OUT}; write ${{NAME}} for "
            "it, in capitals, and env:NAME in remotegpu_secrets"
        )
    return line


def read_text(path: Path, shown: str) -> str:
    """Read a file of the project.

    :param shown: its name, for the message.
    :raises UsageError: where that is not possible.
    """
    try:
        if path.stat().st_size > MOST:
            raise UsageError(f"{shown} has more than {MOST >> 20} MiB and is no text to be read")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{shown} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is no text in UTF-8; save it as such") from None


def parsed(line: str) -> Requirement | None:
    """Read a requirement; ``None`` for an option, a path or an address."""
    text = re.split(r"\s--(?:hash|config-settings|global-option)\b", line, maxsplit=1)[0]
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


class Reader:
    """Reads requirements files and keeps what they ask for, in order.

    :param root: the project's folder.
    :param local: gives what the code in a folder, with these extras, depends on.
    :ivar notes: what the user should know.
    """

    def __init__(self, root: Path, local: Callable[[Path, frozenset[str]], list[str]]) -> None:
        self._root = root
        self._local = local
        self._sources: list[str] = []
        self._lines: list[str] = []
        self._constraints: list[str] = []
        self._seen: set[Path] = set()

    def add(self, source: str, lines: list[str]) -> None:
        """Take requirements that stand in no file of pip's.

        :raises UsageError: for one with a password in it.
        """
        self._sources.append(source)
        self._lines += [public(line, source) for line in lines]

    def read(self, path: str) -> None:
        """Read a file and all that it includes.

        :raises UsageError: for one that is not there, or a line that can't be meant.
        """
        self._read(self._root / path, self._lines, by="remotegpu_requirements")

    def result(self) -> Files:
        """Give all that was read."""
        lines = tuple(dict.fromkeys(self._lines))
        constraints = tuple(dict.fromkeys(self._constraints))
        found = {name for line in lines + constraints for name in VARIABLE.findall(line)}
        return Files(tuple(dict.fromkeys(self._sources)), lines, constraints, tuple(sorted(found)))

    def shown(self, path: Path) -> str:
        """Name a file by its place in the project."""
        if path.is_relative_to(self._root):
            return path.relative_to(self._root).as_posix()
        return PurePosixPath(Path(os.path.relpath(path, self._root)).as_posix()).as_posix()

    def _read(self, path: Path, into: list[str], *, by: str) -> None:
        path = Path(os.path.normpath(path))
        if path in self._seen:
            return
        self._seen.add(path)
        name = self.shown(path)
        if not path.is_file():
            raise UsageError(f"{by} names {name!r}, and there is no such file")
        self._sources.append(name)
        for number, line in _logical(read_text(path, name)):
            self._line(line, path, into, where=f"{name}, line {number}")

    def _line(self, line: str, path: Path, into: list[str], *, where: str) -> None:
        include, constrain = INCLUDE.fullmatch(line), CONSTRAIN.fullmatch(line)
        editable, find = EDITABLE.fullmatch(line), FIND.fullmatch(line)
        if include or constrain:
            target = include or constrain
            assert target is not None
            self._include(target[1], path, self._constraints if constrain else into, where)
        elif editable:
            self._editable(editable[1], path, into, where)
        elif find and not REMOTE.match(find[1]):
            raise UsageError(
                f"{where}: --find-links {find[1]} is a folder of this machine; the far one has "
                "none of it, so name an address"
            )
        elif line.startswith("-"):
            if not (KEPT.match(line) or find or DROPPED.match(line)):
                raise UsageError(
                    f"{where}: the option {line.split(maxsplit=1)[0]} is not known; "
                    "leave it out, or install that in an image (ini option remotegpu_image)"
                )
            if not DROPPED.match(line):
                into.append(public(line, where))
        elif _is_path(line):
            self._editable(line, path, into, where)
        elif parsed(line) is None and not REMOTE.match(line):
            raise UsageError(f"{where}: {shown(line)!r} is no requirement; {READS}")
        else:
            into.append(public(line, where))

    def _include(self, target: str, path: Path, into: list[str], where: str) -> None:
        if REMOTE.match(target):
            raise UsageError(
                f"{where}: {shown(target)!r} is an address, and what stands there may change "
                "unseen; keep a copy in the project and include that"
            )
        self._read(path.parent / target.strip("'\""), into, by=where)

    def _editable(self, target: str, path: Path, into: list[str], where: str) -> None:
        """Let code of the project stand for what it depends on."""
        if REMOTE.match(target) and not target.startswith("file:"):
            into.append(public(_named(target, where), where))
            return
        match = re.fullmatch(r"(.+?)(?:\[([^\]]*)\])?\s*", target.partition(";")[0].strip())
        assert match is not None
        folder = Path(os.path.normpath(path.parent / match[1].strip("'\"")))
        if match[1].endswith(ENDS):
            name = re.match(r"pytest[-_.]remotegpu(?=-\d)", PurePosixPath(match[1]).name)
            if name is not None:
                into.append("pytest-remotegpu")  # which is not installed from anywhere
                return
            raise UsageError(
                f"{where}: {match[1]!r} is a file of this machine, and only what a package index "
                "or an address gives can be installed there"
            )
        extras = frozenset(word.strip() for word in (match[2] or "").split(",") if word.strip())
        into += self._local(folder, extras)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, continued ones as one, without comments."""
    kept, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start if kept else number
        line = COMMENT.sub("", raw)
        if line.endswith("\\"):
            kept += line[:-1].strip() + " "
            continue
        whole = (kept + line.strip()).strip()
        kept = ""
        if whole:
            yield start, whole
    if kept.strip():
        yield start, kept.strip()


def _is_path(line: str) -> bool:
    head = line.partition("[")[0].partition(";")[0].strip()
    return (
        head in (".", "..")
        or head.startswith(("./", "../", "/", ".\\", "file:"))
        or (head.endswith(ENDS) and not REMOTE.match(head) and " @ " not in head)
    )


def _named(target: str, where: str) -> str:
    """Write an editable requirement of a repository as one that is installed."""
    address, _, fragment = target.partition("#")
    words = dict(part.partition("=")[::2] for part in fragment.split("&"))
    name = words.pop("egg", "")
    if not name:
        raise UsageError(f"{where}: -e {shown(address)} lacks its name; end it with #egg=NAME")
    rest = "&".join(f"{key}={value}" for key, value in words.items() if key)
    return f"{name} @ {address}" + (f"#{rest}" if rest else "")
