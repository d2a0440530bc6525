"""What this package itself needs on the far side, beside what the project says.

Values in, values out: which versions are installed here is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pytest_remotegpu.errors import UsageError

__all__ = ["Here", "admits_python", "own_requirements"]

PYTEST: Final = "pytest"
PATCHES: Final = 60
"""Patch versions that are tried to see whether a specifier admits any of a minor version."""


@dataclass(frozen=True)
class Here:
    """This side.

    :ivar python: major and minor version. :ivar pytest: the whole version.
    :ivar package: this package's version. :ivar requires: what it depends on, as its metadata says.
    :ivar same: names and versions of those that should be the same there if the project lets them.
    """

    python: str
    pytest: str
    package: str = ""
    requires: tuple[str, ...] = ()
    same: tuple[tuple[str, str], ...] = ()


def admits_python(specifier: str, python: str) -> bool:
    """Say whether ``requires-python`` admits any patch version of a minor one."""
    try:
        wanted = SpecifierSet(specifier)
    except InvalidSpecifier:
        return True  # whoever installs says what is wrong with it
    return _admitted(wanted, python) is not None


def _admitted(wanted: SpecifierSet, minor: str) -> str | None:
    versions = (f"{minor}.{patch}" for patch in range(PATCHES))
    return next((text for text in versions if wanted.contains(text, prereleases=True)), None)


def own_requirements(
    here: Here, pins: Mapping[str, str], asked: Iterable[str], where: str
) -> tuple[str, ...]:
    """List what is to be installed for this package, at versions that the project can live with.

    :param pins: what a lock file holds, by normal name.
    :param asked: the project's own requirements.
    :param where: names the files that say so, for the message.
    :raises UsageError: where the project insists on a version that does not work.
    """
    wanted: dict[str, list[Requirement]] = {}
    for requirement in _parsed(asked):
        wanted.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    found = [_pytest(here, pins.get(PYTEST), wanted.get(PYTEST, []), where)]
    for requirement in _parsed(here.requires):
        name = canonicalize_name(requirement.name)
        if name == PYTEST or not _applies(requirement, here.python):
            continue
        pin = pins.get(name) or _exact(wanted.get(name, []))
        if pin is None and name not in wanted:
            pin = dict(here.same).get(name)
        found.append(_one(requirement, pin, where))
    return tuple(sorted(found))


def _parsed(lines: Iterable[str]) -> Iterator[Requirement]:
    for line in lines:
        try:
            yield Requirement(line.partition(" --")[0])
        except InvalidRequirement:
            continue


def _applies(requirement: Requirement, python: str) -> bool:
    """Leave out what only an extra or another system asks for."""
    marker = requirement.marker
    system = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    return marker is None or marker.evaluate({**system, "python_version": python, "extra": ""})


def _pytest(here: Here, pin: str | None, wanted: list[Requirement], where: str) -> str:
    minor = ".".join(here.pytest.split(".")[:2])
    if pin is not None:
        there = ".".join(pin.split(".")[:2])
        if there == minor:
            return f"pytest=={pin}"
        raise UsageError(
            f"{where} has pytest {pin}, and this session runs pytest {here.pytest}; they must "
            f"share major and minor: pip install 'pytest=={there}.*' here, or lock "
            f"pytest=={here.pytest} there"
        )
    specifier = SpecifierSet()
    for requirement in wanted:
        if _applies(requirement, here.python):
            specifier &= requirement.specifier
    if specifier.contains(here.pytest, prereleases=True):
        return f"pytest=={here.pytest}"
    if _admitted(specifier, minor) is not None:
        return f"pytest=={minor}.*,{specifier}"
    raise UsageError(
        f"{where} asks for pytest{specifier}, and this session runs pytest {here.pytest}; they "
        f"must share major and minor: pip install 'pytest{specifier}' here, or admit pytest "
        f"{minor} there"
    )


def _one(need: Requirement, pin: str | None, where: str) -> str:
    """Write one need; a version that the project pins is taken where it will do."""
    if pin is None:
        return f"{need.name}{need.specifier}"
    if need.specifier.contains(pin, prereleases=True):
        return f"{need.name}=={pin}"
    raise UsageError(
        f"{where} has {need.name} {pin}, and pytest-remotegpu needs {need.name}{need.specifier} "
        "there; admit such a version"
    )


def _exact(wanted: Iterable[Requirement]) -> str | None:
    for requirement in wanted:
        for part in requirement.specifier:
            if part.operator in ("==", "===") and "*" not in part.version:
                try:
                    return str(Version(part.version))
                except InvalidVersion:
                    return part.version
    return None
