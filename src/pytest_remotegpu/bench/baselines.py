"""Benchmarks in a file, and what it means to be slower than they were.

The file is the one that ``--gpu-benchmark-json`` writes. Knows neither torch nor pytest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from pytest_remotegpu.bench import whole
from pytest_remotegpu.bench.measured import time_of
from pytest_remotegpu.bench.told import Benchmark, Kept, Timed, clean
from pytest_remotegpu.errors import UsageError

__all__ = ["FORMAT", "NOISE", "VERSION", "Finding", "Kind", "compare", "differences"]
__all__ += ["document", "load", "write"]

FORMAT: Final = "pytest-remotegpu/benchmarks"
VERSION: Final = 1
NOISE: Final = 1.05
"""So many times slower is no news: from one session to the next a card differs by as much."""
SAME: Final = ("device", "driver", "cuda", "torch", "dtype", "clock")
"""What has to be as it was; ``clock`` is what somebody has set, and the card's limits."""
SAME_HOST: Final = ("host", "threads", "python")
"""What has to be as well where the host's time is in the numbers."""
WALL: Final = "wall"


class Kind(StrEnum):
    """What can be said of a time beside that of a baseline."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    NEW = "new"
    APART = "not compared"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of one contestant in one mode.

    :ivar text: both times, or the reason why there are no two.
    """

    kind: Kind
    test: str
    contestant: str
    mode: str
    text: str

    def __str__(self) -> str:
        return f"{clean(self.contestant)}, {clean(self.mode)}: {self.text}"


class _File(Struct, frozen=True):
    format: str
    version: int
    benchmarks: list[Kept]


def document(kept: Iterable[Kept]) -> dict[str, Any]:
    """Give benchmarks as a document for a file."""
    return {"format": FORMAT, "version": VERSION, "benchmarks": msgspec.to_builtins(list(kept))}


def write(path: Path, kept: Iterable[Kept]) -> None:
    """Write a file in one step.

    :raises OSError: where that can't be done; an old one is then as it was.
    """
    text = json.dumps(document(kept), indent=1, allow_nan=False) + "\n"
    whole.put(path, text.encode())


def load(path: Path) -> list[Kept] | None:
    """Read a file; ``None`` where there is none.

    :raises UsageError: where it can't be read, or is none of this kind.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} holds no benchmarks: {error}",
            fix="name a file that --gpu-benchmark-json has written, or none that exists",
        ) from error
    if (found.format, found.version) != (FORMAT, VERSION):
        raise UsageError(
            f"{path} is {found.format!r} in version {found.version}, not {FORMAT!r} in {VERSION}",
            fix="write it anew with --gpu-benchmark-json",
        )
    return found.benchmarks


# the rule


def compare(now: Kept, baseline: Sequence[Kept]) -> list[Finding]:
    """Say of each time of a benchmark what it is beside that of the same one in a baseline.

    It is slower where its interval lies above the other one by more than :data:`NOISE`.

    :param baseline: of any tests; those of the same one, measured in other environments, may be
        several.
    """
    there = [
        kept
        for kept in baseline
        if (kept.test, kept.index) == (now.test, now.index) and kept.benchmark.valid
    ]
    return [_finding(now, name, mode, found, there) for name, mode, found in now.benchmark.timed()]


def _finding(now: Kept, name: str, mode: str, found: Timed, there: Sequence[Kept]) -> Finding:
    kind, text = _judged(now.benchmark, name, mode, found, there)
    return Finding(kind, now.test, name, mode, text)


def _judged(
    now: Benchmark, name: str, mode: str, found: Timed, there: Sequence[Kept]
) -> tuple[Kind, str]:
    if not now.valid:
        return Kind.APART, clean(now.why)
    others = [
        (kept.benchmark, timed)
        for kept in there
        for other, its, timed in kept.benchmark.timed()
        if (other, its) == (name, mode)
    ]
    if not others:
        return Kind.NEW, "the baseline has none of it"
    apart = ""
    for before, timed in others:
        differs = "; ".join(differences(now, before, mode))
        if not differs:
            return _beside(found, timed)
        apart = apart or differs
    return Kind.APART, apart


def _beside(now: Timed, before: Timed) -> tuple[Kind, str]:
    text = f"{time_of(now.estimate)} now, {time_of(before.estimate)} in the baseline"
    if now.low > NOISE * before.high:
        least = now.low / before.high
        return Kind.SLOWER, f"{text}: x{now.ms / before.ms:.3g} the time, x{least:.3g} for certain"
    if now.high * NOISE < before.low:
        return Kind.FASTER, f"{text}: x{before.ms / now.ms:.3g} as fast"
    return Kind.SAME, text


def differences(now: Benchmark, before: Benchmark, mode: str) -> Iterator[str]:
    """Say what keeps the times of two benchmarks from being compared; nothing where nothing does.

    :param mode: of these times; a wall clock's depend on the host as well.
    """
    names = (*SAME, *SAME_HOST) if mode == WALL else SAME
    for name in names:
        mine, its = (_plain(one.environment.get(name), name) for one in (now, before))
        unused = name == "threads" and None in (mine, its)  # they are torch's
        if mine != its and not unused:
            yield f"{name} is {_told(mine)} now and {_told(its)} in the baseline"
    if now.held_back != before.held_back:
        here, there = (", ".join(one.held_back) or "nothing" for one in (now, before))
        yield f"{clean(here)} holds the card back now, and {clean(there)} in the baseline"
    if now.l2.get(mode) != before.l2.get(mode):
        here, there = (clean(one.l2.get(mode, "unknown")) for one in (now, before))
        yield f"the L2 cache is {here} now and {there} in the baseline"


def _plain(value: Any, name: str) -> Any:
    """Give what of a value has to be the same: of Python's version the first two numbers."""
    if name == "python" and isinstance(value, str):
        return ".".join(value.split(".")[:2])
    return value


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{clean(key)} {clean(one)}" for key, one in value.items())
    return clean("unknown" if value in (None, "") else value)
