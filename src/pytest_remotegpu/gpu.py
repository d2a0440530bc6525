"""GPUs as values: what a mark asks for.

Knows no card, no backend, no wire, no pytest and no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_remotegpu.errors import MarkerError

__all__ = [
    "LAUNCHERS",
    "MARK",
    "SIGNATURE",
    "Given",
    "Shape",
    "bind",
    "marker_name",
    "merge_arguments",
    "merge_marks",
    "parse_mark",
    "words",
]

MARK: Final = "gpu"
MOST_GPUS: Final = 1024
"""More than any one host holds; a larger count is a slip of the keyboard."""
MOST_GIB: Final = 100_000
MOST_SECONDS: Final = 10**9
OURS: Final = re.compile(r"CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|(PYTEST_)?REMOTEGPU.*", re.DOTALL)
"""Variables that a mark may not set, because the worker does."""

LAUNCHERS: Final = ("torchrun", "mpirun")
"""What can start the ranks of a test."""
FOREIGN_LAUNCHERS: Final[Mapping[str, str]] = {
    "spawn": "a test that starts its own processes needs no launcher: gpu(count=N)",
    "srun": "srun is planned, and not built yet in this version",
    "ray": "Ray is planned, and not built yet in this version",
    "mpi": "write 'mpirun'",
    "mpiexec": "write 'mpirun'",
}
SIGNATURE: Final = (
    "gpu(count=1, *, type=None, min_memory_gib=None, min_capability=None, launcher=None, "
    "gpus_per_rank=1, timeout=None, isolate=False, env=None)"
)


@dataclass(frozen=True, order=True)
class Shape:
    """What one worker must offer.

    :ivar count: how many GPUs its tests see; 0 for tests that ask for none.
    :ivar type: names of card types, any of which will do; empty for any card.
    :ivar min_memory_gib: what each card must have, in GiB; 0 for any.
    :ivar min_capability: the compute capability that each must have, such as 8.0; 0 for any.
    :ivar env: variables that its process is started with, sorted by name.
    :ivar launcher: what starts the ranks of its tests; empty where each is run by one process.
    :ivar ranks: how many of them there are, which share the GPUs out evenly; 0 for no launcher.
    """

    count: int = 1
    type: tuple[str, ...] = ()
    min_memory_gib: float = 0.0
    min_capability: float = 0.0
    env: tuple[tuple[str, str], ...] = ()
    launcher: str = ""
    ranks: int = 0

    def __str__(self) -> str:
        text = {0: "no GPU", 1: "1 GPU"}.get(self.count, f"{self.count} GPUs")
        if self.launcher:
            ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
            text += f" by {ranks} of {self.launcher}"
        more = [" or ".join(self.type)] if self.type else []
        if self.min_memory_gib:
            more.append(f"at least {self.min_memory_gib:g} GiB")
        if self.min_capability:
            more.append(f"capability {self.min_capability:.1f} or newer")
        more += [f"{name}={value}" for name, value in self.env]
        return f"{text} ({', '.join(more)})" if more else text


@dataclass(frozen=True)
class Argument:
    """One argument of the mark.

    :ivar wants: what it accepts, in words. :ivar accepts: the same as a test.
    :ivar hint: what may have been meant by a value that is not accepted; empty where nobody knows.
    """

    wants: str
    accepts: Callable[[Any], bool]
    hint: Callable[[Any], str] = lambda _value: ""


def marker_name(line: str) -> str:
    """Give the name of a marker.

    :param line: that registers it: the name, arguments in brackets, and a text behind a colon.
    """
    return line.partition(":")[0].partition("(")[0].strip()


def words(type: str) -> frozenset[str]:
    """Cut the name of a card, or of a type of cards, into the words that it is recognised by.

    :param type: such as ``A100-40GB``, ``NVIDIA A100-SXM4-40GB`` or ``H100!``.
    """
    return frozenset(re.split(r"[\s-]+", type.strip().rstrip("!").lower())) - {""}


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST_GPUS


def _is_positive(most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and 0 < value <= most


def _is_capability(value: Any) -> bool:
    return type(value) in (int, float) and 1 <= value < 20 and round(value, 1) == value  # noqa: PLR2004 -- the newest cards have 12


def _capability_hint(value: Any) -> str:
    digits = re.fullmatch(r"(?:sm_?)?(\d{1,2})\.?(\d)", str(value), re.ASCII)
    return f"for {value!r} write {digits[1]}.{digits[2]}" if digits else ""


def _is_type(value: Any) -> bool:
    return _is_plain_text(value) and bool(words(value)) and not re.search("[:,]", value)


def _is_type_or_types(value: Any) -> bool:
    names = value if isinstance(value, list | tuple) else [value]
    return bool(names) and all(map(_is_type, names))


def _type_hint(value: Any) -> str:
    names = value if isinstance(value, list | tuple) else [value]
    wrong = next((name for name in names if isinstance(name, str) and not _is_type(name)), "")
    name, _, count = (part.strip() for part in wrong.partition(":"))
    if count.isascii() and count.isdecimal():
        return f"the count is an argument of its own: gpu(count={count}, type={name!r})"
    several = [part.strip() for part in wrong.split(",")]
    return f"several names are a list: {several!r}" if len(several) > 1 else ""


def _is_variables(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_variable(name) and _is_plain_text(text) for name, text in value.items()
    )


def _is_variable(name: Any) -> bool:
    proper = isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    return bool(proper) and not OURS.fullmatch(name)


def _is_plain_text(text: Any) -> bool:
    """Say whether it can be the value of a variable: without NUL and half characters."""
    return isinstance(text, str) and "\0" not in text and not re.search("[\ud800-\udfff]", text)


def _variables_hint(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    for name, text in value.items():
        if isinstance(name, str) and OURS.fullmatch(name):
            return f"{name} is set by the plugin itself, which gives each worker its GPUs"
        if not _is_variable(name):
            return f"{name!r} is no name of a variable"
        if not _is_plain_text(text):
            return f"{name} can't have the value {text!r}"
    return ""


def _launcher_hint(value: Any) -> str:
    return FOREIGN_LAUNCHERS.get(value, "") if isinstance(value, str) else ""


ARGUMENTS: Final[dict[str, Argument]] = {
    "count": Argument(f"a whole number from 1 to {MOST_GPUS}", _is_count),
    "type": Argument("a GPU name or a list of names", _is_type_or_types, _type_hint),
    "min_memory_gib": Argument("a number above 0, in GiB", _is_positive(MOST_GIB)),
    "min_capability": Argument(
        "a compute capability such as 8.0", _is_capability, _capability_hint
    ),
    "launcher": Argument(
        f"the name of a launcher: {' or '.join(map(repr, LAUNCHERS))}",
        lambda value: isinstance(value, str) and value in LAUNCHERS,
        _launcher_hint,
    ),
    "gpus_per_rank": Argument(f"a whole number from 1 to {MOST_GPUS}", _is_count),
    "timeout": Argument("a number of seconds above 0", _is_positive(MOST_SECONDS)),
    "isolate": Argument("True or False", lambda value: isinstance(value, bool)),
    "env": Argument("a dict of variable names to text", _is_variables, _variables_hint),
}


def parse_mark(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Read one ``gpu`` mark.

    :param args: the positional arguments; at most one, the count.
    :param kwargs: the keyword arguments.
    :return: the arguments that were given, by name.
    :raises MarkerError: for an argument that is unknown, given twice or ill-typed.
    """
    given = dict(kwargs)
    if len(args) > 1:
        raise MarkerError(f"gpu() takes one positional argument, the count, and got {args!r}")
    if args and "count" in given:
        raise MarkerError(f"gpu() got the count twice: {args[0]!r} and count={given['count']!r}")
    if args:
        given["count"] = args[0]
    for name, value in given.items():
        _check_argument(name, value)
    return given


def _check_argument(name: str, value: Any) -> None:
    argument = ARGUMENTS.get(name)
    if argument is None:
        raise MarkerError(f"gpu() has no argument {name!r}; valid are {', '.join(ARGUMENTS)}")
    if not argument.accepts(value):
        hint = argument.hint(value)
        more = f"; {hint}" if hint else ""
        raise MarkerError(f"gpu({name}=...) must be {argument.wants}, not {value!r}{more}")


@dataclass(frozen=True)
class Given:
    """What an alias takes over: the first argument, or the one of this name, of the mark itself."""

    name: str


def bind(
    alias: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Give the arguments that an alias stands for.

    :param args: of the mark that bears the alias' name. :param kwargs: likewise.
    :raises MarkerError: where the mark lacks what the alias takes over.
    """
    found = dict(alias)
    for name, value in alias.items():
        if isinstance(value, Given):
            if not args and value.name not in kwargs:
                raise MarkerError(f"gpu({name}={value.name}) by an alias: the mark gives no value")
            found[name] = args[0] if args else kwargs[value.name]
    return found


Marks = Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]


def merge_arguments(marks: Marks) -> dict[str, Any]:
    """Merge the ``gpu`` marks of one test, nearest first: for each argument the nearest one wins.

    Variables are merged one by one: for each name in ``env`` the nearest value wins.

    :param marks: ``(args, kwargs)`` of each mark, from the test outwards to its module.
    :return: the arguments that were given, by name.
    :raises MarkerError: as :func:`parse_mark` does.
    """
    merged: dict[str, Any] = {}
    variables: dict[str, str] = {}
    for args, kwargs in marks:
        given = parse_mark(args, kwargs)
        variables = {**given.get("env", {}), **variables}
        merged = {**given, **merged}
    return {**merged, "env": variables} if "env" in merged else merged


def merge_marks(marks: Marks) -> Shape:
    """Merge the ``gpu`` marks of one test into what its worker must offer.

    :param marks: as for :func:`merge_arguments`.
    :raises MarkerError: as :func:`parse_mark` does.
    """
    merged = merge_arguments(marks)
    types = merged.get("type", ())
    launcher, count = merged.get("launcher", ""), merged.get("count", 1)
    each = merged.get("gpus_per_rank", 1)
    if "gpus_per_rank" in merged and not launcher:
        raise MarkerError(
            f"gpu(gpus_per_rank={each}) needs a launcher, such as gpu({count}, launcher='torchrun')"
        )
    if count * each > MOST_GPUS:
        raise MarkerError(f"gpu({count}, gpus_per_rank={each}) are {count * each} GPUs")
    return Shape(
        count=count * each,
        type=tuple(dict.fromkeys([types] if isinstance(types, str) else types)),
        min_memory_gib=float(merged.get("min_memory_gib", 0)),
        min_capability=float(merged.get("min_capability", 0)),
        env=tuple(sorted(merged.get("env", {}).items())),
        launcher=launcher,
        ranks=count if launcher else 0,
    )
