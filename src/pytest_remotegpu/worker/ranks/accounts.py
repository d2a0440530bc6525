"""What one rank says of one test: its reports with their sections, and how far it has come.

Events in, values out; knows no process, and nothing of other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pytest_remotegpu.protocol import events, packing
from pytest_remotegpu.protocol.plain import from_text

__all__ = ["TEXT", "Account", "End", "Told"]

TEXT: Final = "remotegpu_rank_text"
"""The attribute of a report that holds its error as text, on its way from a rank."""
ORDINARY: Final = "$report_type"
WASXFAIL: Final = "wasxfail"
RERUN: Final = "rerun"
PHASES: Final = ("setup", "call", "teardown")


@dataclass(frozen=True)
class End:
    """Why a rank has not come to the end of a test.

    :ivar how: in words, such as ``was killed by SIGSEGV``. :ivar at: when, as ``time.time`` has it.
    :ivar stack: what it did. :ivar stdout: what it had written. :ivar stderr: likewise.
    :ivar stopped: whether it was ended because of what others did.
    :ivar inside: the collective that it was in; empty where it was in none.
    """

    how: str
    at: float
    stack: str = ""
    stdout: str = ""
    stderr: str = ""
    stopped: bool = False
    inside: str = ""

    @property
    def words(self) -> str:
        """How it ended, and in which collective."""
        return f"{self.how}, in {self.inside}" if self.inside else self.how


@dataclass(frozen=True)
class Told:
    """One report of one rank.

    :ivar open: its open fields, plain. :ivar sections: name and text of each.
    :ivar keywords: those of the test. :ivar text: its error as text; the reason of a skip.
    """

    rank: int
    report: events.Report
    open: dict[str, Any]
    sections: list[tuple[bytes, bytes]]
    keywords: list[bytes]
    text: str

    @property
    def when(self) -> str:
        """The phase."""
        return "" if self.report.when is None else from_text(self.report.when)

    @property
    def kind(self) -> str:
        """What it comes to: pytest's outcome, or ``xfailed`` or ``xpassed``."""
        settled = self.open.get(packing.SETTLED)
        outcome = from_text(self.report.outcome)
        if isinstance(settled, tuple | list) and settled:
            outcome = str(settled[0])
        if WASXFAIL in self.open and outcome in ("passed", "skipped"):
            return "xpassed" if outcome == "passed" else "xfailed"
        return outcome

    @property
    def is_part(self) -> bool:
        """Whether it is that of a sub-test."""
        return ORDINARY not in self.open

    @property
    def at(self) -> float:
        """When its phase ended, as ``time.time`` has it."""
        return self.report.stop or 0.0


@dataclass
class Account:
    """What a rank has said of a test so far.

    :ivar finished: whether it said that it has come to the end.
    """

    rank: int
    finished: bool = False
    told: list[Told] = field(default_factory=list)
    _sections: list[tuple[bytes, bytes]] = field(default_factory=list)
    _pieces: list[bytes] = field(default_factory=list)
    _keywords: list[bytes] = field(default_factory=list)

    def section(self, event: events.Section) -> None:
        """Take in a piece of output."""
        self._pieces.append(event.text)
        if event.last:
            self._sections.append((event.name, b"".join(self._pieces)))
            self._pieces.clear()

    def report(self, event: events.Report) -> None:
        """Take in a report."""
        if event.keywords is not None:
            self._keywords = event.keywords
        data = dict(event.open)
        text = data.pop(TEXT, "")
        sections = [self._sections[index] for index in event.sections]
        self.told.append(Told(self.rank, event, data, sections, self._keywords, str(text)))

    @property
    def attempts(self) -> list[list[Told]]:
        """The reports of whole phases, anew from each setup on."""
        found: list[list[Told]] = []
        for told in self.told:
            if told.is_part or told.when not in PHASES:
                continue
            if told.when == "setup" or not found:
                found.append([])
            found[-1].append(told)
        return found

    @property
    def last(self) -> list[Told]:
        """The reports of the last attempt."""
        attempts = self.attempts
        return attempts[-1] if attempts else []

    @property
    def parts(self) -> list[Told]:
        """The reports of sub-tests."""
        return [told for told in self.told if told.is_part]

    @property
    def complete(self) -> bool:
        """Whether it has a report of each phase that it must have, and has come to the end."""
        return self.finished and self.all_said

    @property
    def all_said(self) -> bool:
        """Whether each phase of the last attempt has its report."""
        phases = [told.when for told in self.last]
        return phases in (["setup", "teardown"], list(PHASES)) and not any(
            told.kind == RERUN for told in self.last
        )

    def of(self, when: str) -> Told | None:
        """Give the report of a phase in the last attempt."""
        return next((told for told in self.last if told.when == when), None)

    @property
    def verdict(self) -> str:
        """What the last attempt comes to: the first kind that is not ``passed``."""
        return next((told.kind for told in self.last if told.kind != "passed"), "passed")

    @property
    def bad_since(self) -> float:
        """When it first failed; infinite where it has not."""
        failed = [told.at for told in self.told if told.kind == "failed"]
        return min(failed, default=float("inf"))

    def log(self, end: End | None) -> str:
        """Write down all that it has said and written, and how it ended where it came to no end."""
        lines: list[str] = []
        for told in self.told:
            lines.append(f"== {told.when}: {told.kind}")
            lines += [told.text] if told.text else []
            lines += [
                f"-- {from_text(name)} --\n{from_text(text)}"
                for name, text in told.sections
                if f" {told.when}".encode() in name
            ]
        if end is not None:
            lines += [f"== {end.words}", end.stack]
            lines += [f"-- stdout --\n{end.stdout}"] if end.stdout else []
            lines += [f"-- stderr --\n{end.stderr}"] if end.stderr else []
        return "\n".join(line.rstrip("\n") for line in lines) + "\n"

    @property
    def stderr(self) -> str:
        """What it wrote to stderr, as far as that was captured."""
        found = [
            from_text(text)
            for told in self.told
            for name, text in told.sections
            if name.startswith(b"Captured stderr")
        ]
        return "".join(dict.fromkeys(found))

    def in_words(self) -> str:
        """Say what it comes to."""
        told = next((told for told in self.last if told.kind != "passed"), None)
        if told is None:
            return "passed" if self.complete else "came to no end"
        reason = " ".join(told.text.split())
        match told.kind:
            case "failed":
                return f"failed in {told.when}"
            case "skipped":
                return f"skipped it ({reason})" if reason else "skipped it"
            case "xfailed":
                return "failed as was expected"
            case "xpassed":
                return "passed, which was not expected"
        return f"says {told.kind!r}"
