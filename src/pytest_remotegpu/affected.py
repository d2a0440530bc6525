"""Which test files to run again after a change, and why.

Values in, values out; knows how files need each other, nothing of processes or of pytest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from pytest_remotegpu.imports import Graph, Needs

__all__ = ["affected_files"]


def affected_files(
    changed: Iterable[PurePosixPath],
    before: Mapping[PurePosixPath, Needs | None],
    after: Mapping[PurePosixPath, Needs | None],
    known: Iterable[PurePosixPath],
    patterns: Iterable[str] = ("test_*.py", "*_test.py"),
) -> set[PurePosixPath] | None:
    """Give the test files that may end otherwise now; ``None`` for all, where nobody can say.

    :param before: the Python files as they were, and what each needed. :param after: as they are.
    :param known: files that tests have been collected from.
    :param patterns: names that test files have; such a file that is new makes it all of them.
    """
    tests = set(known)
    reached: set[PurePosixPath] = set()
    graphs = Graph(before), Graph(after)
    for path in changed:
        if path in tests and path.suffix != ".py":
            reached.add(path)
            continue
        if path.suffix != ".py":
            return None
        found: set[PurePosixPath] = set()
        for graph in graphs:
            found |= graph.affected([path])
        is_new = path in after and path not in tests
        if is_new and any(fnmatchcase(path.name, pattern) for pattern in patterns):
            return None
        if not found & tests:
            return None
        reached |= found & tests
    return reached
