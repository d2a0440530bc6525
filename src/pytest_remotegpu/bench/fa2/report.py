"""The report of a sweep in Markdown: what was decided and why, on which machine, by which kernels.

Values in, text out.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pytest_remotegpu.bench.fa2 import charts, judging, showing
from pytest_remotegpu.bench.fa2.charts import Chart
from pytest_remotegpu.bench.fa2.judging import Judgement, Question, Setting
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import Branch, Parity, Problem, Regime, Row

__all__ = ["NAME", "cost", "markdown", "table"]

NAME: Final = "report.md"
LEFT_OUT: Final = ("card", "device", "uuid")
"""Of the environment: the card has a line of its own, and which one it was says nothing."""
SHOWN: Final = 20
"""Lines of the comparisons with float32 that are shown."""
PASSED: Final = ": passed"
OF_STATES: Final = ("sm_mhz", "memory_mhz", "watts", "celsius")
"""Numbers in the states of a card whose range is shown."""


def markdown(
    measured: Measured, question: Question, *, unread: Sequence[str] = (), picture: str = ""
) -> str:
    """Write the report.

    :param unread: what of a document was not understood. :param picture: the name of the file with
        the maps; empty where there is none.
    """
    judgement = judging.judge(measured, question)
    parts = [
        _head(measured, judgement),
        _decided(measured, judgement),
        _maps(measured, judgement, picture),
        _times(measured),
        _kernels(measured),
        _parity(measured),
        _machine(measured),
        _unread(unread),
    ]
    text = "\n".join(line for part in parts for line in part)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    r"""Write rows as a table; the first is the head. What could end a cell is escaped.

    >>> list(table([("a", "b"), ("1|2", "")]))
    ['| a | b |', '| --- | --- |', '| 1\\|2 |  |']
    """
    for place, row in enumerate(rows):
        cells = (re.sub(r"\s+", " ", text).replace("|", "\\|") for text in row)
        yield f"| {' | '.join(cells)} |"
        if not place:
            yield f"|{' --- |' * len(row)}"


def _head(measured: Measured, judgement: Judgement) -> Iterator[str]:
    yield "# FlashAttention-2: from which length on"
    yield ""
    rows = [("", "")]
    device = measured.device
    rows.append(("card", device.device_name if device.cuda_available else "no card was used"))
    rows += [(name, str(measured.environment[name])) for name in _versions(measured)]
    rows += [
        (name, text)
        for name, text in (("torch", device.torch_version), ("CUDA", device.cuda_version))
        if text and name.lower() not in measured.environment
    ]
    rows.append(("measured", _when(measured)))
    rows.append(("asked for", str(judgement.question)))
    if measured.cost:
        rows.append(("cost", cost(measured.cost)))
    yield from table(rows)
    yield ""
    if not measured.complete:
        yield "**The sweep has not come to its end; what it had measured until then is below.**"
        yield ""


def _versions(measured: Measured) -> list[str]:
    """Name what of the environment is a word or a number, and not said otherwise."""
    return [
        name
        for name, value in measured.environment.items()
        if name not in LEFT_OUT and isinstance(value, str | int | float) and value != ""
    ]


def _when(measured: Measured) -> str:
    if measured.began and measured.ended and measured.began != measured.ended:
        return f"{measured.began} to {measured.ended}"
    return measured.ended or measured.began or "not said"


def cost(said: Mapping[str, Any]) -> str:
    """Write what a run has cost."""
    total, currency = said.get("total"), said.get("currency", "USD")
    if not isinstance(total, int | float):
        return "not known"
    where = f", {said['where']}" if said.get("where") else ""
    return f"{total:.4f} {currency}{where}"


# what was decided


def _decided(measured: Measured, judgement: Judgement) -> Iterator[str]:
    yield "## What a configuration gets"
    yield ""
    rows = [("key", "value", "because")]
    for line, why in charts.reasons(judgement):
        key, _, rest = line.partition(" ")
        rows.append((f"`runtime.{key}`" if key != judging.SEL else f"`{key}`", rest, why))
    yield from table(rows)
    yield ""
    if judgement.trouble:
        yield f"**Nothing is recommended: {judgement.trouble}.**"
        yield ""
    for line in charts.two_dimensions(judgement):
        yield f"- {line}"
    yield ""
    yield "## Thresholds"
    yield ""
    answers = charts.answers(measured, judgement.question)
    yield from table(answers) if answers else ["None: nothing was measured."]
    yield ""


# the maps


def _maps(measured: Measured, judgement: Judgement, picture: str) -> Iterator[str]:
    margin = judgement.question.margin
    yield "## Maps"
    yield ""
    yield (
        f"How many times faster FlashAttention-2 is, with the interval in which the median lies. "
        f"{charts.KEPT} keeps the margin {margin:g} for certain, {charts.SOME} in some repetitions "
        "only."
    )
    yield ""
    if picture:
        yield f"![maps]({picture})"
        yield ""
    for reference in charts.references(measured):
        for chart in charts.charts(measured, reference):
            yield f"### {chart.title}"
            yield ""
            for regime in Regime:
                if chart.cells[regime]:
                    yield from _map(chart, regime, margin)
    for cell in _untimed(measured):
        yield f"- {cell}"
    yield ""


def _map(chart: Chart, regime: Regime, margin: float) -> Iterator[str]:
    windows = [f"w={window}" if window else "speedup" for window in chart.windows]
    rows = [(f"S, {regime} time", *windows)]
    cells = chart.map(regime).cells
    for size in chart.lengths:
        texts = (
            charts.speed(cells.get((size, window)), chart.mark(regime, size, window, margin))
            for window in chart.windows
        )
        rows.append((chart.size(size), *texts))
    yield from table(rows)
    yield ""


def _untimed(measured: Measured) -> Iterator[str]:
    """Say what could not be timed, and why; once for all regimes and repetitions."""
    found = {
        f"{row.column} was not timed for {_problem(row.problem)}: {row.why}"
        for row in measured.rows
        if not row.times and row.why and row.parity is not Parity.FAILED
    }
    yield from sorted(found)


def _problem(problem: Problem) -> str:
    return f"S={problem.length}{_within(problem)} ({problem.branch}, {Setting.of(problem)})"


def _within(problem: Problem) -> str:
    if problem.branch is Branch.SLIDING:
        return f" w={problem.window}"
    return f" l={problem.block} d={problem.stride}"


# times of all columns


def _times(measured: Measured) -> Iterator[str]:
    """Write the median times of each column, which speedups do not show."""
    columns = tuple(dict.fromkeys(row.column for row in measured.rows if row.times))
    if not columns:
        return
    found: dict[tuple[Problem, Regime], dict[str, list[float]]] = {}
    for row in measured.rows:
        if row.times:
            of = found.setdefault((row.problem, row.regime), {})
            of.setdefault(row.column, []).append(statistics.median(row.times))
    yield "## Times"
    yield ""
    yield "Medians in milliseconds, of all repetitions."
    yield ""
    yield "<details><summary>all problems</summary>"
    yield ""
    rows = [("problem", "time", *columns)]
    for (problem, regime), of in found.items():
        texts = (f"{statistics.median(of[each]):.4f}" if each in of else "-" for each in columns)
        rows.append((_problem(problem), str(regime), *texts))
    yield from table(rows)
    yield ""
    yield "</details>"
    yield ""


# what ran, and whether it was right


def _kernels(measured: Measured) -> Iterator[str]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for row in measured.rows:
        where = row.column, str(row.problem.direction)
        for name in row.kernels:
            counts = found.setdefault(where, {})
            counts[name] = counts.get(name, 0) + 1
    if not found and not measured.rows:
        return
    yield "## Kernels"
    yield ""
    if not found:
        yield "No profiler has looked, so nobody knows which kernels ran."
        yield ""
        return
    yield "What ran, by the profiler, and for how many rows."
    yield ""
    rows = [("column", "direction", "kernel", "rows")]
    for where, counts in found.items():
        rows += [(*where, f"`{name}`", str(number)) for name, number in counts.items()]
    yield from table(rows)
    yield ""


def _parity(measured: Measured) -> Iterator[str]:
    state, why = measured.parity()
    yield "## Parity"
    yield ""
    yield f"Against float32: **{state}**{f': {why}' if why else ''}."
    yield ""
    rows = [row for row in measured.rows if row.parity is Parity.FAILED]
    for line in sorted({_failed(row) for row in rows}):
        yield f"- {line}"
    yield from _said(measured.parity_output.splitlines())


def _said(lines: Sequence[str]) -> Iterator[str]:
    """Show what comparisons have said; of those that passed, how many there are."""
    others = [line for line in lines if not line.endswith(PASSED)]
    passed = len(lines) - len(others)
    if passed:
        yield f"{passed} comparison{'s' if passed != 1 else ''} passed."
    if others:
        yield ""
        yield "```text"
        yield from (line.replace("```", "'''") for line in others[:SHOWN])
        if len(others) > SHOWN:
            yield f"... and {len(others) - SHOWN} more lines, in the document"
        yield "```"
    yield ""


def _failed(row: Row) -> str:
    return f"{row.column} failed for {_problem(row.problem)}: {row.why or 'no reason is given'}"


def _machine(measured: Measured) -> Iterator[str]:
    yield "## The card while it measured"
    yield ""
    throttled = measured.throttled()
    if throttled:
        yield f"- **held back by: {', '.join(throttled)}**"
    elif measured.states:
        yield "- nothing held it back"
    else:
        yield "- nobody looked at its clocks"
    for name, numbers in _numbers(measured.states).items():
        yield f"- {name}: {min(numbers):g} to {max(numbers):g}"
    yield from (f"- {note}" for note in measured.notes)
    if measured.sweep:
        yield ""
        yield f"The sweep: `{json.dumps(measured.sweep, ensure_ascii=False)}`"
    yield ""


def _numbers(states: Iterable[Any]) -> dict[str, list[float]]:
    """Collect the numbers of states by their name, however deep they lie."""
    found: dict[str, list[float]] = {}
    for state in states:
        for name, value in state.items() if isinstance(state, Mapping) else ():
            if isinstance(value, Mapping):
                for inner, numbers in _numbers([value]).items():
                    found.setdefault(inner, []).extend(numbers)
            elif name in OF_STATES and isinstance(value, int | float):
                found.setdefault(name, []).append(value)
    return found


def _unread(unread: Sequence[str]) -> Iterator[str]:
    if unread:
        yield "## Not understood"
        yield ""
        yield from showing.table([(f"- {line}",) for line in unread])
