"""Files that are copied into an image: which may be, and which are kept back as from every run.

Reads files and folders; knows nothing of what copies them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pytest_remotegpu import guards
from pytest_remotegpu.errors import UsageError

__all__ = ["WAY_OUT", "Found", "digest", "is_whole", "look", "objection"]

SERIOUS: Final = (guards.SECRET, guards.VERSION_CONTROL)
WAY_OUT: Final = (
    "whoever can use an image can read that; values that tests need belong in remotegpu_secrets, "
    "and a file that holds no secret needs another name"
)
HEAD: Final = 16384
"""Bytes that tell a file's kind."""


class Found(NamedTuple):
    """What a folder has: files that may be copied, and those that may not with the reasons."""

    files: tuple[Path, ...]
    kept_back: tuple[tuple[Path, str], ...]


def is_whole(root: Path, place: Path) -> bool:
    """Say whether a place is the whole project, or has it in it."""
    return root.resolve().is_relative_to(place.resolve())


def objection(root: Path, file: Path) -> str | None:
    """Say why a file or folder may be in no image.

    That is told by its name, the name of what it links to, and how its content begins.

    :param root: the project's folder; folders above it do not count for what is in it.
    """
    for place in dict.fromkeys((file, file.resolve())):
        parts = _parts(root, place)
        reasons = [*map(guards.of_folder, parts[:-1]), guards.of_file(parts) if parts else None]
        for reason in reasons:
            if reason in SERIOUS:
                return reason
    return guards.of_content(_read(file)[:HEAD]) if file.is_file() else None


def _parts(root: Path, place: Path) -> tuple[str, ...]:
    for top in (root, root.resolve()):
        if place.is_relative_to(top):
            return place.relative_to(top).parts
    return place.parts[1:]


def look(root: Path, top: Path) -> Found:
    """Look through a folder, or at one file."""
    files: list[Path] = []
    kept_back: list[tuple[Path, str]] = []
    for file in _inside(top, kept_back) if top.is_dir() else [top]:
        reason = objection(root, file)
        if reason is None:
            files.append(file)
        else:
            kept_back.append((file, reason))
    return Found(tuple(files), tuple(sorted(kept_back)))


def _inside(top: Path, kept_back: list[tuple[Path, str]]) -> Iterator[Path]:
    """Give the files below a folder, in order; folders that are kept back are not entered."""
    for here, folders, names in os.walk(top):
        for name in sorted(folders):
            reason = guards.of_folder(name)
            if reason is not None:
                folders.remove(name)
            if reason in SERIOUS:
                kept_back.append((Path(here, name), reason))
        folders.sort()
        yield from (file for file in (Path(here, name) for name in sorted(names)) if file.is_file())


def digest(file: Path) -> str:
    """Name a file by its content.

    :raises UsageError: where it can't be read.
    """
    return hashlib.sha256(_read(file)).hexdigest()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{file} is to be copied into the image, and can't be read: {error.strerror}"
        ) from None
