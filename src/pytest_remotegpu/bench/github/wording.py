"""What is said of a benchmark on GitHub, in its Markdown.

Values in, text out. All that comes from a document or from people stands in code, where it is
neither markup, nor a mention, nor a link.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_remotegpu.bench.configs import KEYS
from pytest_remotegpu.bench.github.documents import SELECTION, Measured, Time, verdict
from pytest_remotegpu.bench.github.runner import code
from pytest_remotegpu.bench.thresholds import in_words

__all__ = ["Job", "changes", "failure", "refusal", "report"]

NAMES: Final[Mapping[str, str]] = {
    KEYS[0]: "sliding window, from this sequence length on",
    KEYS[1]: "compressed, from so many compressed tokens on",
    SELECTION: "selection by Triton, from so many selected tokens on",
}
ROWS: Final = 60
"""Of a table; a comment holds 65,536 signs, and has a table for each card."""
ENDS: Final[Mapping[str, str]] = {
    "failure": "The benchmark failed.",
    "cancelled": "The benchmark was cancelled.",
    "skipped": "The benchmark was not started.",
}


@dataclass(frozen=True, slots=True)
class Job:
    """What was to be measured, as the job that decided it has it.

    :ivar card: a type. :ivar margin: such as ``1.2``. :ivar sha: the commit.
    :ivar url: of the run's page. :ivar result: of the job that measured, as GitHub names it.
    """

    card: str
    margin: str
    sha: str
    url: str
    result: str = "success"


def report(job: Job, measured: Measured, faults: Sequence[str], proposal: str = "") -> str:
    """Say what was measured, and what it decides.

    :param faults: why it decides nothing; empty where it does.
    :param proposal: what has become of the thresholds, in Markdown.
    """
    lines = [_head(job), ""]
    if job.result != "success":
        lines += [f"**{ENDS.get(job.result, ENDS['failure'])}** {_log(job)}", ""]
    if faults:
        lines += ["**No thresholds**, for these reasons:", ""]
        lines += [f"- {fault}" for fault in faults]
        lines += [f"- {code(measured.trouble)}"] if measured.trouble else []
        lines += [""]
    else:
        lines += [*_thresholds(measured), ""]
    if proposal:
        lines += [proposal, ""]
    return "\n".join([*lines, *_details(job, measured)])


def failure(job: Job, why: str) -> str:
    """Say that there is nothing to report."""
    said = ENDS.get(job.result, "The benchmark ended, and there is nothing that could be read.")
    return "\n".join(
        [_head(job), "", f"**{said}** No thresholds: {code(why)}. {_log(job)}", *_foot(job)]
    )


def refusal(reply: str) -> str:
    """Say that a wish was not fulfilled, and why."""
    return f"**Not run:** {code_in(reply)}"


def code_in(text: str) -> str:
    """Write a sentence of ours with parts of others in it, all of it as code, in pieces."""
    pieces = [piece for piece in text.split(". ") if piece]
    return "<br>".join(code(piece) for piece in pieces)


def changes(before: Mapping[str, int | None], after: Mapping[str, int]) -> Iterator[str]:
    """Give a table of what a configuration has and would have."""
    yield "| key | now | measured |"
    yield "|---|---|---|"
    for key, value in after.items():
        had = before.get(key)
        now = "not set" if had is None else f"{had} ({verdict(had)})"
        yield f"| `runtime.{key}` | {now} | {value} ({verdict(value)}) |"


def _head(job: Job) -> str:
    return f"### FlashAttention-2 on {code(job.card)}"


def _log(job: Job) -> str:
    return f"[The run]({job.url}) has its log."


def _thresholds(measured: Measured) -> Iterator[str]:
    yield "| | verdict | value |"
    yield "|---|---|---|"
    for key, value in measured.thresholds.items():
        if value is None and key == SELECTION:
            continue
        number = "" if value is None else str(value)
        said = measured.verdicts.get(key) or verdict(value)
        yield f"| {NAMES[key]} (`{key}`) | **{said}** | {number} |"


def _details(job: Job, measured: Measured) -> Iterator[str]:
    if measured.times:
        yield "<details><summary>Times</summary>"
        yield ""
        yield from _times(measured.times, float(job.margin))
        yield ""
        yield "</details>"
        yield ""
    versions = [f"{name} {version}" for name, version in measured.versions.items() if version]
    told = [measured.device, *versions, measured.when]
    yield ", ".join(code(each) for each in told if each)
    yield from _foot(job)


def _foot(job: Job) -> Iterator[str]:
    yield ""
    yield (f"Margin {in_words(float(job.margin))}, commit {code(job.sha)}, [run]({job.url}).")


def _times(times: Sequence[Time], margin: float) -> Iterator[str]:
    yield "| branch | S | w | masked, ms | FA-2, ms | speedup | |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    ordered = sorted(times, key=lambda row: (row.branch != "sliding", row.length, row.window or 0))
    for row in ordered[:ROWS]:
        window = "" if row.window is None else str(row.window)
        kept = "✓" if math.isfinite(row.speedup) and row.speedup >= margin else ""
        yield (
            f"| {row.branch} | {row.length:.9g} | {window[:12]} | {row.masked_ms:.3g}"
            f" | {row.fa2_ms:.3g} | {row.speedup:.3g} | {kept} |"
        )
    if len(ordered) > ROWS:
        yield ""
        yield f"and {len(ordered) - ROWS} more in the run's artifact"
