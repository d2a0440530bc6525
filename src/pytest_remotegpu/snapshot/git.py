"""What git says about a folder; knows nothing of rules or snapshots."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple

from pytest_remotegpu.errors import UsageError

__all__ = ["LISTING", "Listing", "NoGitError", "Question", "ignores", "is_within_repository"]
__all__ += ["list_files", "read_listing"]

# A git hook exports these; they would point git at another repository than the folder's own.
_PLACES: Final = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"}
)
_SPEECH: Final = {"LC_ALL": "C", "LANGUAGE": "C", "GIT_OPTIONAL_LOCKS": "0"}
NOTHING: Final[Mapping[str, str]] = {}
_SUBMODULE: Final = "160000 "
_UNTRACKED: Final = "?"
LISTING: Final = (
    *("-c", "core.fsmonitor=false", "ls-files", "-z", "-t"),
    *("--cached", "--stage", "--others", "--exclude-standard"),
)


class NoGitError(Exception):
    """Raised when git can't speak for a folder: it isn't installed, or finds no repository."""


class Listing(NamedTuple):
    """Paths relative to the folder asked about; ``checkouts`` are folders with their own git.

    ``raw`` is what git said: the same bytes later mean the same paths.
    """

    files: list[str]
    checkouts: list[str]
    raw: bytes


def list_files(folder: Path) -> Listing:
    """List the tracked files and the untracked ones that aren't ignored.

    :raises NoGitError: git can't speak for the folder
    :raises UsageError: git finds its repository broken
    """
    return read_listing(Question(folder, *LISTING).answer())


def read_listing(raw: bytes) -> Listing:
    """Read git's answer to :data:`LISTING`."""
    listing = Listing([], [], raw)
    for record in _records(raw):
        tag, _, rest = record.partition(" ")
        head, _, path = ("", "", rest) if tag == _UNTRACKED else rest.partition("\t")
        inner = head.startswith(_SUBMODULE) or (not head and rest.endswith("/"))
        found = listing.checkouts if inner else listing.files
        found.append(path if head else rest.rstrip("/"))
    return listing


def ignores(path: Path) -> bool:
    """Whether git is there and ignores the path."""
    try:
        asked = Question(path.parent, "check-ignore", "--", f"./{path.name}")
        return bool(asked.answer())
    except (NoGitError, UsageError):  # where it ignores nothing, it ends with 1 and no word
        return False


def is_within_repository(folder: Path) -> bool:
    """Whether the folder or one above it looks like a git checkout, git itself not asked."""
    return checkout_of(folder) is not None


def checkout_of(folder: Path) -> Path | None:
    """Give the innermost folder around a folder, or itself, that looks like a git checkout."""
    around = (folder, *folder.parents)
    return next((above for above in around if os.path.lexists(above / ".git")), None)


class Question:
    """Something that git has been asked; it works on its answer while others do other things.

    :param variables: what its environment has beside this process's own.
    :raises NoGitError: git can't be run
    """

    def __init__(
        self, folder: Path, *arguments: str, variables: Mapping[str, str] = NOTHING
    ) -> None:
        self._folder = folder
        # files, since a pipe that nobody reads would have git wait
        self._out, self._err = TemporaryFile(), TemporaryFile()  # noqa: SIM115 -- closed by answer
        try:
            self._process = subprocess.Popen(
                ["git", *arguments],  # noqa: S607 -- git is wherever the user has it
                cwd=folder,
                env={name: value for name, value in os.environ.items() if name not in _PLACES}
                | _SPEECH
                | dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
            )
        except OSError as error:
            self._close()
            raise NoGitError(f"git can't be run ({error.strerror})") from error

    def answer(self) -> bytes:
        """Wait for the answer.

        :raises NoGitError: git can't speak for the folder
        :raises UsageError: git finds its repository broken
        """
        try:
            status = self._process.wait()
            out, err = (_whole(file) for file in (self._out, self._err))
        finally:
            self._close()
        if status == 0:
            return out
        complaint = err.decode(errors="replace").strip()
        if "not a git repository" in complaint or "run in a work tree" in complaint:
            raise NoGitError("git finds no repository")
        raise UsageError(f"git can't list the files of {str(self._folder)!r}: {complaint}")

    def drop(self) -> None:
        """Do without the answer."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._out.close()
        self._err.close()


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _records(raw: bytes) -> list[str]:
    """Split a NUL-separated answer."""
    return [os.fsdecode(record) for record in raw.split(b"\0") if record]
