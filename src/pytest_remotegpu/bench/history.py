"""Benchmarks over time: a file that only grows, a line of JSON for each of them.

Two such files are put together by writing one behind the other, in any order and as often as one
likes: lines that are there twice count once. So it can live in the cache of a CI service, or in a
repository. Knows neither torch nor pytest.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from pytest_remotegpu.bench.alone import locked
from pytest_remotegpu.bench.told import Benchmark, Kept

__all__ = ["FORMAT", "VERSION", "Commit", "Entry", "append", "begun", "commit_of", "read"]

FORMAT: Final = "pytest-remotegpu/benchmark-history"
VERSION: Final = 1
HEAD: Final = b'{"format":"' + FORMAT.encode() + b'"'
"""What each line begins with as it is written here."""
BAD: Final = (msgspec.MsgspecError, ValueError, RecursionError)
LATEST: Final = 253402300800.0
"""The year 10000, in seconds since 1970, which no calendar here knows."""
PATIENCE: Final = 10.0
"""Seconds that git may take."""


class Commit(Struct, frozen=True):
    """What the code was.

    :ivar id: of the commit; empty where there is none.
    :ivar changed: whether files that git tracks were not as they are there.
    """

    id: str = ""
    changed: bool = False


class Entry(Struct, frozen=True):
    """One line: a benchmark with its commit, and the time of the session.

    Its environment is that of the benchmark; its times are left out, their interval is there.

    :ivar when: seconds since 1970.
    """

    format: str
    version: int
    when: float
    commit: Commit
    test: str
    index: int
    outcome: str
    benchmark: Benchmark

    def __post_init__(self) -> None:
        if not 0 <= self.when < LATEST:
            raise ValueError(f"{self.when} is no time")


def append(path: Path, kept: Iterable[Kept], *, when: float, commit: Commit) -> int:
    """Add benchmarks to a file, which is made where there is none.

    Several processes may do so at the same time: all lines are written at once, to the file's end,
    under a lock. A line that somebody was stopped in stays by itself.

    :param when: seconds since 1970.
    :return: how many were added.
    :raises OSError: where the file can't be written.
    """
    lines = [msgspec.json.encode(_entry(one, when, commit)) for one in kept]
    if not lines:
        return 0
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    with os.fdopen(handle, "rb+", buffering=0) as file, locked(file):
        end = file.seek(0, os.SEEK_END)
        torn = b""
        if end:
            file.seek(end - 1)
            torn = b"" if file.read(1) == b"\n" else b"\n"
        data = memoryview(torn + b"\n".join(lines) + b"\n")
        while data:
            data = data[file.write(data) :]
    return len(lines)


def begun(path: Path) -> bool:
    """Say whether a file may be added to: it is empty, or has a line of a history.

    A first line that somebody was stopped in is one; it has no end.

    :raises OSError: where it can't be read.
    """
    empty = True
    with path.open("rb") as file:
        for line in file:
            if not line.strip():
                continue
            if line.startswith(HEAD) or (empty and HEAD.startswith(line)):
                return True
            try:
                _decoded(line)
            except BAD:
                empty = False
            else:
                return True
    return empty


def _entry(one: Kept, when: float, commit: Commit) -> Entry:
    """Make an entry, without the times of single rounds."""
    data = msgspec.to_builtins(one.benchmark)
    for contestant in data["contestants"]:
        for timed in contestant["modes"].values():
            timed["times"] = []
    benchmark = msgspec.convert(data, Benchmark)
    return Entry(FORMAT, VERSION, when, commit, one.test, one.index, one.outcome, benchmark)


def read(path: Path) -> tuple[list[Entry], list[str]]:
    """Read a file.

    :return: its entries, the oldest first and each one once, and a line for each line of the file
        that is none.
    :raises OSError: where it can't be read.
    """
    entries: dict[bytes, Entry] = {}
    bad: list[str] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip() or line in entries:
            continue
        try:
            found = _decoded(line)
        except BAD as error:
            bad.append(f"line {number} of {path} is no benchmark: {error}")
        else:
            entries[line] = found
    return sorted(entries.values(), key=lambda entry: entry.when), bad


def _decoded(line: bytes) -> Entry:
    found = msgspec.json.decode(line, type=Entry)
    if (found.format, found.version) != (FORMAT, VERSION):
        raise ValueError(f"it is {found.format} in version {found.version}")
    return found


def commit_of(folder: Path, environ: Mapping[str, str]) -> Commit:
    """Say which commit a folder's files are of; that of the CI run where git does not tell.

    :param environ: the variables of this process.
    """
    found = _git(folder, "rev-parse", "HEAD")
    if found:
        return Commit(found, bool(_git(folder, "status", "--porcelain", "--untracked-files=no")))
    return Commit(environ.get("GITHUB_SHA", ""))


def _git(folder: Path, *words: str) -> str:
    options: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace"}
    try:
        done = subprocess.run(  # noqa: PLW1510 -- its status is looked at
            ["git", "--no-optional-locks", *words],  # noqa: S607 -- the user's own git
            cwd=folder,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            **options,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return str(done.stdout).strip() if done.returncode == 0 else ""
