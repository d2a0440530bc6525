"""What ran where, as data: the same summary feeds the terminal and files.

Knows nothing of pytest, of workers or of whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_remotegpu.gpu import Shape

MOST_NAMES = 10
MOST_NOTES = 100

__all__ = ["RunSummary", "ShapeSummary"]


@dataclass
class ShapeSummary:
    """What ran on one shape.

    :ivar workers: how many were started.
    :ivar tests: how many came back.
    :ivar seconds: of the tests' phases.
    :ivar slowest: the longest test and its seconds.
    """

    shape: Shape
    workers: int = 0
    tests: int = 0
    seconds: float = 0.0
    slowest: tuple[float, str] = (0.0, "")


@dataclass
class RunSummary:
    """What a session has to say of its far side.

    :ivar where: the far side in words.
    :ivar real: whether GPUs were used at all.
    :ivar causes: what went wrong apart from tests, once each.
    """

    where: str = ""
    real: bool = False
    shapes: dict[Shape, ShapeSummary] = field(default_factory=dict)
    artifacts: int = 0
    artifact_names: list[str] = field(default_factory=list)
    artifacts_dir: str = ""
    sent: str = ""
    causes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of(self, shape: Shape) -> ShapeSummary:
        """Give the part of one shape."""
        return self.shapes.setdefault(shape, ShapeSummary(shape))

    def ran(self, shape: Shape, nodeid: str, seconds: float) -> None:
        """Count one test that came back."""
        part = self.of(shape)
        part.tests += 1
        part.seconds += seconds
        part.slowest = max(part.slowest, (seconds, nodeid))

    def blame(self, cause: str) -> None:
        """Keep a cause, once."""
        if cause and cause not in self.causes:
            self.causes.append(cause)

    def note(self, text: str) -> None:
        """Keep a line for the user, once."""
        if text and text not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(text if len(self.notes) + 1 < MOST_NOTES else "... and more")

    def lines(self) -> Iterable[str]:
        """Write the closing summary."""
        for part in sorted(self.shapes.values(), key=lambda part: part.shape):
            seconds, nodeid = part.slowest
            yield (
                f"{part.shape}   {part.workers} worker{'s' if part.workers != 1 else ''}   "
                f"{part.tests} test{'s' if part.tests != 1 else ''}   {part.seconds:.2f} s   "
                f"longest {seconds:.2f} s {nodeid}"
            ).rstrip()
        if self.where:
            yield f"on {self.where}" + ("" if self.real else " (no GPU was used)")
        if self.sent:
            yield self.sent
        if self.artifacts:
            yield f"artifacts: {self.artifacts} in {self.artifacts_dir}"
            yield from (f"  {name}" for name in self.artifact_names[:MOST_NAMES])
            if len(self.artifact_names) > MOST_NAMES:
                yield f"  ... and {len(self.artifact_names) - MOST_NAMES} more"
        yield from (f"note: {text}" for text in self.notes)
        yield from (f"cause: {text}" for text in self.causes)
