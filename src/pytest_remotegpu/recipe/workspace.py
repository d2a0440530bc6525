"""Members of a workspace of uv: found by the globs of the ``pyproject.toml`` that spans it.

Reads such files; what a member depends on is not its business.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from pytest_remotegpu.recipe.pyproject import Pyproject
from pytest_remotegpu.recipe.requirements import read_text

__all__ = ["members_called"]

PYPROJECT: Final = "pyproject.toml"


def members_called(name: str, here: Path) -> Iterator[Path]:
    """Yield the members of that name, of the workspace around a folder.

    :param name: normalized.
    :raises UsageError: for a file that can't be read.
    """
    for above in (here, *here.parents):
        spanning = _read(above)
        if spanning is None or not isinstance(spanning.tool_uv.get("workspace"), dict):
            continue
        members = map(str, spanning.tool_uv["workspace"].get("members", []))
        globs = [glob for glob in members if glob and not glob.startswith("/")]
        found = [folder for glob in globs for folder in sorted(above.glob(glob))]
        for folder in (above, *found):
            member = _read(folder)
            own = "" if member is None else str(member.project.get("name", ""))
            if own and canonicalize_name(own) == name:
                yield folder
        return


def _read(folder: Path) -> Pyproject | None:
    file = folder / PYPROJECT
    return Pyproject.parse(str(file), read_text(file, str(file))) if file.is_file() else None
