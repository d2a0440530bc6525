"""The import path that the far side gets: of the session there, and of processes that tests start.

Looks at the import hooks of this process; knows no far side, no snapshot and no pytest.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pytest_remotegpu import environment

__all__ = ["beside_interpreter", "of_session", "with_own"]

VARIABLE: Final = "PYTHONPATH"


def beside_interpreter(path: Sequence[str]) -> list[str]:
    """Give the entries of an import path that would be there with another interpreter, too.

    Left out are the library of this one, and what is installed for it.
    """
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    archive = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    return [
        entry
        for entry in path
        if not {"site-packages", "dist-packages", archive} & set(Path(entry).parts)
        and not any(Path(entry).is_relative_to(folder) for folder in library)
    ]


def of_session(path: Sequence[str], roots: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Give the entries of an import path in what is sent, those of editable installs too.

    :param roots: the folders that are sent.
    :return: the entries, and names of modules in these folders that no entry can serve.
    """
    known = [set(environment.inside(path, root)) for root in roots]
    found = [entry for entry in path if any(entry in each for each in known)]
    served, odd = _by_hooks(roots)
    return [*found, *(entry for entry in served if entry not in found)], odd


def with_own(
    variables: Mapping[str, str],
    path: Sequence[str],
    environ: Mapping[str, str],
    cwd: str,
    roots: Sequence[Path],
) -> dict[str, str]:
    """Add to the far side's variables what each further interpreter finds here in what is sent.

    Places are named as they are here; the far side knows where they lie there. Nothing is set where
    there is no such entry.

    :param variables: those that travel anyway. :param path: the import path here.
    :param environ: the variables here. :param cwd: the folder of this session.
    """
    wanted = variables.get(VARIABLE, "").split(os.pathsep)
    wanted += environment.child_path(
        path, environ.get(VARIABLE, ""), cwd, roots, stdlib=sysconfig.get_path("stdlib")
    )
    wanted += _by_hooks(roots)[0]
    value = ":".join(dict.fromkeys(filter(None, wanted)))
    return {**variables, VARIABLE: value} if value else dict(variables)


def _by_hooks(roots: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Give entries that serve what editable installs do by import hooks, and what none can."""
    table = environment.redirected(sys.meta_path, sys.modules)
    found = [environment.sources(table, root) for root in roots]
    served = dict.fromkeys(entry for entries, _ in found for entry in entries)
    return list(served), list(dict.fromkeys(name for _, odd in found for name in odd))
