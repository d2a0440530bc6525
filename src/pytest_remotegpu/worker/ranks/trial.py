"""One test while its ranks run it: how far each has come, and when to wait no longer.

Knows members of a team and what they say; ends none of them itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker.ranks.accounts import End
from pytest_remotegpu.worker.ranks.flight import Operation, pending, words
from pytest_remotegpu.worker.ranks.merge import Merger
from pytest_remotegpu.worker.ranks.team import Member
from pytest_remotegpu.worker.ranks.words import named

__all__ = ["Trial"]

GRACE: Final = 2.0
"""Seconds that the others have once a rank has failed or died."""
LONG_GRACE: Final = 10.0
"""The same where it was skipped, say: the others may yet come to that end too."""
LEFTOVER: Final = 5.0
"""Seconds that ranks have to go on once all phases of the test are done in all of them."""


class Trial:
    """Follows one test.

    :param place: the test's.
    """

    def __init__(self, place: int, members: Sequence[Member]) -> None:
        self.place = place
        self._members = members
        self._merger = Merger(place, len(members))
        self._ends: dict[int, End] = {}
        self._memory: dict[int, events.Memory] = {}
        self._since: dict[str, float] = {}

    def take(self, number: int, event: events.Event) -> bool:
        """Take in what a rank says of the test; say whether this was of it."""
        account = self._merger.accounts[number]
        match event:
            case events.Section():
                account.section(event)
            case events.Report():
                account.report(event)
            case events.Finished():
                account.finished = True
            case events.Memory():
                self._memory[number] = event
            case _:
                return False
        return True

    def advance(self) -> list[events.Event]:
        """Give what there is to say already."""
        return self._merger.advance()

    def busy(self) -> list[Member]:
        """Give the ranks that have not come to the end of the test."""
        busy = [member for member in self._members if not self._is_done(member)]
        for member in busy:
            if not member.alive and member.number not in self._ends:
                self._ends[member.number] = member.end()
        return [member for member in busy if member.alive]

    def _is_done(self, member: Member) -> bool:
        """Say whether a rank rests, or goes because it can't be used any more."""
        spoilt = member.handle.spoilt and self._merger.accounts[member.number].finished
        return member.resting is not None or spoilt

    # when to wait no longer

    def _deadline(self) -> tuple[float, str]:
        """Give the time to wait until, and the reason that it is set at all."""
        accounts = self._merger.accounts
        dead = [number for number, end in self._ends.items() if not end.stopped]
        failed = [account.rank for account in accounts if account.verdict == "failed"]
        other = [a.rank for a in accounts if a.verdict not in ("passed", "failed", "rerun")]
        left = [account.rank for account in accounts if account.finished and not account.all_said]
        all_said = all(account.all_said for account in accounts)
        found = [
            (GRACE, dead, "ended"),
            (GRACE, failed, "failed"),
            (GRACE, left, "left the session"),
            (LONG_GRACE, other, "come to another end"),
            (LEFTOVER, list(range(len(accounts))) if all_said else [], "done with the test"),
        ]
        times = [
            (self._since.setdefault(what, time.monotonic()) + grace, ranks, grace, what)
            for grace, ranks, what in found
            if ranks
        ]
        if not times:
            return float("inf"), ""
        at, ranks, grace, what = min(times, key=lambda found: found[0])
        verb = "had" if what != "done with the test" else "were"
        return at, f"was stopped {grace:g} s after {named(ranks)} {verb} {what}"

    def patience(self) -> float | None:
        """Give the seconds to wait at most."""
        at, _ = self._deadline()
        return None if at == float("inf") else max(at - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Say whether there is no more point in waiting."""
        return bool(self.busy()) and time.monotonic() >= self._deadline()[0]

    def stop(self, members: Sequence[Member], recorded: Mapping[int, list[Operation]]) -> None:
        """Take note that ranks are ended now, with their stacks as they have been written.

        :param recorded: the collectives that ranks have entered.
        """
        _, why = self._deadline()
        self._merger.collectives = words(recorded, len(self._members))
        for member in members:
            account = self._merger.accounts[member.number]
            if account.all_said:
                account.finished = True  # what it does now is no part of the test any more
            now = pending(recorded.get(member.number, ()))
            self._ends[member.number] = member.stopped(why, now.name if now else "")

    @property
    def broken(self) -> bool:
        """Whether any rank is gone, so that no further test may run in the others."""
        return bool(self._ends)

    # what comes of it

    @property
    def failures(self) -> int:
        """How many reports have failed."""
        return self._merger.failures

    def finish(self) -> list[events.Event]:
        """Give the test's result."""
        accounts = self._merger.accounts
        ends = {rank: end for rank, end in self._ends.items() if not accounts[rank].complete}
        said = self._merger.finish(ends)
        gone = [
            to_text(f"{named([rank])} {end.how}, at the end of the test{_inside(end)}")
            for rank, end in self._ends.items()
            if rank not in ends
        ]
        if not self.failures:  # else that says it, and here nobody knows how the rest would end
            return [*said, *self._used(), *(events.SessionEnded(1, text) for text in gone)]
        return [*said, *self._used(), *map(events.Note, gone)]

    def ended(self) -> list[events.Event]:
        """Give what there is of a test that ended the session, or what cost a rank its life."""
        if any(not end.stopped for end in self._ends.values()):
            return self.finish()
        return [*self._merger.advance(), *self._merger.rest(), *self._used()]

    def logs(self, ends: Mapping[int, End] | None = None) -> dict[int, str]:
        """Give what each rank has said and written.

        :param ends: of ranks that are about to be ended.
        """
        known = {**self._ends, **(ends or {})}
        return {a.rank: a.log(known.get(a.rank)) for a in self._merger.accounts}

    def strange(self) -> str:
        """Say that some ranks wrote to stderr and others did not, though all have passed."""
        texts = {account.rank: account.stderr.strip() for account in self._merger.accounts}
        loud = [rank for rank, text in texts.items() if text]
        if self.failures or not 0 < len(loud) < len(texts):
            return ""
        return f"{named(loud)} alone wrote to stderr: {texts[loud[0]].splitlines()[0][:200]}"

    def _used(self) -> list[events.Event]:
        """Give what the test did with the memory of all its cards."""
        used = list(self._memory.values())
        if not used:
            return []
        return [
            events.Memory(
                used[0].item,
                sum(one.allocated for one in used),
                sum(one.reserved for one in used),
                sum(one.leaked for one in used),
                min(one.free for one in used),
                max(one.total for one in used),
            )
        ]


def _inside(end: End) -> str:
    return f", in {end.inside}" if end.inside else ""
