"""What a benchmark has written, read as data that anybody may have written.

Of the document only what an answer needs is taken, and nothing of it is believed beyond its form:
what can't be read, or is of a form that is not known, is no result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu import gpu
from pytest_remotegpu.bench.configs import KEYS
from pytest_remotegpu.bench.github.asking import shown
from pytest_remotegpu.bench.thresholds import NEVER, OFF, Answer
from pytest_remotegpu.errors import RemoteGpuError

__all__ = ["DocumentError", "Measured", "Time", "find_faults", "read", "verdict"]

FORMAT: Final = "pytest-remotegpu/fa2"
VERSIONS: Final = (1,)
SELECTION: Final = "sel_triton_min_L"
LARGEST: Final = 20 * 2**20
"""Of a document, in bytes."""
MOST: Final = 10**9
"""A threshold beyond is no length of a sequence."""


class DocumentError(RemoteGpuError):
    """Raised where a document can't be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Time:
    """One measured problem.

    :ivar branch: ``sliding`` or ``compressed``. :ivar length: in tokens.
    :ivar window: in tokens; ``None`` for the compressed branch.
    :ivar masked_ms: of SDPA with a mask, in milliseconds. :ivar fa2_ms: of FlashAttention-2.
    :ivar speedup: how many times faster that is.
    """

    branch: str
    length: int
    window: int | None
    masked_ms: float
    fa2_ms: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A document.

    :ivar device: the card's name. :ivar versions: of torch and CUDA, by name.
    :ivar cuda: whether there was a card.
    :ivar parity: whether results were shown to be right.
    :ivar thresholds: by key, what is recommended; ``None`` where there were no data.
    :ivar times: all rows. :ivar when: as the document has it.
    :ivar margin: that it was judged by; ``None`` where it does not say.
    :ivar complete: whether it was measured to the end.
    :ivar trouble: why it recommends nothing, in its own words.
    :ivar verdicts: by key, in words of ours; keys of which a document says no more than a number
        are left out.
    """

    device: str
    versions: Mapping[str, str]
    cuda: bool
    parity: bool
    thresholds: Mapping[str, int | None]
    times: tuple[Time, ...]
    when: str
    margin: float | None = None
    complete: bool = True
    trouble: str = ""
    verdicts: Mapping[str, str] = field(default_factory=dict)


def read(path: Path) -> Measured:
    """Read a document.

    :raises DocumentError: where there is none, or none that is understood.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise DocumentError("the benchmark has left no results")
        if (size := path.stat().st_size) > LARGEST:
            raise DocumentError(f"the results have {size} bytes, more than {LARGEST}")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DocumentError(f"the results can't be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the results are no JSON ({shown(str(error))})") from error
    if not isinstance(data, dict):
        raise DocumentError("the results are no object")
    form, version = data.get("format", FORMAT), data.get("version", VERSIONS[0])
    if form != FORMAT or type(version) is not int or version not in VERSIONS:
        raise DocumentError(
            f"the results are of the form {shown(str(form))}, version {shown(str(version))}, and"
            f" {FORMAT} of version {VERSIONS[-1]} is known; the versions of the package in the jobs"
            " of the workflow may differ"
        )
    return _measured(data)


def _measured(data: Mapping[str, Any]) -> Measured:
    device = _taken(data, "device_info", dict)
    recommended = _taken(data, "recommendation", dict)
    question = _taken(data, "question", dict, {})
    margin = question.get("margin")
    verdicts = _verdicts(_taken(data, "thresholds", list, []), question)
    return Measured(
        device=_taken(device, "device_name", str, ""),
        versions={
            name: _taken(device, f"{name}_version", str, "") or "" for name in ("torch", "cuda")
        },
        cuda=_taken(device, "cuda_available", bool),
        parity=_taken(data, "parity_passed", bool),
        thresholds={
            key: _threshold(recommended, key, verdicts.get(key, "")) for key in (*KEYS, SELECTION)
        },
        times=tuple(_time(row) for row in _taken(data, "results", list)),
        when=_taken(data, "timestamp", str, ""),
        margin=None if margin is None else _number(margin, "margin"),
        complete=_taken(data, "complete", bool, True),
        trouble=_taken(data, "trouble", str, ""),
        verdicts=verdicts,
    )


MISSING: Final = object()


def _taken(data: Mapping[str, Any], key: str, kind: type, default: Any = MISSING) -> Any:
    """Give what stands under a key, if it is of a type; the default where there is nothing."""
    value = data.get(key)
    if value is None and default is not MISSING:
        return default
    if type(value) is not kind:
        raise DocumentError(
            f"{key} of the results is {shown(repr(value))}, and {kind.__name__} is wanted"
        )
    return value


def _number(value: Any, key: str) -> float:
    """Read a number, one that is infinite or none included."""
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        raise DocumentError(f"{key} of the results is {shown(repr(value))}, and is no number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _threshold(data: Mapping[str, Any], key: str, said: str) -> int | None:
    """Read what is recommended for a key.

    A length that configurations take for "off" becomes the next one where the document says that
    it was measured: on the safe side, by one token.

    :param said: the document's verdict, in words; empty where it has a number only.
    """
    value = data.get(key)
    if value is None:
        return None
    if type(value) is not int or not (0 < value <= MOST or value in OFF):
        raise DocumentError(
            f"{key} of the recommendation is {shown(repr(value))}, and a length is wanted"
        )
    if value not in OFF:
        return value
    measured = value > 0 and said.rpartition(" to ")[2].startswith(("from ", "always "))
    return value + 1 if measured and value != NEVER else NEVER


def _time(row: Any) -> Time:
    if not isinstance(row, dict):
        raise DocumentError(f"a row of the results is {shown(repr(row))}")
    branch = _taken(row, "branch", str)
    if branch not in ("sliding", "compressed"):
        raise DocumentError(f"branch of a row is {shown(branch)}")
    return Time(
        branch=branch,
        length=_size(row, "sequence_length", _taken(row, "sequence_length", int)),
        window=_size(row, "window_size", _taken(row, "window_size", int, None)),
        masked_ms=_number(row.get("masked_ms"), "masked_ms"),
        fa2_ms=_number(row.get("fa2_ms"), "fa2_ms"),
        speedup=_number(row.get("speedup"), "speedup"),
    )


def _size(row: Mapping[str, Any], key: str, value: Any) -> Any:
    """Give a size that was read, or that there is none."""
    if value is not None and not 0 < value <= MOST:
        raise DocumentError(f"{key} of a row is {shown(repr(row[key]))}, and a length is wanted")
    return value


def _verdicts(answers: list[Any], question: Mapping[str, Any]) -> dict[str, str]:
    """Say what the repetitions of a measurement have answered to the question that was asked."""
    asked = {key: question.get(key) for key in ("margin", "regime", "reference")}
    found = {}
    for each in answers:
        if isinstance(each, dict) and asked.items() <= each.items():
            words = [_answer(each.get(name)) for name in ("first", "last")]
            if all(words):
                found[str(each.get("key"))] = " to ".join(dict.fromkeys(words))
    return found


def _answer(said: Any) -> str:
    """Say an answer in words of ours; nothing where it is none."""
    if not isinstance(said, dict):
        return ""
    answer, value = said.get("answer"), said.get("value")
    number = value if type(value) is int and 0 < value <= MOST else None
    known: dict[str, str] = {
        Answer.NEVER: "never",
        Answer.NO_DATA: "no data",
        Answer.FROM: f"from {number}" if number else "",
        Answer.ALWAYS: f"always (measured from {number})" if number else "",
    }
    return known.get(answer, "") if isinstance(answer, str) else ""


def find_faults(measured: Measured, card: str, margin: str) -> list[str]:
    """Give a sentence for each reason why these results decide nothing.

    :param card: that was asked for. :param margin: likewise.
    """
    faults = []
    if not measured.cuda:
        faults.append("no GPU was used")
    elif not _is(card, measured.device):
        faults.append(f"it was measured on another card than the {card} that was asked for")
    if not measured.complete:
        faults.append("the benchmark was cut off")
    if not measured.times:
        faults.append("nothing was measured")
    if not measured.parity:
        faults.append("the results of FlashAttention-2 were not shown to be right")
    if measured.margin is not None and measured.margin != float(margin):
        faults.append(
            f"it was judged by a margin of {measured.margin:g}, and {margin} was asked for"
        )
    return faults


def _is(card: str, device: str) -> bool:
    """Say whether a card is of a type; an A10 may call itself A10G."""
    have = gpu.words(device)
    return all(word in have or f"{word}g" in have for word in gpu.words(card.rstrip("+")))


def verdict(threshold: int | None) -> str:
    """Say what a threshold means.

    >>> [verdict(None), verdict(1024), verdict(999999)]
    ['no data', 'from 1024', 'never']
    """
    if threshold is None:
        return "no data"
    return "never" if threshold in OFF else f"from {threshold}"
