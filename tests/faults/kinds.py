"""What a kind of fault is, when it strikes, and what a session must come to that meets with it.

Knows no process: ``running`` starts sessions and judges them, the catalogues name the kinds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["CARDS", "CPU", "Draw", "Expected", "Kind", "Verdicts", "repeated"]

CPU: Final = "local:cpu"
CARDS: Final = "local"
"""Where far tests run; the second leases cards, which are pretended to the whole host."""

FRESH: Final = 0.25
"""The part of the sessions that keep away from warm processes."""

LIVE: Final = 0.2
"""The part of those that can, which show output as it comes."""

Verdicts = tuple[str, ...]
"""The verdicts of which a test must have one: what the terminal says of it, in order, or nothing.

``FAILED``, ``ERROR`` for a set-up that failed, ``PASSED ERROR`` for a tear-down that did.
"""


@dataclass(frozen=True)
class Draw:
    """One fault.

    :ivar seed: gives the same fault again. :ivar moment: when it strikes, one of its kind's.
    :ivar delay: seconds between that moment and the fault. :ivar backend: where the tests run.
    :ivar fresh: whether the session keeps away from warm processes. :ivar variant: which of its
        kind's forms it has. :ivar live: whether output is shown as it comes (``-s``).
    """

    seed: int
    moment: str
    delay: float
    backend: str = CPU
    fresh: bool = False
    variant: int = 0
    live: bool = False

    def __str__(self) -> str:
        way = (", fresh" if self.fresh else "") + (", -s" if self.live else "")
        form = f" ({self.variant})" if self.variant else ""
        return f"{self.moment}{form} + {self.delay:.3f} s, {self.backend}{way}"


@dataclass(frozen=True)
class Expected:
    """What a session must come to.

    :ivar status: exit statuses of which it must have one.
    :ivar verdicts: for each test those of which it must have one.
    :ivar says: regular expressions that its output must match. :ivar never: that it must not.
    :ivar lines: for files that it leaves how many lines they may have, at least and at most.
    :ivar reports: whether its summary and its junit file must be complete.
    """

    status: tuple[int, ...]
    verdicts: Mapping[str, Verdicts]
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    lines: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    reports: bool = True


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    :ivar moments: when it may strike; the first is tried in the ordinary suite.
    :ivar files: the project, by the names of its files. :ivar args: of pytest, further ones.
    :ivar expected: what must come of it.
    :ivar strike: does it, where the project does not do it to itself; is given the session.
    :ivar backends: where it may be tried. :ivar fresh: whether only without a warm process.
    :ivar warm: whether only with one.
    :ivar kills: whether a process is killed that can't clean up: the next session does it for it.
    :ivar wrapper: words before the command of the session. :ivar terminal: whether it has a
        terminal of its own. :ivar longest_delay: the longest that may be drawn.
    :ivar variants: how many forms it has. :ivar live: whether its output may be shown as it comes.
    """

    name: str
    moments: tuple[str, ...]
    files: Callable[[Draw], Mapping[str, str]]
    expected: Callable[[Draw], Expected]
    args: tuple[str, ...] = ()
    strike: Callable[[Any, Draw], None] | None = None
    backends: tuple[str, ...] = (CPU, CARDS)
    fresh: bool = False
    warm: bool = False
    kills: bool = False
    wrapper: Callable[[], list[str]] = list
    terminal: bool = False
    longest_delay: float = 0.3
    variants: int = 1
    live: bool = False

    def draw(self, seed: int) -> Draw:
        """Draw one fault of this kind."""
        numbers = random.Random(seed)  # noqa: S311 -- chance that must repeat
        moment = numbers.choice(self.moments)
        delay = round(numbers.uniform(0.0, self.longest_delay), 3)
        fresh = self.fresh or (not self.warm and numbers.random() < FRESH)
        variant = numbers.randrange(self.variants)
        live = self.live and numbers.random() < LIVE
        return Draw(seed, moment, delay, numbers.choice(self.backends), fresh, variant, live)

    def plainly(self, moment: str = "", variant: int = 0) -> Draw:
        """Give a fault that strikes at once, with nothing drawn."""
        backend = self.backends[0]
        return Draw(0, moment or self.moments[0], 0.0, backend, self.fresh, variant)


def repeated(seed: int, kinds: list[Kind], count: int) -> list[tuple[Kind, Draw]]:
    """Draw faults: each kind as often as any other, and the rest by chance, in any order."""
    numbers = random.Random(seed)  # noqa: S311 -- chance that must repeat
    drawn = kinds * (count // len(kinds))
    drawn += numbers.sample(kinds, count - len(drawn))
    numbers.shuffle(drawn)
    return [(kind, kind.draw(numbers.getrandbits(32))) for kind in drawn]
