"""The JSON document of a sweep: the keys that others have long read, and more beside them.

Strict JSON: what is no number is ``null`` under the old keys and a word under the new ones. Files
that have the old keys alone, and texts of lines, are read too. Knows files and values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from pytest_remotegpu.bench import thresholds, whole
from pytest_remotegpu.bench.fa2 import foreign, judging
from pytest_remotegpu.bench.fa2.judging import (
    MARGINS,
    REFERENCES,
    Cell,
    Judgement,
    Question,
    Setting,
)
from pytest_remotegpu.bench.fa2.measured import Device, Measured, Result
from pytest_remotegpu.bench.fa2.rows import MASKED, Branch, Parity, Regime, Row
from pytest_remotegpu.bench.lines import Compressed, Sliding, parse
from pytest_remotegpu.bench.thresholds import Span, Threshold
from pytest_remotegpu.errors import UsageError

__all__ = ["FORMAT", "NAME", "VERSION", "Document", "from_plain", "read", "to_plain", "write"]

NAME: Final = "fa2.json"
FORMAT: Final = "pytest-remotegpu/fa2"
VERSION: Final = 1
"""Grows where a key goes, or comes to mean something else; not where one is added."""
WORDS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read.

    :ivar name: of its file.
    :ivar question: what it answered when it was written; ``None`` where it does not say.
    :ivar unread: what in it was not understood, in words.
    """

    name: str
    measured: Measured
    question: Question | None = None
    unread: tuple[str, ...] = ()


# writing


def to_plain(measured: Measured, question: Question) -> dict[str, Any]:
    """Give the document as plain data, without a number that JSON has not."""
    judgement = judging.judge(measured, question)
    results = list(_results(measured, question.regime))
    return {
        "device_info": asdict(measured.device),
        "parity_passed": judgement.parity is Parity.PASSED,
        "parity_output": measured.parity_output,
        "benchmark_output": "\n".join(map(_line, results)),
        "selection_output": measured.selection_output,
        "recommendation": judgement.recommendation,
        "results": [_result(one) for one in results],
        "timestamp": measured.ended or measured.began,
        **_more(measured, judgement),
    }


def _more(measured: Measured, judgement: Judgement) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "complete": measured.complete,
        "began": measured.began,
        "ended": measured.ended,
        "question": msgspec.to_builtins(judgement.question),
        "parity": str(judgement.parity),
        "trouble": judgement.trouble,
        "thresholds": list(_thresholds(measured, judgement.question)),
        "by_direction": list(_by_direction(measured, judgement.question)),
        "beyond": [list(place) for place in judgement.beyond],
        "rule": [{"window": w, "from": start} for w, start in judgement.rule.items()],
        "environment": _open(measured.environment),
        "states": _open(measured.states),
        "sweep": _open(measured.sweep),
        "notes": list(measured.notes),
        "cost": _open(measured.cost),
        "kernels": _kernels(measured.rows),
        "rows": [_row(row) for row in measured.rows],
    }


def _open(value: Any) -> Any:
    """Give open data as JSON has it; a number that it has not is ``null``."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _open(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_open(each) for each in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _row(row: Row) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(row)
    return {**plain, "times": [_number(time) for time in row.times]}


def _number(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)


def _kernels(rows: Iterable[Row]) -> dict[str, list[str]]:
    """List by column the kernels that ran, each once."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row.column, {}).update(dict.fromkeys(row.kernels))
    return {column: list(names) for column, names in found.items()}


def _thresholds(measured: Measured, question: Question) -> Iterable[dict[str, Any]]:
    """Answer for each margin, regime and reference; that of the question among them."""
    for margin in sorted({*MARGINS, question.margin}):
        for regime in Regime:
            for reference in dict.fromkeys((*REFERENCES, question.reference)):
                asked = replace(question, margin=margin, regime=regime, reference=reference)
                for key, found in judging.spans(measured, asked).items():
                    if key != judging.SEL or (regime, reference) == (Regime.EAGER, MASKED):
                        yield {
                            "key": key,
                            "margin": margin,
                            "regime": str(regime),
                            "reference": reference,
                            **_span(found),
                        }


def _by_direction(measured: Measured, question: Question) -> Iterable[dict[str, Any]]:
    """Answer the same for each direction alone, where the question is about several."""
    for direction in judging.alone(measured, question):
        for each in _thresholds(measured, replace(question, directions=(direction,))):
            if each["key"] != judging.SEL:
                yield {"direction": str(direction), **each}


def _span(found: Span) -> dict[str, Any]:
    return {
        "unit": found.last.unit,
        "repetitions": found.runs,
        "agreed": found.agreed,
        "first": _threshold(found.first),
        "last": _threshold(found.last),
        "number": found.last.number,
    }


def _threshold(one: Threshold) -> dict[str, Any]:
    return {"answer": str(one.answer), "value": one.value, "why": one.why}


# the old keys


def _results(measured: Measured, regime: Regime) -> Iterable[Result]:
    """Give what the old keys have room for: one regime, the first setting, the masked reference."""
    if measured.results and not measured.rows:
        yield from measured.results
        return
    found = judging.cells(measured, regime, MASKED)
    firsts: dict[Branch, Setting] = {}
    groups: dict[tuple[int, ...], list[Cell]] = {}
    for cell in found:
        if firsts.setdefault(cell.branch, cell.setting) == cell.setting:
            place = cell.length, cell.window, cell.block, cell.stride
            groups.setdefault(place, []).append(cell)
    for group in groups.values():
        one = sorted(group, key=lambda cell: cell.speedup.mid)[len(group) // 2]
        times = one.speedup.mid, one.reference_ms, one.own_ms
        yield Result(one.branch, one.length, one.window or None, *times, one.block, one.stride)


def _line(one: Result) -> str:
    times = one.masked_ms, one.fa2_ms, one.speedup
    if one.branch is Branch.SLIDING:
        return str(Sliding(one.length, one.window or 0, *times))
    return str(Compressed(one.length, one.block, one.stride, *times))


def _result(one: Result) -> dict[str, Any]:
    return {
        "branch": str(one.branch),
        "sequence_length": one.length,
        "window_size": one.window,
        "speedup": _open(one.speedup),
        "masked_ms": _open(one.masked_ms),
        "fa2_ms": _open(one.fa2_ms),
    }


def write(path: Path, measured: Measured, question: Question) -> None:
    """Write the document in one step: whoever reads finds the old one or the new one, and it whole.

    :raises OSError: where that can't be done; then the old one is still there.
    """
    lines = ",\n".join(
        f" {json.dumps(key)}: {_text(value)}" for key, value in to_plain(measured, question).items()
    )
    whole.put(path, f"{{\n{lines}\n}}\n".encode("ascii"))


def _text(value: Any) -> str:
    """Write a value; a list of objects with each on a line of its own, which a diff shows."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rows = ",\n  ".join(json.dumps(each, allow_nan=False) for each in value)
        return f"[\n  {rows}\n ]"
    return json.dumps(value, allow_nan=False)


# reading


def read(path: Path) -> Document:
    """Read a document, or a text of lines.

    :raises UsageError: where it can't be read, is broken, or is of a version that is not known.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8: byte {error.start} can't be read") from error
    if not text.lstrip().startswith(("{", "[")):
        found, unread = foreign.from_text(text)
        if not found.results and not found.selection_output:
            raise UsageError(
                f"{path} has no line of a benchmark of FlashAttention-2",
                fix="give a document that remotegpu bench fa2 has written, or a text with lines "
                f"such as {Sliding(256, 64, 0.2, 0.1, 2)}",
            )
        return Document(str(path), found, None, unread)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is broken JSON: {error}") from error
    return from_plain(data, str(path))


def from_plain(data: Any, name: str = "the document") -> Document:
    """Read a document from plain data.

    :param name: stands in messages.
    :raises UsageError: where it is none, or of a version that is not known.
    """
    if not isinstance(data, dict):
        raise UsageError(f"{name} holds no document but a {type(data).__name__}")
    if "format" not in data:
        found, unread = foreign.from_plain(data, name)
        return Document(name, found, None, unread)
    _check_version(data, name)
    try:
        measured = _measured(data)
        question = msgspec.convert(data["question"], Question)
        _check_numbers(measured, question)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError, OverflowError) as error:
        what = f"lacks the key {error}" if isinstance(error, KeyError) else f"is broken: {error}"
        raise UsageError(f"{name} {what}", fix="measure again, or take another file") from error
    output = str(data.get("benchmark_output", ""))
    return Document(name, measured, question, foreign.unread("benchmark_output", parse(output)))


def _check_version(data: Mapping[str, Any], name: str) -> None:
    kind, version = data["format"], data.get("version")
    if (kind, version) != (FORMAT, VERSION) or type(version) is not int:
        raise UsageError(
            f"{name} has the format {kind!r}, version {version!r}, and this package reads "
            f"{FORMAT!r}, version {VERSION}",
            fix="upgrade pytest-remotegpu where the file was written by a newer one",
        )


def _check_numbers(measured: Measured, question: Question) -> None:
    """See that sizes are sizes, and the margin is one: what judges them takes that for granted.

    :raises ValueError: where one is not.
    """
    thresholds.in_words(question.margin)
    for problem in dict.fromkeys(row.problem for row in measured.rows):
        sliding = problem.branch is Branch.SLIDING
        more = ("window",) if sliding else ("block", "stride")
        for name in ("length", *more):
            number = getattr(problem, name)
            if number is None or not 1 <= number < thresholds.LARGEST:
                raise ValueError(f"the {name} of a {problem.branch} problem is {number}")


def _measured(data: Mapping[str, Any]) -> Measured:
    rows = msgspec.convert([_with_times(row) for row in data["rows"]], tuple[Row, ...])
    return Measured(
        device=msgspec.convert(data["device_info"], Device),
        rows=rows,
        began=msgspec.convert(data["began"], str),
        ended=msgspec.convert(data["ended"], str),
        sweep=msgspec.convert(data["sweep"], dict[str, Any]),
        environment=msgspec.convert(data["environment"], dict[str, Any]),
        states=msgspec.convert(data["states"], tuple[dict[str, Any], ...]),
        notes=msgspec.convert(data["notes"], tuple[str, ...]),
        parity_output=msgspec.convert(data["parity_output"], str),
        selection_output=msgspec.convert(data["selection_output"], str),
        complete=msgspec.convert(data["complete"], bool),
        cost=msgspec.convert(data["cost"], dict[str, Any]),
        **({} if rows else _results_of(data)),
    )


def _results_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what a document of others had, which was written anew."""
    found, _ = foreign.from_plain(data, "the document")
    passed = found.parity_passed if found.results else None
    return {"results": found.results, "parity_passed": passed}


def _with_times(row: Any) -> Any:
    if isinstance(row, dict) and isinstance(row.get("times"), list):
        times = [WORDS.get(time, time) if isinstance(time, str) else time for time in row["times"]]
        return {**row, "times": times}
    return row
