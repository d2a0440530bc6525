"""What git says about a folder; knows nothing of rules or snapshots."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from pytest_remotegpu.errors import UsageError

__all__ = ["Listing", "NoGitError", "ignores", "is_within_repository", "list_files"]

# A git hook exports these; they would point git at another repository than the folder's own.
_PLACES: Final = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"}
)
_SPEECH: Final = {"LC_ALL": "C", "LANGUAGE": "C", "GIT_OPTIONAL_LOCKS": "0"}
_SUBMODULE: Final = "160000 "


class NoGitError(Exception):
    """Raised when git can't speak for a folder: it isn't installed, or finds no repository."""


class Listing(NamedTuple):
    """Paths relative to the folder asked about; ``checkouts`` are folders with their own git."""

    files: list[str]
    checkouts: list[str]


def list_files(folder: Path) -> Listing:
    """List the tracked files and the untracked ones that aren't ignored.

    :raises NoGitError: git can't speak for the folder
    :raises UsageError: git finds its repository broken
    """
    listing = Listing([], [])
    for record in _run(folder, "ls-files", "-z", "--cached", "--stage"):
        head, path = record.split("\t", 1)
        (listing.checkouts if head.startswith(_SUBMODULE) else listing.files).append(path)
    for path in _run(folder, "ls-files", "-z", "--others", "--exclude-standard"):
        (listing.checkouts if path.endswith("/") else listing.files).append(path.rstrip("/"))
    return listing


def ignores(path: Path) -> bool:
    """Whether git is there and ignores the path."""
    try:
        return bool(_run(path.parent, "check-ignore", "--", f"./{path.name}"))
    except (NoGitError, UsageError):  # where it ignores nothing, it ends with 1 and no word
        return False


def is_within_repository(folder: Path) -> bool:
    """Whether the folder or one above it looks like a git checkout, git itself not asked."""
    return any(os.path.lexists(above / ".git") for above in (folder, *folder.parents))


def _run(folder: Path, *arguments: str) -> list[str]:
    """Run git in the folder; return the records of its NUL-separated answer."""
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 -- git is wherever the user has it
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name not in _PLACES}
            | _SPEECH,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise NoGitError(f"git can't be run ({error.strerror})") from error
    if done.returncode == 0:
        return [os.fsdecode(record) for record in done.stdout.split(b"\0") if record]
    complaint = done.stderr.decode(errors="replace").strip()
    if "not a git repository" in complaint or "run in a work tree" in complaint:
        raise NoGitError("git finds no repository")
    raise UsageError(f"git can't list the files of {str(folder)!r}: {complaint}")
