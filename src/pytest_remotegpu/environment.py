"""What the far side needs to know of this process: variables, import path, folder.

Values in, values out: must not look at this process by itself, and knows nothing of pytest.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["ALWAYS", "inside", "interpreter_options", "passed_on"]

ALWAYS: Final = (
    "CI",
    "BUILD_NUMBER",
    "COLUMNS",
    "LINES",
    "PYTHONHASHSEED",
    "PYTHONWARNINGS",
    "PYTHONOPTIMIZE",
    "PYTHONDEVMODE",
    "PYTHONUTF8",
    "PYTEST_ADDOPTS",
    "PYTEST_PLUGINS",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    "PYTEST_THEME",
    "PYTEST_THEME_MODE",
    "PYTEST_XDIST_WORKER",
    "PYTEST_XDIST_WORKER_COUNT",
    "PYTEST_XDIST_TESTRUNUID",
)
"""Variables that change what pytest or Python itself does or shows; they go to every far side."""
FLAGS: Final = "bBdEIOPRsS"
"""Options of the interpreter that change what a test may see; each stands alone."""
VALUED: Final = "WX"
LAST: Final = "cm"
"""After these come the program and its own options."""


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


def interpreter_options(argv: Sequence[str]) -> list[str]:
    """Pick the options of Python itself that matter to a test, such as ``-W error`` and ``-bb``.

    Those of output (``-u``, ``-v``, ``-q``) and of the prompt are left out.

    :param argv: a whole command line, as in ``sys.orig_argv``.
    """
    found: list[str] = []
    words = iter(argv[1:])
    for word in words:
        if word == "--check-hash-based-pycs":
            found += [word, next(words, "default")]
        if word in ("-", "--") or not word.startswith("-"):
            break
        for place, letter in enumerate("" if word.startswith("--") else word[1:], 2):
            if letter in LAST:
                return found
            if letter in VALUED:
                found += [f"-{letter}", word[place:] or next(words, "")]
                break
            found += [f"-{letter}"] * (letter in FLAGS)
    return found
