"""Which packages are installed here in editable mode, and which of them this project needs.

Reads the metadata of what is installed, and the files in which a project names what it needs. Knows
no import hook, no snapshot and no pytest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from importlib.metadata import requires as _requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

__all__ = ["BROKEN", "Install", "find", "is_installed", "needed", "outside", "requires"]

BROKEN: Final = (OSError, ValueError, TypeError, AttributeError, LookupError)
"""What reading metadata that are not as they should be may come to."""
SITES: Final = ("site-packages", "dist-packages")
OWN: Final = "pytest-remotegpu"
"""Has to be installed on the far side."""
OWN_CODE: Final = ("editable", "directory", "virtual")
"""What ``uv.lock`` calls the sources of packages that are folders here."""
_LINE: Final = re.compile(r"(?:(?:-e|--editable)[\s=]*)?(?P<path>[./~][^\s\[;#]*)")


@dataclass(frozen=True)
class Install:
    """A package that is installed in editable mode.

    :ivar name: normalized; of one that a ``.pth`` file names, the folder's.
    :ivar folder: in which its sources lie.
    :ivar requires: the names of what it needs.
    """

    name: str
    folder: Path
    requires: tuple[str, ...] = ()


# ---------------------------------------------------------------- what is installed


def find(distributions: Iterable[Distribution], path: Iterable[str]) -> list[Install]:
    """List what is installed in editable mode, by whichever tool.

    :param distributions: all that are installed. :param path: the import path.
    """
    found: dict[str, Install] = {}
    for distribution in distributions:
        folder = _folder_of(distribution)
        if folder is not None:
            name, requires = folder.name, []
            with contextlib.suppress(*BROKEN):
                name = str(canonicalize_name(distribution.metadata["Name"] or name))
                requires = list(_names(distribution.requires))
            found.setdefault(name, Install(name, folder, tuple(requires)))
    entries = list(path)
    known = [each.folder for each in found.values()]
    for folder in _of_pth_files(entries):
        if not any(folder.is_relative_to(each) for each in known):
            found.setdefault(f"{folder}", Install(folder.name, folder))
    return list(found.values())


def requires(name: str) -> list[str] | None:
    """Give the requirements of an installed package; ``None`` where it is not installed."""
    with contextlib.suppress(PackageNotFoundError, *BROKEN):
        return _requires(name)
    return None


def _folder_of(distribution: Distribution) -> Path | None:
    """Give the folder from which a package was installed in editable mode (PEP 610)."""
    with contextlib.suppress(*BROKEN):
        said = json.loads(distribution.read_text("direct_url.json") or "{}")
        url = urllib.parse.urlsplit(said["url"])
        if url.scheme == "file" and said["dir_info"].get("editable") is True:
            from urllib.request import url2pathname  # noqa: PLC0415 -- it loads half of the network

            folder = Path(os.path.normpath(url2pathname(url.path)))
            return folder if folder.is_dir() else None
    return None


def _of_pth_files(path: list[str]) -> Iterator[Path]:
    """Yield the entries of the import path that ``.pth`` files of installed packages have made."""
    entries = {os.path.normpath(entry) for entry in path if entry}
    for site in dict.fromkeys(entry for entry in path if entry and Path(entry).name in SITES):
        for file in sorted(Path(site).glob("*.pth")):
            with contextlib.suppress(OSError, ValueError):
                for line in file.read_text(encoding="utf-8").splitlines():
                    text = line.strip()
                    here = os.path.normpath(os.path.join(site, text))  # noqa: PTH118 -- as site does
                    if text and here in entries and not set(SITES) & set(Path(here).parts):
                        yield Path(here)


def _names(requirements: Iterable[str] | None) -> Iterator[str]:
    for text in requirements or ():
        with contextlib.suppress(InvalidRequirement):
            yield canonicalize_name(Requirement(text).name)


# ---------------------------------------------------------------- what is needed


def outside(installs: Iterable[Install], root: Path) -> list[Install]:
    """Pick those whose sources are not in the project."""
    return [
        each
        for each in installs
        if not each.folder.is_relative_to(root)
        and not set(SITES) & set(each.folder.parts)
        and each.name != OWN
    ]


def needed(
    installs: list[Install],
    root: Path,
    modules: Iterable[str],
    requires: Callable[[str], Iterable[str] | None],
) -> list[Install]:
    """Pick those outside the project that it has imported, or that its files name as needed.

    An environment may hold others, which are nobody's business here.

    :param root: the project's folder. :param modules: files of the modules that are imported.
    :param requires: gives the requirements of an installed package; asked only where that may tell
        more.
    """
    candidates = outside(installs, root)
    if not candidates:
        return []
    inside = f"{root}{os.sep}"
    files = [file for file in modules if not file.startswith(inside)]
    used = [each for each in candidates if any(_is_of(file, each.folder) for file in files)]
    if len(used) < len(candidates):
        names, folders = _named(root)
        own = [each for each in installs if each.folder.is_relative_to(root)]
        names |= {name for each in own for name in each.requires}
        wanted = _closure(names, requires)
        used = [
            each
            for each in candidates
            if each in used or each.name in wanted or each.folder in folders
        ]
    return used


def is_installed(file: Path, folder: Path) -> bool:
    """Say whether a file below a folder belongs to what is installed in an environment there."""
    return bool(set(SITES) & set(file.relative_to(folder).parts))


def _is_of(file: str, folder: Path) -> bool:
    return file.startswith(f"{folder}{os.sep}") and not is_installed(Path(file), folder)


def _closure(names: set[str], requires: Callable[[str], Iterable[str] | None]) -> set[str]:
    """Add what packages need, and what that needs."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += _names(requires(name))
    return found


def _named(root: Path) -> tuple[set[str], set[Path]]:
    """Give the names and the folders of packages that a project's files ask for."""
    project, lock = _toml(root / "pyproject.toml"), _toml(root / "uv.lock")
    names = set(_names(_requirements(project)))
    folders = set()
    for package in _tables(lock.get("package")):
        source = package.get("source")
        if isinstance(source, Mapping) and (kind := next((k for k in OWN_CODE if k in source), "")):
            folders.add(Path(os.path.normpath(root / str(source[kind]))))
    for file in sorted([*root.glob("requirements*.txt"), *root.glob("requirements/*.txt")]):
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text(encoding="utf-8").splitlines():
                if found := _LINE.match(line.strip()):
                    here = Path(root, found["path"]).expanduser()
                    folders.add(Path(os.path.normpath(here)))
    return names, folders


def _requirements(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield all requirements of a ``pyproject.toml``: those of extras and groups too."""
    own = project.get("project")
    own = own if isinstance(own, Mapping) else {}
    lists = [own.get("dependencies")]
    for table in (own.get("optional-dependencies"), project.get("dependency-groups")):
        lists += table.values() if isinstance(table, Mapping) else ()
    for lines in lists:
        for line in lines if isinstance(lines, list) else ():
            if isinstance(line, str):
                yield line


def _toml(file: Path) -> dict[str, Any]:
    """Read a file; whoever needs it to be right will say what is wrong with it."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _tables(data: object) -> Iterator[Mapping[str, Any]]:
    for each in data if isinstance(data, list) else ():
        if isinstance(each, Mapping):
            yield each
