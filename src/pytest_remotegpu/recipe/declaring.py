"""All that a project declares to need, by what declares it: each file, each extra, each group.

A recipe takes of these what is to be installed; here the others stand as well. Reads files below
the project's folder; what can't be read or meant declares nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe import ourselves
from pytest_remotegpu.recipe.declared import Declared, Source, is_dockerfile
from pytest_remotegpu.recipe.needs import Here
from pytest_remotegpu.recipe.pyproject import Pyproject
from pytest_remotegpu.recipe.reading import LOCK, PYPROJECT, Reading
from pytest_remotegpu.recipe.requirements import read_text

__all__ = ["Part", "Stated", "stated"]

OPTION: Final = "remotegpu_requirements"
GLOBS: Final = (
    "requirements*.txt",
    "*-requirements.txt",
    "*_requirements.txt",
    "requirements/*.txt",
)


@dataclass(frozen=True)
class Part:
    """What one file, extra or group asks for.

    :ivar where: names it as a line of ``remotegpu_requirements`` does.
    :ivar lines: requirements. :ivar elsewhere: normal names of those that no index is to be asked
        for. :ivar taken: whether an environment that is made has it.
    """

    where: str
    lines: tuple[str, ...]
    elsewhere: frozenset[str] = frozenset()
    taken: bool = False


@dataclass(frozen=True)
class Stated:
    """All parts, and the lines of ``remotegpu_requirements``: as set, or as they would be."""

    parts: tuple[Part, ...]
    lines: tuple[str, ...]


def stated(root: Path, declared: Declared, here: Here) -> Stated:
    """Read all that the project declares.

    :param root: the project's folder. :param declared: what the ini file says.
    """
    sources = _sources(root, declared, here)
    parts: dict[str, Part] = {}
    for source in sources:
        for part in _parts(root, source, here):
            parts.setdefault(part.where, replace(part, taken=True))
    for source in _others(root):
        for part in _parts(root, source, here):
            parts.setdefault(part.where, part)
    lines = (line for source in sources for line in _lines(source))
    return Stated(tuple(parts.values()), tuple(lines))


def _sources(root: Path, declared: Declared, here: Here) -> tuple[Source, ...]:
    """Give what an environment is made of."""
    if declared.sources is not None:
        return declared.sources
    if is_dockerfile(declared.image.reference):
        return ()
    try:
        return tuple(Reading(root, here).found())
    except UsageError:
        return ()


def _others(root: Path) -> Iterator[Source]:
    """Give every source that there is, a project with all its extras and groups."""
    project = _project(root, PYPROJECT)
    if project is not None:
        yield Source(PYPROJECT, tuple(project.extras), tuple(project.groups))
    for glob in GLOBS:
        for file in sorted(root.glob(glob)):
            yield Source(file.relative_to(root).as_posix())


def _project(root: Path, path: str) -> Pyproject | None:
    try:
        project = Pyproject.parse(path, read_text(root / path, path))
        project.check(project.extras, project.groups)
        project.uv_sources  # noqa: B018 -- raises where it is no table
    except UsageError:
        return None
    return project


def _lines(source: Source) -> Iterator[str]:
    """Write a source as the ini file has it."""
    if not source.path:
        yield from (f"pip: {line}" for line in source.requirements)
        return
    words = [*source.extras, *(f"group:{name}" for name in source.groups)]
    yield f"{source.path}[{', '.join(words)}]" if words else source.path


def _parts(root: Path, source: Source, here: Here) -> Iterator[Part]:
    path = PurePosixPath(source.path)
    if not source.path:
        yield Part(OPTION, source.requirements)
    elif path.name not in (LOCK, PYPROJECT):
        yield Part(source.path, tuple(_read(root, source, here)))
    else:  # what is locked is what the project beside it declares, and much besides
        yield from _parts_of_project(root, str(path.with_name(PYPROJECT)), source, here)


def _parts_of_project(root: Path, path: str, source: Source, here: Here) -> Iterator[Part]:
    project = _project(root, path)
    if project is None:
        return
    elsewhere = frozenset(project.uv_sources)
    own = _read(root, Source(path), here)
    yield Part(path, tuple(own), elsewhere)
    chosen = [(name, Source(path, extras=(name,))) for name in source.extras]
    chosen += [(f"group:{name}", Source(path, groups=(name,))) for name in source.groups]
    for word, choice in chosen:
        lines = (line for line in _read(root, choice, here) if line not in own)
        yield Part(f"{path}[{word}]", tuple(lines), elsewhere)


def _read(root: Path, source: Source, here: Here) -> Iterable[str]:
    reading = Reading(root, here)
    try:
        reading.take(source)
    except UsageError:
        return []
    return list(ourselves.without(reading.reader.result(), here).lines)
