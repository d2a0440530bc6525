"""What everything is installed on: which Python it has, and whether one must be added.

Reads a Dockerfile and what that copies; pulls and builds nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe import copies, literals
from pytest_remotegpu.recipe.declared import Image, is_dockerfile
from pytest_remotegpu.recipe.ignoring import NAME, Ignored
from pytest_remotegpu.recipe.images import Dockerfile, has_python, python_of
from pytest_remotegpu.recipe.requirements import read_text
from pytest_remotegpu.recipe.values import Base, Copied

__all__ = ["base_of"]

MOST_COPIED: Final = 10_000
"""Files that a Dockerfile may copy; beyond that, it copies a whole project or its data."""


def base_of(root: Path, image: Image, python: str) -> Base:
    """Find out which Python the image has, and whether one must be added.

    :param root: the project's folder. :param python: major and minor version of this side.
    :raises UsageError: where it is another one, or nobody can tell.
    """
    reference = image.reference
    if not reference:
        return Base()
    if is_dockerfile(reference):
        return _dockerfile(root, image, python)
    brings = image.python == "own" if image.python else has_python(reference)
    if brings is None:
        raise UsageError(
            f"remotegpu_image = {reference!r}: whether it has the Python to be used is not "
            "known; add a line python: own (it has), or python: add"
        )
    if brings:
        _check(reference, python_of(reference), python)
    return Base(reference, adds_python=not brings)


def _dockerfile(root: Path, image: Image, python: str) -> Base:
    path = image.reference
    file = root / path
    if not file.is_file():
        raise UsageError(f"remotegpu_image names {path!r}, and there is no such file")
    text = read_text(file, path).replace("\r\n", "\n")
    found = Dockerfile.parse(path, text)
    for number, what in found.secrets:
        raise UsageError(
            f"{path}, line {number} {what}, and {literals.WAY_OUT}; have the value as a variable "
            "of this process, and its name as env:NAME in remotegpu_secrets"
        )
    brings = image.python == "own" if image.python else found.has_python
    if brings:
        _check(f"{path}, FROM {found.base}", python_of(found.base), python)
    return Base(
        dockerfile=path,
        text=text,
        copied=tuple(_copied(root, path, found)),
        context=str(root),
        adds_python=not brings,
    )


def _copied(root: Path, path: str, found: Dockerfile) -> Iterator[Copied]:
    """Look at what a Dockerfile copies, since the image depends on it."""
    ignored = _ignored(root, path)
    seen: set[Path] = set()
    for number, pattern in found.copies:
        where = f"{path}, line {number}"
        clean = os.path.normpath(pattern.lstrip("/") or ".")
        if clean in (".", "*", "**") or clean.startswith(".."):
            raise UsageError(
                f"{where} copies {pattern!r}, so a copy of your code would be in the image, and "
                "tests might import that instead of the files that travel; copy the files that "
                "the image needs by name"
            )
        for file in sorted(set(_matching(root, clean)) - seen):
            seen.add(file)
            name = file.relative_to(root).as_posix()
            if ignored.has(name):
                continue
            reason = copies.objection(root, file)
            if reason is not None:
                raise UsageError(f"{where} copies {name!r}, which {reason}; {copies.WAY_OUT}")
            yield Copied(name, copies.digest(file))
            if len(seen) > MOST_COPIED:
                raise UsageError(f"{where} copies more than {MOST_COPIED} files; copy fewer")


def _ignored(root: Path, path: str) -> Ignored:
    """Read what is not to be copied: from its own file, that of its folder, or the context's."""
    for name in (f"{path}{NAME}", PurePosixPath(path).with_name(NAME).as_posix(), NAME):
        if (root / name).is_file():
            return Ignored.parse(read_text(root / name, name))
    return Ignored()


def _matching(root: Path, pattern: str) -> Iterator[Path]:
    for top in root.glob(pattern):
        inside = top.rglob("*") if top.is_dir() else [top]
        yield from (file for file in inside if file.is_file())


def _check(name: str, there: str, here: str) -> None:
    if there and there != here:
        raise UsageError(
            f"{name} has Python {there}, and this session runs on Python {here}; they must be the "
            f"same: name an image of Python {here}, run pytest with Python {there}, or add the "
            "line python: add to remotegpu_image"
        )
