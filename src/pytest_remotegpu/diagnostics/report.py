"""The report of a suite: Markdown for people, JSON for programs, curves beside them.

It has the lines, too, that are shown while a suite runs. Knows outcomes; knows no check and no
command line.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.diagnostics import curves, order, suite
from pytest_remotegpu.diagnostics.asking import FOLDER, Asked
from pytest_remotegpu.diagnostics.suite import Outcome
from pytest_remotegpu.diagnostics.verdict import Finding

__all__ = ["NAME", "Report", "lines", "prepare", "tidy"]

FORMAT: Final = "pytest-remotegpu/diagnosis"
VERSION: Final = 1
WORDS: Final = {
    suite.PASSED: "ok",
    suite.FAILED: "FAIL",
    suite.RAISED: "ERROR",
    suite.NOT_RUN: "not run",
    suite.INTERRUPTED: "STOPPED",
}
"""What a line begins with, by state."""
NAME, DATA, IGNORE = "report.md", "report.json", ".gitignore"
SHOWN: Final = 3
"""Names that a line shows of what a finding concerns."""
KEPT: Final = (".csv", ".png")


def prepare(folder: Path) -> None:
    """Make the folder of a report, and take away what an earlier report of ours has left there.

    :raises OSError: where it can't be made, or nothing can be written there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name == FOLDER:
        curves.place(folder / IGNORE, b"*\n")
    for name in order.names():
        for path in folder.glob(f"{name}-*"):
            if path.suffix in KEPT:
                path.unlink()
    curves.place(folder / NAME, b"")  # so that it is known whether it can be written
    for name in (NAME, DATA):
        (folder / name).unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Take a folder away again in which there is nothing of use."""
    with contextlib.suppress(OSError):
        if folder.name == FOLDER and [path.name for path in folder.iterdir()] == [IGNORE]:
            (folder / IGNORE).unlink()
        folder.rmdir()


class Report:
    """What is known so far; written anew after each check, so that what ends it takes nothing away.

    :ivar outcomes: in order. :ivar complete: whether no check is still to come.
    """

    def __init__(self, asked: Asked, facts: Mapping[str, Any], folder: Path) -> None:
        self.asked, self.folder = asked, folder
        self.outcomes: list[Outcome] = []
        self.complete = False
        self._files: dict[str, list[str]] = {}
        self._facts = {
            "target": asked.target,
            **facts,
            "seed": asked.seed,
            "python": platform.python_version(),
            "host": f"{platform.system()} {platform.machine()}",
            "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }

    def add(self, outcome: Outcome) -> None:
        """Take in what came of a check, and write all of it.

        :raises OSError: where it can't be written.
        """
        self.outcomes.append(outcome)
        if outcome.verdict is not None:
            self._files[outcome.step.name] = [p.name for p in outcome.verdict.save(self.folder)]
        self.write()

    def write(self) -> None:
        """Write both files."""
        text = "\n".join(self._markdown()).rstrip() + "\n"
        curves.place(self.folder / NAME, text.encode(errors="backslashreplace"))
        data = json.dumps(self.to_plain(), indent=2)
        curves.place(self.folder / DATA, f"{data}\n".encode())

    @property
    def status(self) -> int:
        """The exit status: what was raised says more than what failed; nothing is no success."""
        states = [outcome.state for outcome in self.outcomes]
        ranked = (
            (suite.INTERRUPTED, 130),
            (suite.RAISED, 3),
            (suite.FAILED, 1),
            (suite.PASSED, 0),
        )
        return next((status for state, status in ranked if state in states), NONE_MADE)

    @property
    def first(self) -> tuple[Outcome, Finding | None] | None:
        """What to do next: the first check that did not pass, and its likeliest cause."""
        for outcome in self.outcomes:
            if outcome.state == suite.RAISED:
                return outcome, None
            if outcome.state == suite.FAILED and outcome.verdict is not None:
                return outcome, next(f for f in outcome.verdict.findings if f.fails)
        return None

    def to_plain(self) -> dict[str, Any]:
        """Give it for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "complete": self.complete,
            "status": self.status,
            "facts": self._facts,
            "next": self._next(),
            "checks": [
                {
                    "name": outcome.step.name,
                    "state": outcome.state,
                    "because": outcome.because,
                    "seconds": round(outcome.seconds, 3),
                    "verdict": outcome.verdict.to_plain() if outcome.verdict is not None else None,
                    "error": outcome.error.to_plain() if outcome.error is not None else None,
                    "files": self._files.get(outcome.step.name, []),
                }
                for outcome in self.outcomes
            ],
        }

    def _next(self) -> dict[str, str] | None:
        if self.first is None:
            return None
        outcome, finding = self.first
        if finding is None:
            head = outcome.error.head if outcome.error is not None else ""
            return {"check": outcome.step.name, "code": "raised", "what": head, "next_step": RAISES}
        return {
            "check": outcome.step.name,
            "code": finding.code,
            "what": finding.what,
            "next_step": finding.next_step,
        }

    # Markdown

    def _markdown(self) -> Iterator[str]:
        yield f"# Diagnosis of `{self.asked.target}`: {self.summary()}\n"
        yield "## Next\n"
        told = self._next()
        if told is not None:
            yield f"**{told['check']}**, {told['code']}: {told['what']}.\n"
            yield f"{told['next_step'][:1].upper()}{told['next_step'][1:]}.\n"
        else:
            yield f"{self._nothing_failed()}\n"
        yield from ("## What ran where\n", "| | |", "|---|---|")
        yield from (f"| {name} | {_cell(str(value))} |" for name, value in self._facts.items())
        yield from ("\n## Checks\n", "| check | came out | seconds | asks, and why in this order |")
        yield "|---|---|---|---|"
        for outcome in self.outcomes:
            because = f" because: {_cell(outcome.because)}" if outcome.because else ""
            seconds = f"{outcome.seconds:.1f}" if outcome.state != suite.NOT_RUN else ""
            about = _cell(outcome.step.about)
            word = f"{WORDS[outcome.state]}{because}"
            yield f"| {outcome.step.name} | {word} | {seconds} | {about} |"
        yield ""
        for outcome in self.outcomes:
            yield from self._section(outcome)

    def _section(self, outcome: Outcome) -> Iterator[str]:
        if outcome.verdict is not None:
            yield outcome.verdict.markdown()
            for file in self._files.get(outcome.step.name, []):
                yield f"![{file}]({file})\n" if file.endswith(".png") else f"[{file}]({file})\n"
        if outcome.error is not None:
            yield f"### {outcome.step.name}: ERROR\n"
            yield f"{outcome.error.head}\n"
            yield f"```text\n{outcome.error.traceback.rstrip()}\n```\n"

    def summary(self) -> str:
        """Count the outcomes in words."""
        asked = [outcome.state for outcome in self.outcomes if not outcome.chosen]
        states = [*asked, *(["left out"] * (len(self.outcomes) - len(asked)))]
        counts = [f"{states.count(state)} {word}" for state, word in COUNTED if state in states]
        text = ", ".join(counts) or "nothing yet"
        return text if self.complete else f"{text}; not complete"

    def _nothing_failed(self) -> str:
        if not self.complete:
            return "Nothing has failed so far; the suite has not come to its end."
        waits = [o.step.name for o in self.outcomes if o.state == suite.NOT_RUN and not o.chosen]
        if self.status == NONE_MADE:
            return (
                f"Nothing is known: no check was made, see why below. Not run: {', '.join(waits)}."
            )
        more = f" Not run: {', '.join(waits)}." if waits else ""
        return (
            "Nothing: no check has failed. If training is still worse than it should be, data, "
            f"size or time are what is lacking.{more}"
        )


NONE_MADE: Final = 5
"""The exit status where no check was made, as pytest's is where it has run no test."""
RAISES: Final = "see the traceback: the line that it names is yours, or was called by yours"
COUNTED: Final = (
    (suite.PASSED, "passed"),
    (suite.FAILED, "FAILED"),
    (suite.RAISED, "raised"),
    (suite.NOT_RUN, "not run"),
    (suite.INTERRUPTED, "interrupted"),
    ("left out", "not asked for"),
)


def lines(outcome: Outcome) -> Iterator[str]:
    """Give what is shown of a check when it has ended: a line, and what to do below it.

    Nothing of one that the user has not asked for; the report has it.
    """
    if outcome.chosen:
        return
    wide = max(map(len, order.names()))
    took = f"{outcome.seconds:6.1f} s" if outcome.state != suite.NOT_RUN else " " * 8
    head = f"{WORDS[outcome.state]:<7}  {outcome.step.name:<{wide}}"
    yield f"{head}  {took}  {_says(outcome)}".rstrip()
    findings: Sequence[Finding] = outcome.verdict.findings if outcome.verdict is not None else ()
    for finding in findings:
        if finding.fails:
            yield f"{'':9}-> {finding.next_step}"
    if outcome.error is not None:
        yield from (f"{'':9}{line}" for line in outcome.error.traceback.rstrip().splitlines())


def _says(outcome: Outcome) -> str:
    if outcome.error is not None:
        return outcome.error.head
    if outcome.verdict is None:
        return f"because: {outcome.because}"
    found = outcome.verdict.findings
    fails = [
        f"{finding.code}: {finding.what}{_where(finding)}" for finding in found if finding.fails
    ]
    if fails:
        return "; ".join(fails)
    notes = [finding.code for finding in found]
    return f"notes: {', '.join(notes)}" if notes else ""


def _where(finding: Finding) -> str:
    """Name some of what a finding concerns."""
    more = ", ..." if len(finding.where) > SHOWN else ""
    return f" ({', '.join(finding.where[:SHOWN])}{more})" if finding.where else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
