"""What a check has come to: what it measured, what it found, and what to do next.

Knows curves and nothing else: no check, no torch, no pytest.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.diagnostics import curves

__all__ = ["DiagnosisError", "Finding", "Measure", "Verdict"]

WIDTH: Final = 96
"""Characters of a line of text, so that pytest's margin fits beside it."""
NAMES: Final = ("nan", "inf", "-inf")
"""Numbers that JSON has no word for, as texts."""
NAMED: Final = 8
"""Names that a finding's text shows, of parameters for instance; ``to_plain`` has them all."""


class DiagnosisError(AssertionError):
    """Raised by :meth:`Verdict.require` for a verdict that has not passed.

    :ivar verdict: the verdict, whose text is the message.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a check has measured.

    :ivar name: what it is, for instance ``final loss``.
    :ivar value: the number; ``nan`` and infinity are numbers here, and a text names what was met,
        for instance a kernel.
    :ivar unit: of the number, empty where it has none.
    :ivar bound: what it had to be, in words: ``< 0.1``; empty where nothing was asked of it.
    """

    name: str
    value: float | int | str
    unit: str = ""
    bound: str = ""

    @property
    def text(self) -> str:
        """The value with its unit, to four digits."""
        value = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return f"{value} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a check has noticed, and what to do about it.

    :ivar code: a short name that stays the same, for instance ``frozen-parameters``.
    :ivar what: what is so, in a sentence without its stop.
    :ivar next_step: what to look at or to change, likewise.
    :ivar where: names of what it concerns: parameters, modules, ranks, functions.
    :ivar fails: whether the check has failed for it; what does not is a note.
    """

    code: str
    what: str
    next_step: str
    where: tuple[str, ...] = ()
    fails: bool = True

    def __str__(self) -> str:
        head = f"{self.code}: {self.what}" if self.fails else f"note, {self.code}: {self.what}"
        lines = [_wrapped(head)]
        lines += [f"    {name}" for name in self.where[:NAMED]]
        if len(self.where) > NAMED:
            lines.append(f"    and {len(self.where) - NAMED} more")
        lines.append(_wrapped(f"  next: {self.next_step}"))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check; true where it has passed.

    :ivar name: of the check.
    :ivar measured: the numbers that it judged, in order.
    :ivar findings: the likeliest cause first; empty where there is nothing to say.
    :ivar curves: what was measured step by step.
    """

    name: str
    measured: tuple[Measure, ...] = ()
    findings: tuple[Finding, ...] = ()
    curves: tuple[curves.Curve, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing was found for which the check fails: no failure is without a finding."""
        return not any(finding.fails for finding in self.findings)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all findings, in order."""
        return tuple(finding.code for finding in self.findings)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        parts = [f"{self.name}: {_word(self)}", *_rows(self.measured)]
        parts += [textwrap.indent(str(finding), "  ") for finding in self.findings]
        parts += [textwrap.indent(str(curve), "  ") for curve in self.curves if curve.series]
        return "\n".join(parts)

    def value(self, name: str) -> float | int | str:
        """Give what was measured under a name.

        :raises KeyError: where nothing was; it lists the names.
        """
        for measure in self.measured:
            if measure.name == name:
                return measure.value
        known = [measure.name for measure in self.measured]
        raise KeyError(f"{self.name} has measured no {name!r}; it has {known}")

    def require(self) -> Verdict:
        """Give the verdict itself where it has passed.

        :raises DiagnosisError: where it has not; an ``AssertionError`` with the whole text.
        """
        __tracebackhide__ = True  # pytest shows the line that calls this
        if not self.passed:
            raise DiagnosisError(self)
        return self

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write the curves as files into a folder, see :func:`curves.write`.

        :param folder: for instance what the fixture ``artifacts_dir`` gives.
        :return: the files.
        :raises OSError: where the folder or a file can't be written.
        """
        return tuple(path for curve in self.curves for path in curves.write(curve, folder))

    def to_plain(self) -> dict[str, Any]:
        """Give it as texts, numbers, lists and dictionaries, for JSON.

        A number that JSON has no word for is a text there: ``nan``, ``inf``, ``-inf``.
        """
        return {
            "name": self.name,
            "passed": self.passed,
            "measured": [
                {"name": m.name, "value": _plain(m.value), "unit": m.unit, "bound": m.bound}
                for m in self.measured
            ],
            "findings": [
                {
                    "code": finding.code,
                    "what": finding.what,
                    "next_step": finding.next_step,
                    "where": list(finding.where),
                    "fails": finding.fails,
                }
                for finding in self.findings
            ],
            "curves": [
                {
                    "name": curve.name,
                    "x": curve.x,
                    "y": curve.y,
                    "series": {n: [_plain(v) for v in s] for n, s in curve.series.items()},
                }
                for curve in self.curves
            ],
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Verdict:
        """Make it of what :meth:`to_plain` gave, from JSON or not.

        A measured text ``nan``, ``inf`` or ``-inf`` comes back as that number.

        :raises KeyError: where something is missing. :raises TypeError: where it is no mapping.
        """
        return cls(
            name=data["name"],
            measured=tuple(
                Measure(m["name"], _number(m["value"]), m["unit"], m["bound"])
                for m in data["measured"]
            ),
            findings=tuple(
                Finding(f["code"], f["what"], f["next_step"], tuple(f["where"]), f["fails"])
                for f in data["findings"]
            ),
            curves=tuple(
                curves.Curve(
                    c["name"],
                    {name: tuple(map(_number, s)) for name, s in c["series"].items()},
                    c["y"],
                    c["x"],
                )
                for c in data["curves"]
            ),
        )

    def markdown(self) -> str:
        """Give it as a section of a Markdown report, with a heading of the third level."""
        parts = [f"### {self.name}: {_word(self)}\n"]
        if self.measured:
            rows = [
                f"| {_cell(m.name)} | {_cell(m.text)} | {_cell(m.bound)} |" for m in self.measured
            ]
            parts.append(
                "\n".join(["| measured | value | must be |", "|---|---|---|", *rows]) + "\n"
            )
        for finding in self.findings:
            where = ", ".join(f"`{name}`" for name in finding.where[:NAMED])
            more = f" and {len(finding.where) - NAMED} more" if len(finding.where) > NAMED else ""
            note = "" if finding.fails else "note, "
            where = f": {where}{more}" if where else ""
            parts.append(f"- {note}**{finding.code}**: {finding.what}{where}")
            parts.append(f"  <br>Next: {finding.next_step}\n")
        parts += [f"{curve}\n" for curve in self.curves if curve.series]
        return "\n".join(parts)


def _word(verdict: Verdict) -> str:
    return "passed" if verdict.passed else "FAILED"


def _wrapped(text: str) -> str:
    margin = len(text) - len(text.lstrip())
    lines = [
        textwrap.fill(
            line,
            WIDTH,
            subsequent_indent=" " * (margin + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.splitlines()
    ]
    return "\n".join(lines)


def _rows(measured: Sequence[Measure]) -> list[str]:
    """Set the measures as a table without rules."""
    wide = max((len(measure.name) for measure in measured), default=0)
    rows = []
    for measure in measured:
        bound = f"  (must be {measure.bound})" if measure.bound else ""
        rows.append(f"  {measure.name:{wide}}  {measure.text}{bound}")
    return rows


def _plain(value: float | str) -> float | int | str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _number(value: Any) -> Any:
    return float(value) if value in NAMES else value


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
