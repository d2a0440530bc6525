"""What the far side needs to know of this process: variables, import path, folder.

Values in, values out: must not look at this process by itself, and knows nothing of pytest.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = [
    "ALWAYS",
    "built",
    "child_path",
    "inside",
    "interpreter_options",
    "passed_on",
    "redirected",
    "sources",
]

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
    "NCCL_DEBUG",
    "TORCH_DISTRIBUTED_DEBUG",
)
"""Variables that change what pytest or Python itself does or shows, and how much libraries between
cards say; they go to every far side."""
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


def child_path(
    path: Sequence[str], given: str, cwd: str, roots: Iterable[Path], *, stdlib: str
) -> list[str]:
    """Pick the import path entries in the project that each further interpreter has here.

    Those are of ``PYTHONPATH``, and what ``.pth`` files add behind Python's own library; what
    pytest puts in front is none of them.

    :param path: this process's. :param given: the value of ``PYTHONPATH``.
    :param cwd: the folder that entries may be relative to. :param roots: the project's folders.
    :param stdlib: the folder of Python's own library.
    """
    named = [entry or os.curdir for entry in given.split(os.pathsep)] if given else []
    behind = path[path.index(stdlib) + 1 :] if stdlib in path else []
    places = {entry: os.path.normpath(Path(cwd, entry)) for entry in [*named, *behind]}
    lying = {place for root in roots for place in inside(places.values(), root)}
    return [entry for entry, place in places.items() if place in lying]


def redirected(finders: Iterable[object], modules: Mapping[str, object]) -> dict[str, str]:
    """Give the top-level modules that editable installs serve by import hooks, and where they lie.

    Knows the hooks of setuptools (a ``MAPPING`` beside the finder), of the library editables, which
    other build tools use, and of scikit-build-core.

    :param finders: as in ``sys.meta_path``. :param modules: as in ``sys.modules``.
    """
    found: dict[str, str] = {}
    for finder in finders:
        beside = modules.get(getattr(finder, "__module__", ""))
        tables = (
            getattr(beside, "MAPPING", None),
            getattr(finder, "_redirections", None),
            getattr(finder, "known_source_files", None),
        )
        for table in tables:
            if isinstance(table, Mapping):
                found.update(
                    {
                        str(name): str(path)
                        for name, path in table.items()
                        if isinstance(path, str | Path) and "." not in str(name)
                    }
                )
    return found


def built(finders: Iterable[object]) -> dict[str, str]:
    """Give the files by name of modules that the import hooks of scikit-build-core have built."""
    tables = (getattr(finder, "known_wheel_files", None) for finder in finders)
    return {
        str(name): str(file)
        for table in tables
        if isinstance(table, Mapping)
        for name, file in table.items()
        if isinstance(file, str | Path)
    }


def sources(table: Mapping[str, str], root: Path) -> tuple[list[str], list[str]]:
    """Turn modules with their places into entries of an import path.

    :param table: as :func:`redirected` gives it.
    :return: the entries that lie in the project, and the names of modules there that no entry can
        serve, because their files have another name.
    """
    entries: dict[str, None] = {}
    odd = []
    for name, text in sorted(table.items()):
        path = Path(os.path.normpath(text))
        path = path.parent if path.name == "__init__.py" else path
        if not path.is_relative_to(root):
            continue
        if path.name in (name, f"{name}.py"):
            entries[str(path.parent)] = None
        else:
            odd.append(name)
    return list(entries), odd


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
