"""What the far side needs to know of this process: variables, import path, folder.

Values in, values out: must not look at this process by itself, and knows nothing of pytest.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

__all__ = ["ALWAYS", "inside", "passed_on"]

ALWAYS: Final = (
    "CI",
    "BUILD_NUMBER",
    "PYTHONHASHSEED",
    "PYTEST_ADDOPTS",
    "PYTEST_PLUGINS",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    "PYTEST_THEME",
    "PYTEST_THEME_MODE",
)
"""Variables that change what pytest itself does or shows; they go to every far side."""


def passed_on(environ: Mapping[str, str], patterns: Iterable[str]) -> dict[str, str]:
    """Pick the variables that go to a far side with an environment of its own.

    :param patterns: names, or shell patterns of names, that the user lists in ``remotegpu_env``.
    """
    wanted = [*ALWAYS, *patterns]
    return {
        name: value
        for name, value in environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)
    }


def inside(paths: Iterable[str], root: Path) -> list[str]:
    """Pick the import path entries that lie in the project, apart from installed packages in it."""
    return [
        path
        for path in paths
        if path
        and Path(path).is_relative_to(root)
        and not {"site-packages", "dist-packages"} & set(Path(path).parts)
    ]
