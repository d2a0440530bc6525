"""Which options of the user's session mean something in a runner, and which must not be repeated.

Knows pytest's option names and those of well-known plugins, nothing of the wire.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["apply", "neutralise", "overlooked", "understood"]

NEUTRAL: Final[dict[str, Any]] = {
    # selection has been made once, by the user's side
    "keyword": "", "markexpr": "", "deselect": None, "ignore": None, "ignore_glob": None,
    "lf": False, "failedfirst": False, "newfirst": False, "stepwise": False, "stepwise_skip": False,
    "collectonly": False, "keepduplicates": False, "continue_on_collection_errors": True,
    # the failure budget comes with each stretch
    "maxfail": 0,
    # files and caches that only the user's side writes
    "xmlpath": None, "cacheclear": False, "cacheshow": None, "pastebin": None, "htmlpath": None,
    "gpu_benchmark_compare": None, "gpu_benchmark_json": None, "gpu_benchmark_history": None,
    "report_log": None, "json_report_file": None, "clean_alluredir": False, "durations": None,
    # results go to the user's side, which saves and compares them
    "benchmark_json": None, "benchmark_save": None, "benchmark_autosave": None,
    "benchmark_compare": None, "benchmark_compare_fail": [], "benchmark_histogram": None,
    # an editor's reporter speaks once, on the user's side
    "teamcity": 0, "no_teamcity": 1,
    # a runner never becomes a controller of others
    "numprocesses": None, "dist": "no", "tx": [], "distload": False, "looponfail": False,
    "maxprocesses": None,
    # it is a process of its own, and a further fork of one that has used a card can't use that
    "forked": False,
}  # fmt: skip


def understood(args: Sequence[str]) -> list[str]:
    """Give the command line without options of pytest-cov, where that is not installed here.

    It is of no use to a runner, which measures by itself; one that the user's session has need not
    be in every environment.
    """
    if importlib.util.find_spec("pytest_cov") is not None:
        return list(args)
    return [arg for arg in args if not re.match(r"--(no-)?cov\b", arg)]


def overlooked(arguments: Iterable[str], line: Sequence[str], files: Iterable[str]) -> list[str]:
    """Give the paths that are not there, and that the user's side has taken for options' values.

    It has no conftest that says which options have one.

    :param arguments: what is to be collected, as this side understands the command line.
    :param line: that one. :param files: what is to be collected, as the user's side has it.
    """
    known = [Path(file).parts for file in files]
    paths = {word: Path(word.partition("::")[0]) for word in arguments if word in line}
    return [
        word
        for word, path in paths.items()
        if not os.path.exists(path)  # noqa: PTH110 -- any word may stand there, a very long one too
        and not any(parts[len(parts) - len(path.parts) :] == path.parts for parts in known)
    ]


DEBUGGERS: Final = ("usepdb", "trace")
"""Options of no meaning where nobody sits at the terminal."""


def neutralise(
    option: argparse.Namespace, worker: str, *, keeps_paths: bool = False, debugs: bool = False
) -> None:
    """Undo what a runner must not repeat; call it after parsing and before anything is configured.

    :param worker: the worker's id, which keeps its temporary folder apart from others'.
    :param keeps_paths: whether it is to leave out the files that the user's side leaves out.
    :param debugs: whether somebody sits at a terminal, for a debugger.
    """
    for name in () if debugs else DEBUGGERS:
        if hasattr(option, name):
            setattr(option, name, False)
    for name, value in NEUTRAL.items():
        if hasattr(option, name) and not (keeps_paths and name in ("ignore", "ignore_glob")):
            setattr(option, name, value)
    if getattr(option, "basetemp", None):
        option.basetemp = f"{option.basetemp}-{worker}"
    if getattr(option, "log_file", None):
        option.log_file = os.devnull


def apply(option: argparse.Namespace, values: dict[str, Any]) -> None:
    """Set option values that code on the user's side has changed since they were parsed."""
    for name, value in values.items():
        if name not in NEUTRAL and name not in DEBUGGERS and name not in ("basetemp", "log_file"):
            setattr(option, name, value)
