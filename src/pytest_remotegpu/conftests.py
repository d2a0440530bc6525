"""The initial conftests of a session with a far side: left to that side, or loaded at a cost.

Knows pytest's command line and its ini file; knows no worker and no test. What it leaves out here,
options and ini values of conftests included, the far side loads and reads.
"""

from __future__ import annotations

import configparser
import itertools
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import addoptions

__all__ = ["COST", "cost", "hint", "hint_in_folder", "is_asked", "is_path", "leave_out", "lines"]

COST: Final = pytest.StashKey[str]()
"""What it has cost that a conftest imports torch here, in words."""
HEAVY: Final = "torch"
HINT: Final = (
    "with remotegpu_conftest = far conftests are loaded on the far side only, and may import what "
    "only that has"
)


def is_asked(config: pytest.Config, args: Iterable[str], environ: Mapping[str, str]) -> bool:
    """Say whether a session is to have a far side, before its options are parsed."""
    options = {str(arg).partition("=")[0] for arg in args}
    named = bool(options & {"--remote", "--remotegpu"})
    return named or bool(environ.get("PYTEST_REMOTEGPU") or config.getini("remotegpu"))


def leave_out(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Take away what only a conftest could know: options, and names of ini options.

    To be called once all options are registered that are known here.
    """
    _forget_options(config, parser, args)
    for name in _ini_names(config):
        try:
            config.getini(name)
        except ValueError:
            parser.addini(name, "of a conftest, which is loaded on the far side", default=None)


def _forget_options(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Take unknown options away, each with its values where these are words of their own.

    Pytest 8 gives what stands behind them as unknown, too, which may be paths and ids.

    :raises pytest.UsageError: where nobody here can say whether a path is such a value.
    """
    try:
        _known, unknown = parser.parse_known_and_unknown_args(args)
    except pytest.UsageError:
        return  # pytest's own parsing will say what is wrong
    there: dict[str, int | None] | None = None
    for word in unknown:
        if word not in args or not word.startswith("-") or word == "--":
            continue
        place = args.index(word)
        del args[place]
        if "=" not in word and place < len(args) and not args[place].startswith("-"):
            if there is None:
                there = addoptions.widths(_conftests(config, args))
            del args[place : place + _values_of(word, args[place:], there.get(word))]


def _values_of(option: str, behind: list[str], width: int | None) -> int:
    """Say how many words behind an option belong to it.

    A mistyped path of another look is taken for a value, and refused by the far side, which knows.

    :param width: as the sources of conftests say it; ``None`` where they don't.
    :raises pytest.UsageError: where the next is a path and nobody can say whether it does.
    """
    if width is None and _is_argument(behind[0]):
        raise pytest.UsageError(
            f"{option} {behind[0]}: with remotegpu_conftest = far nobody knows here whether "
            f"{behind[0]!r} is the value of {option} or is to be collected; write "
            f"{option}={behind[0]}, or the path before {option}"
        )
    taken = itertools.takewhile(lambda each: not each.startswith("-"), behind)
    return len(list(itertools.islice(taken, 1 if width is None else width)))


def _conftests(config: pytest.Config, args: Iterable[str]) -> list[Path]:
    """Give the conftests that may add options: those of the folders of all that is a path."""
    here = config.invocation_params.dir
    given = [arg.partition("::")[0] for arg in args if is_path(arg)]
    places = [here, config.rootpath, *(here / text for text in given)]
    places += [config.rootpath / str(text) for text in config.getini("testpaths")]
    folders = dict.fromkeys(folder for place in places for folder in (place, *place.parents))
    beside = [path for folder in dict.fromkeys(places) for path in folder.glob("test*/conftest.py")]
    return [*(folder / "conftest.py" for folder in folders), *beside]


def _is_argument(word: str) -> bool:
    """Say whether a word looks as if it were to be collected."""
    return not word.startswith("-") and (is_path(word) or "::" in word or word.endswith(".py"))


def is_path(argument: str) -> bool:
    """Say whether an argument names a file or folder, or tests of a file."""
    try:
        return Path(argument.partition("::")[0]).exists()
    except (OSError, ValueError):  # too long for a name, or with a character that none has
        return False


def _ini_names(config: pytest.Config) -> list[str]:
    """Give the names that the ini file and the command line set, as far as they can be read."""
    overrides: list[str] = getattr(config.known_args_namespace, "override_ini", None) or []
    names = [text.partition("=")[0].strip() for text in overrides]
    path = config.inipath
    try:
        if path is None:
            found: Iterable[str] = ()
        elif path.suffix == ".toml":
            found = _toml_names(tomllib.loads(path.read_text(encoding="utf-8")))
        else:
            found = _section_names(path)
    except (OSError, ValueError, configparser.Error):
        found = ()  # pytest has read it, in ways of its own
    return [*names, *found]


def _toml_names(data: Mapping[str, Any]) -> list[str]:
    tables = [data.get("pytest"), data.get("tool", {}).get("pytest")]
    tables += [table.get("ini_options") for table in tables if isinstance(table, dict)]
    names = [name for table in tables if isinstance(table, dict) for name in table]
    return [name for name in names if name != "ini_options"]


def _section_names(path: Path) -> list[str]:
    reader = configparser.RawConfigParser(strict=False, allow_no_value=True)
    reader.optionxform = str  # type: ignore[assignment, method-assign]
    reader.read(path, encoding="utf-8")
    section = "tool:pytest" if path.suffix == ".cfg" else "pytest"
    return list(reader[section]) if reader.has_section(section) else []


def hint(error: BaseException) -> None:
    """Add the way out to the error of a conftest that can't be imported here."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, ImportError):
        cause.add_note(HINT)


def hint_in_folder(
    node: object, call: pytest.CallInfo[object], report: pytest.CollectReport | pytest.TestReport
) -> None:
    """Add the way out to the report of a folder whose conftest can't be imported here."""
    if not isinstance(node, pytest.Directory) or call.excinfo is None:
        return
    if isinstance(getattr(call.excinfo.value, "cause", None), ImportError):
        hint(call.excinfo.value)
        report.longrepr = node.repr_failure(call.excinfo)


def cost(manager: pytest.PytestPluginManager, seconds: float, mib: float) -> str:
    """Say what it has cost that a conftest imports torch here.

    :param seconds: that loading all initial conftests took. :param mib: of memory.
    """
    files = [
        Path(str(getattr(plugin, "__file__", ""))).name
        for plugin in manager.get_plugins()
        if HEAVY in getattr(plugin, "__dict__", {})
    ]
    who = "a conftest imports" if "conftest.py" not in files else "conftest.py imports"
    memory = f" and {mib:.0f} MiB" if mib >= 1 else ""
    return (
        f"{who} torch here: {seconds:.1f} s{memory} for the conftests; with "
        "remotegpu_conftest = far they are loaded on the far side only"
    )


def lines(config: pytest.Config) -> list[str]:
    """Give the line for the header, which only ``-v`` shows."""
    text = config.stash.get(COST, "")
    return [f"remote: {text}"] if text and config.get_verbosity() > 0 else []
