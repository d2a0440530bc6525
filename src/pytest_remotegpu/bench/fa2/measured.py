"""A sweep as a value: what was measured, where and when, and what others have written of theirs.

Values only. Must not know how they are judged, nor in what files they lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_remotegpu.bench.fa2.rows import FA2, FLASH, MASKED, Branch, Parity, Row

__all__ = ["BLOCK", "DECIDING", "STRIDE", "Device", "Measured", "Result"]

DECIDING: Final = (MASKED, FLASH, FA2)
"""The columns whose parity counts: what is recommended, and what it is compared with."""
BLOCK, STRIDE = 32, 16
"""Of the compressed branch, where nobody says."""


@dataclass(frozen=True, slots=True)
class Device:
    """The machine, in the words that documents of this kind have long had.

    :ivar cuda_available: whether torch could use a card. :ivar device_name: empty without one.
    :ivar flash_available: whether FlashAttention could run there.
    """

    cuda_available: bool
    device_name: str = ""
    torch_version: str = ""
    cuda_version: str = ""
    flash_available: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """One problem as others write it: two times and their quotient, no more.

    :ivar length: of the sequence, in tokens. :ivar window: ``None`` for the compressed branch.
    :ivar masked_ms: milliseconds, as is ``fa2_ms``.
    :ivar block: tokens that are compressed into one. :ivar stride: tokens between their begins.
    """

    branch: Branch
    length: int
    window: int | None
    speedup: float
    masked_ms: float
    fa2_ms: float
    block: int = BLOCK
    stride: int = STRIDE


@dataclass(frozen=True, slots=True)
class Measured:
    """What a sweep has given.

    :ivar rows: all of them: regimes, columns, repetitions.
    :ivar began: when the first was timed, in UTC: ``2026-05-25T14:03:12Z``. :ivar ended: the last.
    :ivar sweep: what was to be measured, as plain data.
    :ivar environment: of the measurement, as plain data: card, driver, versions, commit.
    :ivar states: of the card, as plain data, in order: clock, power, temperature, ``held_back``.
    :ivar notes: lines for people.
    :ivar parity_output: what the comparisons said. :ivar selection_output: lines of another
        benchmark, of attention over selected blocks.
    :ivar complete: whether nothing of the sweep is still to come.
    :ivar results: what a document of others has in place of rows.
    :ivar parity_passed: what such a document says of parity; ``None`` where it does not.
    :ivar stated: what such a document recommends, by key.
    :ivar cost: of the run, as plain data; empty where nothing was rented, or nobody knows.
    """

    device: Device
    rows: tuple[Row, ...] = ()
    began: str = ""
    ended: str = ""
    sweep: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    states: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    parity_output: str = ""
    selection_output: str = ""
    complete: bool = True
    results: tuple[Result, ...] = ()
    parity_passed: bool | None = None
    stated: Mapping[str, int] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repetitions(self) -> tuple[int, ...]:
        """The numbers of the repetitions, ascending."""
        return tuple(sorted({row.repetition for row in self.rows})) or (1,)

    def parity(self) -> tuple[Parity, str]:
        """Say whether all that decides agrees with float32, and why it does not.

        A row that was timed has to have passed; one that was not claims nothing, unless it failed.
        """
        if self.results and not self.rows:
            return _of_others(self.parity_passed)
        rows = [row for row in self.rows if row.column in DECIDING]
        failed = [row for row in rows if row.parity is Parity.FAILED]
        if failed:
            return Parity.FAILED, _first(failed, "differs from float32")
        unknown = [row for row in rows if row.times and row.parity is not Parity.PASSED]
        if unknown:
            return Parity.NOT_CHECKED, _first(unknown, "was not compared with float32")
        if not any(row.column == FA2 and row.parity is Parity.PASSED for row in rows):
            return Parity.NOT_CHECKED, f"{FA2} was compared with float32 nowhere"
        return Parity.PASSED, ""

    def throttled(self) -> tuple[str, ...]:
        """List the reasons for which the card was slowed down while it measured, each once."""
        found = (reason for state in self.states for reason in _reasons(state.get("held_back")))
        return tuple(dict.fromkeys(found))


def _of_others(passed: bool | None) -> tuple[Parity, str]:  # noqa: FBT001 -- one of three values
    if passed:
        return Parity.PASSED, ""
    if passed is None:
        return Parity.NOT_CHECKED, "nothing is said of a comparison with float32"
    return Parity.FAILED, "the document says that parity did not pass"


def _first(rows: list[Row], what: str) -> str:
    row = rows[0]
    problem = row.problem
    place = f"S={problem.length}" + (f" w={problem.window}" if problem.window is not None else "")
    more = f", and so do {len(rows) - 1} more rows" if len(rows) > 1 else ""
    why = f": {row.why}" if row.why else ""
    return f"{row.column} {what} at {place} ({problem.branch}, {problem.direction}){why}{more}"


def _reasons(said: Any) -> list[str]:
    if isinstance(said, str):
        return [said] if said else []
    return [str(reason) for reason in said] if isinstance(said, list | tuple) else []
