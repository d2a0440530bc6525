"""Reads the project's files and what the ini file says of them into a recipe.

Reads files below the project's folder; asks no network. All that can be refused is refused here,
before anything is rented.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.utils import canonicalize_name

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe import ourselves
from pytest_remotegpu.recipe.bases import base_of
from pytest_remotegpu.recipe.declared import Declared, Source
from pytest_remotegpu.recipe.literals import WAY_OUT, has_password, is_confidential
from pytest_remotegpu.recipe.lock import Lock
from pytest_remotegpu.recipe.needs import Here, admits_python, own_requirements
from pytest_remotegpu.recipe.pyproject import Pyproject
from pytest_remotegpu.recipe.requirements import Reader, parsed, read_text
from pytest_remotegpu.recipe.values import Files, Recipe, UvProject
from pytest_remotegpu.recipe.workspace import members_called

__all__ = ["Reading", "read"]

LOCK: Final = "uv.lock"
PYPROJECT: Final = "pyproject.toml"
UV_TOML: Final = "uv.toml"
BUILD_VARIABLES: Final = "extra-build-variables"
KINDS: Final = ("gpu", "cuda", "test", "tests", "testing")
"""Of requirements files beside the main one, those that tests are likely to need."""


def read(root: Path, declared: Declared, here: Here, preload: Sequence[str] = ()) -> Recipe:
    """Make the recipe of a session.

    :param root: the project's folder. :param preload: modules to be imported ahead.
    :raises UsageError: for what can't be meant, or can't work with this side's versions.
    """
    reading = Reading(root, here)
    base = base_of(root, declared.image, here.python)
    sources = declared.sources
    if sources is None:
        sources = () if base.dockerfile else tuple(reading.found())
    for source in sources:
        reading.take(source)
    files = reading.files()
    reading.check_variables(files, declared.local_secrets)
    apt = {*declared.image.apt, *(["git"] if reading.needs_git(files) else [])}
    return Recipe(
        python=here.python,
        package=here.package,
        base=base,
        apt=tuple(sorted(apt)),
        uv=reading.uv,
        files=files,
        own=reading.own(files),
        variables=declared.image.variables,
        secrets=declared.secrets,
        local_secrets=declared.local_secrets,
        volumes=declared.volumes,
        preload=tuple(preload),
        notes=tuple(dict.fromkeys(reading.notes)),
    )


class Reading:
    """One reading; keeps what was found so far."""

    def __init__(self, root: Path, here: Here) -> None:
        self._root = root
        self._here = here
        self._git = False
        self.notes: list[str] = []
        self.uv: UvProject | None = None
        self.reader = Reader(root, self._depends)
        self._entered: set[Path] = set()

    # requirements

    def found(self) -> Iterator[Source]:
        """Look for files that define requirements, the most exact kind first."""
        if (self._root / LOCK).is_file():
            yield self._usual(LOCK)
        elif requirements := list(self._requirements_files()):
            yield from (Source(path) for path in requirements)
        elif (self._root / PYPROJECT).is_file() and self._pyproject(PYPROJECT).project:
            yield self._usual(PYPROJECT)
        else:
            poetry = (self._root / PYPROJECT).is_file() and self._pyproject(PYPROJECT).is_poetry
            way = (
                "poetry's dependencies are not read: poetry export -f requirements.txt -o "
                "requirements-gpu.txt"
                if poetry
                else "no uv.lock, requirements.txt or pyproject.toml with a project is there"
            )
            self.notes.append(
                f"{way}; on the far side only pytest and what this plugin needs is installed "
                "(ini option remotegpu_requirements)"
            )

    def _usual(self, path: str) -> Source:
        beside = self._pyproject(PYPROJECT)
        return Source(path, *beside.usual())

    def _requirements_files(self) -> Iterator[str]:
        names = ["requirements.txt"]
        for kind in KINDS:
            names += [f"requirements-{kind}.txt", f"requirements_{kind}.txt"]
            names += [f"{kind}-requirements.txt", f"requirements/{kind}.txt"]
        names += ["requirements/base.txt", "requirements/main.txt"]
        yield from (name for name in names if (self._root / name).is_file())

    def _pyproject(self, path: str) -> Pyproject:
        file = self._root / path
        if not file.is_file():
            raise UsageError(f"there is no {path}, which uv.lock and its dependencies need")
        return Pyproject.parse(path, read_text(file, path))

    def _uv_settings(self, path: str) -> Pyproject | None:
        """Give uv's settings where they have a file of their own."""
        file = self._root / path
        return Pyproject.parse(path, read_text(file, path)) if file.is_file() else None

    def take(self, source: Source) -> None:
        """Take in one source.

        :raises UsageError: where it can't be meant.
        """
        name = PurePosixPath(source.path).name
        if not source.path:
            self.reader.add("remotegpu_requirements", list(source.requirements))
        elif name == LOCK:
            self._take_lock(source)
        elif name == PYPROJECT:
            self._take_pyproject(source)
        else:
            self.reader.read(source.path)

    def _take_lock(self, source: Source) -> None:
        path = source.path
        if self.uv is not None:
            raise UsageError(f"remotegpu_requirements has {self.uv.path!r} and {path!r}; name one")
        file = self._root / path
        if not file.is_file():
            raise UsageError(f"remotegpu_requirements names {path!r}, and there is no such file")
        text = read_text(file, path)
        beside = self._pyproject(str(PurePosixPath(path).with_name(PYPROJECT)))
        beside.check(source.extras, source.groups)
        lock = Lock.parse(path, text, self._here.python)
        self._check_python(path, lock.requires_python or beside.requires_python)
        settings = self._uv_settings(str(PurePosixPath(path).with_name(UV_TOML)))
        pyproject = beside.for_uv(None if settings is None else settings.data)
        uv = beside if settings is None else settings
        for name, staged in ((uv.name, pyproject), (path, text)):
            if has_password(staged):
                raise UsageError(
                    f"{name} has an address with a password in it, and {WAY_OUT}; have only the "
                    "address there, and env:UV_INDEX_NAME_USERNAME and env:UV_INDEX_NAME_PASSWORD, "
                    "with the index's name for NAME, in remotegpu_secrets"
                )
        _check_build_variables(uv)
        self._git = self._git or lock.git
        self.uv = UvProject(
            path=path,
            pyproject=pyproject,
            lock=text.replace("\r\n", "\n"),
            extras=source.extras,
            groups=source.groups,
            local=tuple(sorted({*lock.local, *({ourselves.OURS} & dict(lock.pins).keys())})),
            pins=lock.pins,
        )

    def _take_pyproject(self, source: Source) -> None:
        path = source.path
        file = self._root / path
        if not file.is_file():
            raise UsageError(f"remotegpu_requirements names {path!r}, and there is no such file")
        project = Pyproject.parse(path, read_text(file, path))
        if not project.project and not source.groups:
            way = ": poetry export -f requirements.txt -o requirements-gpu.txt and name that"
            raise UsageError(
                f"{path} has no [project], so its dependencies are not known"
                + (way if project.is_poetry else "; name a requirements file instead")
            )
        self._check_python(path, project.requires_python)
        self._take_project(project, path, source.extras, source.groups)

    def _take_project(
        self, project: Pyproject, path: str, extras: Iterable[str], groups: Iterable[str] = ()
    ) -> None:
        self.reader.add(path, self._lines(project, path, extras, groups))

    def _lines(
        self, project: Pyproject, path: str, extras: Iterable[str], groups: Iterable[str] = ()
    ) -> list[str]:
        if "dependencies" in project.project.get("dynamic", []):
            self.notes.append(
                f"{path} leaves its dependencies to its build, so they are not known; list them in "
                "a requirements file and name that in remotegpu_requirements"
            )
        lines = []
        redirected = set()
        for line in project.requirements(extras, groups):
            requirement = parsed(line)
            name = "" if requirement is None else canonicalize_name(requirement.name)
            if requirement is None or name not in project.uv_sources or name == ourselves.OURS:
                lines.append(line)
            elif (folder := self._folder_of(name, project, path)) is not None:
                # its code travels, and what a registry has of that name is another project's
                wanted = {canonicalize_name(extra) for extra in requirement.extras}
                lines += self._depends(folder, frozenset(wanted))
            else:
                lines.append(line)
                redirected.add(name)
        if redirected:
            self.notes.append(
                f"{path} says with [tool.uv.sources] where {', '.join(sorted(redirected))} come "
                "from, which only a uv.lock makes exact; run uv lock"
            )
        return lines

    def _folder_of(self, name: str, project: Pyproject, path: str) -> Path | None:
        """Give the folder from which a requirement comes, where it is one here.

        :param path: of the file that says so.
        """
        here = Path(os.path.normpath(self._root / path)).parent
        for source in project.uv_sources[name]:
            if "path" in source:
                folder = Path(os.path.normpath(here / str(source["path"])))
                return folder if folder.is_dir() else None
            if source.get("workspace") is True:
                return next(members_called(name, here), None)
        return None

    def _depends(self, folder: Path, extras: frozenset[str]) -> list[str]:
        """Give what the code in a folder depends on, for a line such as ``-e .``."""
        if folder in self._entered:
            return []
        self._entered.add(folder)
        name = self.reader.shown(folder / PYPROJECT)
        file = folder / PYPROJECT
        project = Pyproject.parse(name, read_text(file, name)) if file.is_file() else None
        if project is None or not project.project:
            self.notes.append(
                f"what the code in {self.reader.shown(folder)!r} depends on is not known, since no "
                "pyproject.toml says it; name that in a requirements file"
            )
            return []
        self._check_python(name, project.requires_python)
        return self._lines(project, name, [canonicalize_name(extra) for extra in extras])

    # conclusions

    def files(self) -> Files:
        """Give what pip's files and others ask for, apart from this package itself."""
        found = self.reader.result()
        pins = self.uv.pins if self.uv is not None else ()
        where = ", ".join((*([self.uv.path] if self.uv else []), *found.sources))
        self.notes += ourselves.notes(found, pins, where, self._here)
        return ourselves.without(found, self._here)

    def _check_python(self, name: str, specifier: str) -> None:
        python = self._here.python
        if specifier and not admits_python(specifier, python):
            raise UsageError(
                f"{name} asks for Python {specifier}, and this session runs on Python {python}, "
                "which the far side must have too; run pytest with a Python that is admitted "
                "there, or change requires-python"
            )

    def needs_git(self, files: Files) -> bool:
        """Say whether anything is installed from a repository."""
        return self._git or any("git+" in line for line in files.lines)

    def check_variables(self, files: Files, secrets: Iterable[str]) -> None:
        """Make sure that variables in requirements can be had where they are installed.

        :raises UsageError: for one that can't.
        """
        missing = sorted(set(files.variables) - set(secrets))
        if missing:
            raise UsageError(
                f"{', '.join(files.sources)}: ${{{missing[0]}}} has to be known where the far "
                f"environment is made; add the line env:{missing[0]} to remotegpu_secrets"
            )

    def own(self, files: Files) -> tuple[str, ...]:
        """List what this package needs."""
        pins = dict(self.uv.pins) if self.uv is not None else {}
        where = ", ".join((*([self.uv.path] if self.uv else []), *files.sources))
        return own_requirements(self._here, pins, files.lines + files.constraints, where)


def _check_build_variables(uv: Pyproject) -> None:
    """Make sure that no secret is among the variables of builds.

    :raises UsageError: for one.
    """
    table = (uv.data if PurePosixPath(uv.name).name == UV_TOML else uv.tool_uv).get(BUILD_VARIABLES)
    for package, variables in (table if isinstance(table, dict) else {}).items():
        for name in variables if isinstance(variables, dict) else ():
            if is_confidential(name):
                raise UsageError(
                    f"{uv.name} sets {name} for the build of {package}, and {WAY_OUT}; leave "
                    "it out there, and install that package from a wheel or an index instead"
                )
