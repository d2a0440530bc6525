"""``uv.lock``: which versions it pins, and which of its packages are the project's own code.

Reads one such file, given as text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from pytest_remotegpu.errors import UsageError

__all__ = ["Lock"]

FORMAT: Final = 1
"""The lock file's format that is known; a later one may mean something else."""
OWN_CODE: Final = ("editable", "directory", "virtual", "path")


@dataclass(frozen=True)
class Lock:
    """A lock file's content.

    :ivar pins: names and versions; a package with several versions for different hosts has the
        one for Linux, or is left out where several would do.
    :ivar local: packages whose files are in the project. :ivar git: whether git is needed.
    """

    requires_python: str = ""
    pins: tuple[tuple[str, str], ...] = ()
    local: tuple[str, ...] = ()
    git: bool = False

    @classmethod
    def parse(cls, name: str, text: str, python: str) -> Lock:
        """Read the file's text.

        :param python: major and minor version of the far side.
        :raises UsageError: where it is no lock file, or one of a format not known.
        """
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{name} is no TOML ({error}); run uv lock") from None
        if data.get("version") != FORMAT:
            raise UsageError(
                f"{name} has format {data.get('version')!r}, and this version knows "
                f"{FORMAT}; export it with uv export -o requirements-gpu.txt and name that in "
                "remotegpu_requirements"
            )
        packages = [entry for entry in data.get("package", []) if isinstance(entry, dict)]
        return cls(
            requires_python=str(data.get("requires-python", "")),
            pins=_pins(packages, _environment(python)),
            local=tuple(sorted(str(entry["name"]) for entry in packages if _is_local(entry))),
            git=any("git" in _source(entry) for entry in packages),
        )


def _source(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    source = entry.get("source", {})
    return source if isinstance(source, dict) else {}


def _is_local(entry: Mapping[str, Any]) -> bool:
    return "name" in entry and any(kind in _source(entry) for kind in OWN_CODE)


def _environment(python: str) -> dict[str, str]:
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }


def _pins(
    packages: list[dict[str, Any]], environment: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    versions: dict[str, list[str]] = {}
    for entry in packages:
        if "name" in entry and "version" in entry and _holds(entry, environment):
            versions.setdefault(canonicalize_name(entry["name"]), []).append(str(entry["version"]))
    return tuple(sorted((name, found[0]) for name, found in versions.items() if len(found) == 1))


def _holds(entry: Mapping[str, Any], environment: dict[str, str]) -> bool:
    """Say whether an entry is for the far side's host, where the file says for which it is."""
    markers = entry.get("resolution-markers", [])
    if not markers:
        return True
    for marker in markers:
        try:
            if Marker(str(marker)).evaluate(environment):
                return True
        except InvalidMarker:
            return True
    return False
