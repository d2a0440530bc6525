"""GPUs as values: what a mark asks for, what a host shows.

Knows no backend, no wire, no pytest and no torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_remotegpu.errors import MarkerError

__all__ = ["MARK", "SIGNATURE", "Shape", "merge_marks", "parse_mark", "visible_devices"]

MARK: Final = "gpu"
MOST_GPUS: Final = 1024
"""More than any one host holds; a larger count is a slip of the keyboard."""

SIGNATURE: Final = (
    "gpu(count=1, *, type=None, min_memory_gib=None, min_capability=None, launcher=None, "
    "gpus_per_rank=1, timeout=None, isolate=False, env=None)"
)


@dataclass(frozen=True, order=True)
class Shape:
    """What one worker must offer.

    :ivar count: how many GPUs its tests see; 0 for tests that ask for none.
    """

    count: int = 1

    def __str__(self) -> str:
        return {0: "no GPU", 1: "1 GPU"}.get(self.count, f"{self.count} GPUs")


@dataclass(frozen=True)
class Argument:
    """One argument of the mark: what it accepts, in words and as a test; whether it works yet."""

    wants: str
    accepts: Callable[[Any], bool]
    built: bool = False


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST_GPUS


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and value > 0


def _is_name_or_names(value: Any) -> bool:
    names = value if isinstance(value, list | tuple) else [value]
    return bool(names) and all(isinstance(name, str) and name for name in names)


def _is_variables(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(val, str) for key, val in value.items()
    )


ARGUMENTS: Final[dict[str, Argument]] = {
    "count": Argument(f"a whole number from 1 to {MOST_GPUS}", _is_count, built=True),
    "type": Argument("a GPU name or a list of names", _is_name_or_names),
    "min_memory_gib": Argument("a number above 0, in GiB", _is_positive),
    "min_capability": Argument("a compute capability such as 8.0", _is_positive),
    "launcher": Argument("the name of a launcher", lambda value: isinstance(value, str)),
    "gpus_per_rank": Argument(f"a whole number from 1 to {MOST_GPUS}", _is_count),
    "timeout": Argument("a number of seconds above 0", _is_positive),
    "isolate": Argument("True or False", lambda value: isinstance(value, bool)),
    "env": Argument("a dict of variable names to text", _is_variables),
}


def parse_mark(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Read one ``gpu`` mark.

    :param args: the positional arguments; at most one, the count.
    :param kwargs: the keyword arguments.
    :return: the arguments that were given, by name.
    :raises MarkerError: for an argument that is unknown, given twice, ill-typed or not built yet.
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
        raise MarkerError(f"gpu({name}=...) must be {argument.wants}, not {value!r}")
    if not argument.built:
        built = ", ".join(key for key, known in ARGUMENTS.items() if known.built)
        raise MarkerError(
            f"gpu({name}={value!r}) is not built yet in this version; what works is: {built}"
        )


def merge_marks(marks: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> Shape:
    """Merge the ``gpu`` marks of one test, nearest first: for each argument the nearest one wins.

    :param marks: ``(args, kwargs)`` of each mark, from the test outwards to its module.
    :raises MarkerError: as :func:`parse_mark` does.
    """
    merged: dict[str, Any] = {}
    for args, kwargs in marks:
        merged = {**parse_mark(args, kwargs), **merged}
    return Shape(count=merged.get("count", 1))


def visible_devices(environ: Mapping[str, str]) -> list[str]:
    """Name the CUDA devices that a process with these variables would see, without a CUDA context.

    :param environ: the variables of that process; ``CUDA_VISIBLE_DEVICES`` is honoured: indices,
        UUIDs and MIG names are kept as they stand, and the list ends at the first ``-1``.
    :return: one token for each device, fit for ``CUDA_VISIBLE_DEVICES``; empty where there is none.
    """
    installed = _nvml_device_count()
    outer = environ.get("CUDA_VISIBLE_DEVICES")
    if outer is None:
        return [str(index) for index in range(installed)]
    tokens: list[str] = []
    for token in (part.strip() for part in outer.split(",")):
        if not _is_device(token, installed):
            break
        tokens.append(token)
    return tokens


def _is_device(token: str, installed: int) -> bool:
    if token.isdecimal():
        return int(token) < installed
    return installed > 0 and token.startswith(("GPU-", "MIG-"))


def _nvml_device_count() -> int:
    """Ask NVIDIA's management library, which starts no CUDA context; 0 where it is missing."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    if nvml.nvmlInit_v2() != 0:
        return 0
    count = ctypes.c_uint(0)
    status = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlShutdown()
    return count.value if status == 0 else 0
