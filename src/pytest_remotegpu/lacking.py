"""Packages that a far side lacks, and the command or setting that brings them there.

Which modules a failure lacks, is for others to say. Looks at what is imported and installed here,
and imports none of what it names; knows no far side and no pytest.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.metadata
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from pytest_remotegpu import environment, missing

__all__ = [
    "There",
    "has_module",
    "in_words",
    "interpreter",
    "modules_of",
    "needs_of",
    "outside",
    "packages",
    "requirement_for",
    "why_not_here",
]

PATH: Final = re.compile(r"[!-~ ]{1,400}", re.ASCII)
"""What is shown of what a far side calls its interpreter."""
OPTION: Final = "remotegpu_requirements"


class There(Struct, frozen=True):
    """A far side.

    :ivar python: its interpreter, as it says. :ivar made: whether its environment is made of what
        the project says. :ivar same: whether its import path is this process's, so that nothing is
        lacking there alone. :ivar software: names and versions of what it has, as it says.
    """

    python: str = ""
    made: bool = False
    same: bool = False
    software: Mapping[str, str] = field(default_factory=dict)


def packages(modules: Iterable[str], is_own: Callable[[str], bool]) -> list[str]:
    """Pick the modules that only a package can bring.

    A module within a package that is there is not one of them: that package is of another version.

    :param modules: full names. :param is_own: says of a name whether the project itself has it.
    """
    return [
        name
        for name in dict.fromkeys(modules)
        if "." not in name and name not in sys.stdlib_module_names and not is_own(name)
    ]


def interpreter(there: There) -> str:
    """Give what a far side calls its interpreter; nothing where that may be no path."""
    return there.python if PATH.fullmatch(there.python) else ""


def in_words(
    lacking: Iterable[str], there: There, installed: Callable[[str], str | None]
) -> list[str]:
    """Say what a far side lacks and how it gets that; nothing where nothing is lacking.

    :param installed: gives the requirement for what brings a module here, such as ``httpx==0.28``;
        ``None`` where nothing does. No name is made up: of one that nobody knows, a registry may
        have a package of somebody else.
    """
    names = list(lacking)
    if not names or there.same:
        return []
    known = interpreter(there)
    python = shlex.quote(known) if known else "PYTHON"
    wanted = dict.fromkeys(installed(name) for name in names)
    texts = [text for text in wanted if text is not None]
    if None in wanted:
        texts.append("PACKAGE")
    if there.made:
        way = (
            f"add {' and '.join(texts)} to the project's requirements, or the line "
            f"'pip: {' '.join(texts)}' to {OPTION}"
        )
    else:
        way = f"on the far side: {python} -m pip install {' '.join(map(shlex.quote, texts))}"
    strange = [name for name in names if installed(name) is None]
    if strange:
        way += f" (PACKAGE is what brings {', '.join(strange)}, which is not installed here either)"
    return [f"host lacks: {', '.join(names)} ({known or 'its interpreter is not known'})", way]


# this side


def has_module(module: str, folders: Iterable[str]) -> bool:
    """Say whether one of these folders of the import path has a module."""
    return any(os.path.exists(path) for path in missing.paths_of(module, folders))  # noqa: PTH110 -- texts


def why_not_here(error: BaseException, folders: Iterable[str]) -> str:
    """Say which import explains an error that another machine may not have; empty where none does.

    What the project itself has, and what is missing from a package that is here, explains nothing.

    :param error: whose causes are looked at, too. :param folders: where the project's modules are.
    """
    known = list(folders)
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, ImportError) and _is_foreign(link, known):
            return _first_line(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return ""


def _first_line(error: ImportError) -> str:
    try:
        return str(error).partition("\n")[0] or type(error).__name__
    except Exception:  # noqa: BLE001 -- a class of the user's may raise anything
        return type(error).__name__


def _is_foreign(error: ImportError, folders: Iterable[str]) -> bool:
    """Say whether an import failed for what is not here; one that code has raised by hand did."""
    if not isinstance(error.name, str):
        return True
    if has_module(error.name.partition(".")[0], folders):
        return False
    missing_one = isinstance(error, ModuleNotFoundError)
    of = error.name.rpartition(".")[0] if missing_one else error.name
    # a namespace has no file: other packages add to it
    return getattr(sys.modules.get(of), "__file__", None) is None


def requirement_for(module: str) -> str | None:
    """Write what brings a module here as a requirement; ``None`` where no package does."""
    for name in _distributions().get(module, ()):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return f"{name}=={version.partition('+')[0]}"
    return None


def modules_of(project: str) -> frozenset[str]:
    """Name the modules that a project brings here, but for those that it keeps to itself."""
    return _modules().get(project, frozenset())


def needs_of(project: str) -> list[str]:
    """Give what a project asks for in turn, as it is installed here; nothing where it is not."""
    try:
        return importlib.metadata.requires(project) or []
    except importlib.metadata.PackageNotFoundError:
        return []


@functools.cache
def _modules() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for module, names in _distributions().items():
        for name in () if module.startswith("_") else names:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), set()).add(module)
    return {name: frozenset(modules) for name, modules in found.items()}


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def outside(module: str, root: Path) -> str:
    """Say of a module that this process has that it doesn't lie in the project, nor is installed.

    One that it has not imported, since the far side collects, is looked for and not imported.
    """
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None) or _place(top)
    file = os.path.normpath(file) if file else ""
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    if not file or installed or Path(file).is_relative_to(root) or _is_pythons(file):
        return ""
    return (
        f"module {module!r} was not sent: it is imported here from {file!r}, outside the"
        f" project root {str(root)!r}; install it on the far side"
    )


def _place(name: str) -> str:
    """Give the file from which a module would be imported here; empty where there is none."""
    if served := environment.redirected(sys.meta_path, sys.modules).get(name):
        return served
    with contextlib.suppress(ImportError, ValueError, OSError):
        spec = importlib.machinery.PathFinder.find_spec(name)
        return str(spec.origin) if spec is not None and spec.has_location else ""
    return ""


def _is_pythons(file: str) -> bool:
    """Say whether a file is of Python's own library."""
    return any(
        Path(file).is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")
    )
