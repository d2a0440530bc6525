"""Documents and texts that other programs have written: what they say, and what was not understood.

Values in, values out. Nothing is dropped without a word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pytest_remotegpu.bench.fa2.measured import BLOCK, STRIDE, Device, Measured, Result
from pytest_remotegpu.bench.fa2.rows import Branch
from pytest_remotegpu.bench.lines import Compressed, Read, Selection, Sliding, parse
from pytest_remotegpu.bench.thresholds import LARGEST
from pytest_remotegpu.errors import UsageError

__all__ = ["from_plain", "from_text", "unread"]

KNOWN: Final = frozenset(
    {
        "device_info",
        "parity_passed",
        "parity_output",
        "benchmark_output",
        "selection_output",
        "recommendation",
        "results",
        "timestamp",
    }
)
"""The keys that such documents have."""
SHOWN: Final = 200
"""Letters of what was not understood that are shown."""


def from_text(text: str) -> tuple[Measured, tuple[str, ...]]:
    """Read lines; of the machine and of parity nothing is known by them.

    :return: what they say, and what in them was not understood.
    """
    found = parse(text)
    measured = Measured(
        Device(cuda_available=True, device_name="not said"),
        results=_of_lines(found),
        selection_output=_selection(found),
    )
    return measured, unread("", found)


def from_plain(data: Mapping[str, Any], name: str) -> tuple[Measured, tuple[str, ...]]:
    """Read a document that has the old keys alone.

    :raises UsageError: where it has none of them, or one is of another kind than it has to be.
    """
    if not KNOWN & data.keys():
        raise UsageError(
            f"{name} is no document of a benchmark of FlashAttention-2: it has none of the keys "
            f"{', '.join(sorted(KNOWN))}"
        )
    lines = parse(_text(data, "benchmark_output", name))
    selected = parse(_text(data, "selection_output", name))
    complaints = [*unread("benchmark_output", lines), *unread("selection_output", selected)]
    results, troubles = _of_results(data.get("results"), lines)
    passed = data.get("parity_passed")
    measured = Measured(
        _device(data.get("device_info"), name),
        began=_text(data, "timestamp", name),
        ended=_text(data, "timestamp", name),
        parity_output=_text(data, "parity_output", name),
        selection_output=_text(data, "selection_output", name),
        results=results or _of_lines(lines),
        parity_passed=passed if isinstance(passed, bool) else None,
        stated=_stated(data.get("recommendation")),
    )
    return measured, (*complaints, *troubles)


def _text(data: Mapping[str, Any], key: str, name: str) -> str:
    said = data.get(key)
    if said is None:
        return ""
    if not isinstance(said, str):
        raise UsageError(f"{name}: {key} is {said!r:.{SHOWN}}, and has to be a text")
    return said


def _stated(said: Any) -> dict[str, int]:
    pairs = said.items() if isinstance(said, Mapping) else ()
    return {str(key): value for key, value in pairs if type(value) is int}


def _device(said: Any, name: str) -> Device:
    if said is None:
        said = {}
    if not isinstance(said, Mapping):
        raise UsageError(f"{name}: device_info is {said!r:.{SHOWN}}, and has to be an object")
    name, torch, cuda = (
        str(said.get(key) or "") for key in ("device_name", "torch_version", "cuda_version")
    )
    available, flash = (said.get(key) is True for key in ("cuda_available", "flash_available"))
    return Device(available, name, torch, cuda, flash)


def unread(where: str, found: Read) -> tuple[str, ...]:
    """Say which lines were not understood."""
    at = f"{where}, " if where else ""
    return tuple(
        f"{at}line {number} was not understood: {line:.{SHOWN}}" for number, line in found.unread
    )


def _selection(found: Read) -> str:
    return "\n".join(str(row) for row in found.rows if isinstance(row, Selection))


def _of_lines(found: Read) -> tuple[Result, ...]:
    return tuple(_of_line(row) for row in found.rows if not isinstance(row, Selection))


def _of_line(row: Sliding | Compressed) -> Result:
    times = row.speedup, row.masked_ms, row.fa2_ms
    if isinstance(row, Sliding):
        return Result(Branch.SLIDING, row.length, row.window, *times)
    return Result(Branch.COMPRESSED, row.length, None, *times, row.block, row.stride)


def _of_results(said: Any, lines: Read) -> tuple[tuple[Result, ...], list[str]]:
    """Read the list of results; the text says how tokens were compressed, which that can't."""
    if said is None:
        return (), []
    if not isinstance(said, list):
        return (), [f"results was not understood: {said!r:.{SHOWN}}"]
    known = _compressed(lines)
    found, troubles = [], []
    for place, each in enumerate(said):
        try:
            one = _of_result(each)
        except (KeyError, TypeError, ValueError):
            troubles.append(f"results[{place}] was not understood: {each!r:.{SHOWN}}")
            continue
        if one.branch is Branch.COMPRESSED and one.length not in known:
            troubles.append(
                f"results[{place}] does not say how its tokens were compressed: "
                f"l={BLOCK} d={STRIDE} is taken"
            )
        sizes = BLOCK, STRIDE
        if one.branch is Branch.COMPRESSED and (told := known.get(one.length)):
            sizes = told.pop(0) if len(told) > 1 else told[0]
        times = one.speedup, one.masked_ms, one.fa2_ms
        found.append(Result(one.branch, one.length, one.window, *times, *sizes))
    return tuple(found), [*troubles, *_absent(found, lines)]


def _compressed(lines: Read) -> dict[int, list[tuple[int, int]]]:
    """Say by length how tokens were compressed, in the order of the lines, which is the results'.

    A length for which all lines say the same has it once.
    """
    known: dict[int, list[tuple[int, int]]] = {}
    for row in lines.rows:
        if isinstance(row, Compressed):
            known.setdefault(row.length, []).append((row.block, row.stride))
    return {n: each if len(set(each)) > 1 else each[:1] for n, each in known.items()}


def _absent(found: Iterable[Result], lines: Read) -> Iterator[str]:
    """Say which lines no result stands for, if there are results: these are not judged."""
    there = {_place(one) for one in found}
    for row in lines.rows:
        if there and not isinstance(row, Selection) and _place(_of_line(row)) not in there:
            yield f"benchmark_output has a line that no result stands for: {row}"


def _place(one: Result) -> tuple[Any, ...]:
    sizes = (one.block, one.stride) if one.branch is Branch.COMPRESSED else ()
    return one.branch, one.length, one.window, *sizes


def _of_result(each: Any) -> Result:
    branch, length, window = Branch(each["branch"]), each["sequence_length"], each["window_size"]
    whole = [length] if branch is Branch.COMPRESSED else [length, window]
    if any(type(number) is not int or not 1 <= number < LARGEST for number in whole):
        raise ValueError("no size")
    speedup, masked, own = (_number(each[key]) for key in ("speedup", "masked_ms", "fa2_ms"))
    return Result(
        branch, length, window if branch is Branch.SLIDING else None, speedup, masked, own
    )


def _number(said: Any) -> float:
    """Read a number; ``null`` and words for what is none are read as such."""
    if said is None:
        return math.nan
    if isinstance(said, bool) or not isinstance(said, int | float | str):
        raise TypeError("no number")
    return float(said)
