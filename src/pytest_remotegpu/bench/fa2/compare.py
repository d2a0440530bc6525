"""Several documents side by side: across cards, versions or commits.

Values in, lines out. Different environments are named.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_remotegpu.bench import thresholds
from pytest_remotegpu.bench.fa2 import judging, showing, surroundings
from pytest_remotegpu.bench.fa2.document import Document
from pytest_remotegpu.bench.fa2.judging import CMP, MARGINS, WIN, Question
from pytest_remotegpu.bench.fa2.rows import FA2, Branch
from pytest_remotegpu.bench.thresholds import Answer

__all__ = ["compare"]

Place = tuple[str, str]
"""The problem and its setting, in words."""


def compare(documents: Sequence[Document], question: Question) -> Iterator[str]:
    """Write the tables.

    :param documents: the first is what the others are set in relation to.
    :param question: of which regime, reference and windows the speedups are.
    """
    yield from _heads(documents)
    yield ""
    yield f"thresholds of {question.regime} time against {question.reference}"
    yield from showing.table(list(_thresholds(documents, question)))
    yield ""
    yield (
        f"times faster than {question.reference} in {question.regime} time; in brackets how many "
        f"times the {FA2} time of [1]"
    )
    yield from showing.table(list(_speedups(documents, question)))
    for document in documents:
        yield from (f"{document.name}: {text}" for text in document.unread)


def _heads(documents: Sequence[Document]) -> Iterator[str]:
    rows = [("", "file", "measured", "on", "parity")]
    for place, document in enumerate(documents, 1):
        measured = document.measured
        when = measured.ended or measured.began or "not said"
        parity, _ = measured.parity()
        name = surroundings.name(measured)
        rows.append((f"[{place}]", document.name, when, name, str(parity)))
    yield from showing.table(rows)
    first = documents[0].measured
    for place, document in enumerate(documents[1:], 2):
        found = surroundings.differences(first, document.measured)
        if found:
            yield f"[1] and [{place}] are of different environments: {'; '.join(found)}"


def _thresholds(documents: Sequence[Document], question: Question) -> Iterator[tuple[str, ...]]:
    yield "key", "margin", *(f"[{place}]" for place in range(1, len(documents) + 1))
    for key in (WIN, CMP):
        for margin in sorted({*MARGINS, question.margin}):
            asked = replace(question, margin=margin)
            found = [judging.spans(document.measured, asked)[key] for document in documents]
            if any(each.last.answer is not Answer.NO_DATA for each in found):
                yield key, thresholds.in_words(margin), *map(str, found)


def _speedups(documents: Sequence[Document], question: Question) -> Iterator[tuple[str, ...]]:
    found = [_cells(document, question) for document in documents]
    places = dict.fromkeys(place for each in found for place in each)
    settings = {setting for _, setting in places}
    yield "problem", *(f"[{place}]" for place in range(1, len(documents) + 1))
    for place in places:
        name = place[0] if len(settings) == 1 else " ".join(place)
        base = found[0].get(place)
        yield name, *(_cell(each.get(place), base, first=not n) for n, each in enumerate(found))


def _cells(document: Document, question: Question) -> Mapping[Place, tuple[float, float]]:
    """Give by problem the speedup and the time of FlashAttention-2: medians of repetitions."""
    several: dict[Place, list[tuple[float, float]]] = {}
    for cell in judging.cells(document.measured, question.regime, question.reference):
        if question.windows and cell.window and cell.window not in question.windows:
            continue
        if question.directions and cell.setting.direction not in question.directions:
            continue
        name = f"S={cell.length} w={cell.window}"
        if cell.branch is Branch.COMPRESSED:
            name = f"S={cell.length} l={cell.block} d={cell.stride}"
        setting = "" if cell.setting == judging.UNKNOWN else str(cell.setting)
        several.setdefault((name, setting), []).append((cell.speedup.mid, cell.own_ms))
    return {
        place: (statistics.median(s for s, _ in each), statistics.median(t for _, t in each))
        for place, each in several.items()
    }


def _cell(found: Any, base: Any, *, first: bool) -> str:
    if found is None:
        return "-"
    speedup, time = found
    text = f"{speedup:.2f}"
    if first or base is None or not base[1] > 0:
        return text
    return f"{text} [{time / base[1]:.2f}]"
