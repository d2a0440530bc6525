"""Several faults met in one session: their files lie side by side, and each must come to its own.

For the ordinary suite, which has no time for a session each. Knows the catalogues only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import hostile
from .hostile import Act
from .kinds import Draw, Expected, Kind, Verdicts

__all__ = ["acts", "group"]


def acts(*ends: str) -> list[Act]:
    """List the acts of which a process comes to one of these ends."""
    return [act for act in hostile.ACTS if act.end in ends]


def group(name: str, members: Iterable[tuple[Act, str]], *args: str) -> Kind:
    """Make one kind of several acts, each at its moment, in all its forms.

    :param args: of pytest, for all of them.
    """
    drawn = [
        (act, Draw(0, moment, 0.0, variant=form))
        for act, moment in members
        for form in range(len(act.codes))
    ]

    def files(_draw: Draw) -> Mapping[str, str]:
        made: dict[str, str] = {}
        for act, draw in drawn:
            made |= hostile.files(act, draw)
        return made

    def expected(_draw: Draw) -> Expected:
        each = [hostile.expected(act, draw) for act, draw in drawn]
        seen: dict[str, Verdicts] = {}
        for one in each:
            seen |= one.verdicts
        status = max((one.status for one in each), default=(0,))
        return Expected(status, seen, tuple(words for one in each for words in one.says))

    return Kind(name, ("",), files, expected, args=args)
