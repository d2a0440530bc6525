"""What ranks say that belongs to no phase of a test: collection, warnings, notes, the end.

What all of them say is said once; what only some say bears their names. Events in, events out.
"""

from __future__ import annotations

import msgspec

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.worker.ranks.words import named

__all__ = ["Gathered"]

FIRST_ONLY = events.Collected | events.Phases | events.FileTree | events.Junit
"""What the first rank says for all."""


class Gathered:
    """Takes in what the ranks say.

    :param world: how many there are. :ivar absent: the places of tests that not all of them have.
    """

    def __init__(self, world: int) -> None:
        self._world = world
        self.absent: set[int] = set()
        self._missing: dict[int, dict[int, events.NotFound | events.SkippedThere]] = {}
        self._errors: dict[events.CollectFailed, list[int]] = {}
        self._loose: dict[events.Event, list[int]] = {}
        self._ends: dict[bytes, list[int]] = {}
        self._status = 0

    def take(self, rank: int, event: events.Event) -> list[events.Event]:
        """Take in an event; give what is to be passed on at once."""
        match event:
            case events.NotFound() | events.SkippedThere():
                self._missing.setdefault(event.item, {})[rank] = event
            case events.CollectFailed():
                self._errors.setdefault(event, []).append(rank)
            case events.SessionEnded():
                self._status = self._status or event.status
                self._ends.setdefault(event.text, []).append(rank)
            case events.Note() | events.Warned():
                self._loose.setdefault(event, []).append(rank)
            case events.Log() if self._world > 1:
                text = to_text(f"[{named([rank])}] ") + event.text
                return [msgspec.structs.replace(event, text=text)]
            case events.Live():
                return [event]
            case _ if rank == 0 or not isinstance(event, FIRST_ONLY):
                return [event]
        return []

    def collected(self) -> list[events.Event]:
        """Give what there is to say once all have collected."""
        said: list[events.Event] = []
        for event, ranks in self._errors.items():
            said.append(msgspec.structs.replace(event, text=self._marked(ranks, event.text)))
        for place, told in sorted(self._missing.items()):
            self.absent.add(place)
            said.append(self._absence(place, told))
        self._errors.clear()
        self._missing.clear()
        return [*said, *self.loose()]

    def _absence(
        self, place: int, told: dict[int, events.NotFound | events.SkippedThere]
    ) -> events.Event:
        """Say that a test is not there: on no rank, or not on each."""
        first = next(iter(told.values()))
        kinds = {type(event) for event in told.values()}
        if len(told) == self._world and len(kinds) == 1:
            return first
        found = [rank for rank in range(self._world) if rank not in told]
        parts = [f"{named(found)} found it"] if found else []
        for rank, event in told.items():
            match event:
                case events.SkippedThere():
                    text = f"skipped its file ({from_text(event.reason)})"
                case _:
                    text = f"did not: {from_text(event.text)}"
            parts.append(f"{named([rank])} {text}")
        text = f"the ranks do not agree that this test is there: {'; '.join(parts)}"
        return events.NotFound(place, to_text(text))

    def _marked(self, ranks: list[int], text: bytes) -> bytes:
        if len(set(ranks)) == self._world:
            return text
        return to_text(f"on {named(ranks)}: ") + text

    def loose(self) -> list[events.Event]:
        """Give notes, warnings and failures outside of tests that have come since the last call."""
        said = self._ended()
        for event, ranks in self._loose.items():
            if isinstance(event, events.Note):
                said.append(events.Note(self._marked(ranks, event.text)))
            else:
                said += [event] * max(map(ranks.count, ranks))
        self._loose.clear()
        return said

    def _ended(self) -> list[events.Event]:
        """Give how sessions ended that did not end well."""
        found = [
            events.SessionEnded(self._status, self._marked(ranks, text))
            for text, ranks in self._ends.items()
        ]
        self._ends.clear()
        return list(found)
