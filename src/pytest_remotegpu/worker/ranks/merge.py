"""One account of a test out of those of all its ranks.

Passed is only what each rank has passed, with a report of each phase. Events in, events out; knows
no process, no clock and no pytest.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from pytest_remotegpu.protocol import events, plain
from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.worker.ranks.accounts import ORDINARY, PHASES, WASXFAIL, Account, End, Told
from pytest_remotegpu.worker.ranks.words import folded, named, said_of
from pytest_remotegpu.worker.sections import Sections

__all__ = ["Merger"]

LATE: Final = 0.5
"""Seconds by which the end of a process may be noticed later than what it does to others."""


class Merger:
    """Takes in what the ranks say of one test, and gives what there is to say of them all.

    :param place: the test's. :param world: how many ranks there are.
    :ivar failures: failed reports so far, as pytest counts them.
    :ivar collectives: which collective each rank was in before any was ended; empty for unknown.
    """

    def __init__(self, place: int, world: int) -> None:
        self.place = place
        self.accounts = [Account(rank) for rank in range(world)]
        self.failures = 0
        self.collectives = ""
        self._given: set[str] = set()
        self._sections = Sections()

    # while the test runs

    def advance(self) -> list[events.Event]:
        """Give the reports of phases that every rank has passed."""
        said: list[events.Event] = []
        for when in PHASES:
            if when in self._given:
                continue
            firsts = [account.attempts[0] for account in self.accounts if account.attempts]
            group = [told for first in firsts for told in first if told.when == when]
            parts = any(account.parts for account in self.accounts)
            passed = all(told.kind == "passed" for told in group)
            if len(group) < len(self.accounts) or not passed or parts:
                break
            said += self._phase(group[0], group)
        return said

    # at its end

    def finish(self, ends: dict[int, End]) -> list[events.Event]:
        """Give the rest: one result.

        :param ends: of the ranks that have not come to the end of the test, why that is so.
        """
        ends = dict(ends)
        for account in self.accounts:
            if not account.complete and account.rank not in ends:
                how = "came to its end without a report of each phase"
                ends[account.rank] = End(how, float("inf"))
        said = self.advance()
        failed = sorted(self._failed(), key=lambda told: told.at)
        lost = min((end.at for end in ends.values() if not end.stopped), default=float("inf"))
        if failed and failed[0].at < lost - LATE:
            return said + self._failure(failed, ends)
        if ends:
            return said + self._crash(ends)
        if failed:
            return said + self._failure(failed, ends)
        if len({account.verdict for account in self.accounts}) > 1 or self._attempts() < 0:
            return said + self._disagreement()
        return said + self._agreed()

    def rest(self) -> list[events.Event]:
        """Give what ranks have still said of a test that ended the session, failures before all."""
        said: list[events.Event] = []
        for when in PHASES:
            group = self._group(when)
            bad = sorted(
                (told for told in group if told.kind == "failed"), key=lambda told: told.at
            )
            if when not in self._given and group:
                head = self._beside(bad[0], bad) if bad else group[0]
                said += self._phase(head, group)
        return said

    def _failed(self) -> Iterator[Told]:
        for account in self.accounts:
            yield from (told for told in account.last if told.kind == "failed")

    def _attempts(self) -> int:
        """Count the attempts; -1 where ranks have not made as many."""
        counts = {len(account.attempts) for account in self.accounts}
        return counts.pop() if len(counts) == 1 else -1

    def _agreed(self) -> list[events.Event]:
        """Give what all ranks say alike, in the words of the first."""
        said: list[events.Event] = []
        first = self.accounts[0]
        for attempt in first.attempts[:-1]:  # pytest-rerunfailures tells of each
            for told in attempt:
                if told.when not in self._given:  # the first one's setup may have been
                    said += self._phase(told, [told])
            self._given.clear()
        for told in first.last:
            if told.when in self._given:
                continue
            if told.when == "call":
                said += self._parts()
            group = [one for account in self.accounts if (one := account.of(told.when))]
            said += self._phase(self._with_all_reasons(told, group), group)
        return said

    def _with_all_reasons(self, told: Told, group: Sequence[Told]) -> Told:
        """Let a skip give the reasons of all ranks, where they differ."""
        longrepr = told.open.get("longrepr")
        reasons = folded({one.rank: one.text for one in group})
        if told.kind != "skipped" or len(reasons) < 2 or not isinstance(longrepr, tuple):  # noqa: PLR2004 -- one is no difference
            return told
        text = "; ".join(f"{named(ranks)}: {reason}" for ranks, reason in reasons)
        return _with_longrepr(told, (*longrepr[:2], f"Skipped: {text}"))

    def _parts(self) -> list[events.Event]:
        """Give the sub-tests as the first rank has them, but those first that failed elsewhere."""
        said: list[events.Event] = []
        others = [account.parts for account in self.accounts]
        for number in range(max(map(len, others))):
            group = [parts[number] for parts in others if number < len(parts)]
            bad = sorted(
                (told for told in group if told.kind == "failed"), key=lambda told: told.at
            )
            chosen = bad[0] if bad else group[0]
            said += self._emit(self._beside(chosen, group) if bad else chosen, group)
        return said

    def _failure(self, failed: list[Told], ends: dict[int, End]) -> list[events.Event]:
        """Give the traceback of the rank that failed first, with what became of the others."""
        main = [told for told in failed if told.when != "teardown"]
        late = [told for told in failed if told.when == "teardown"]
        said: list[events.Event] = []
        if main:
            head = main[0]
            said += self._before(head)
            said += self._parts() if head.when == "call" else []
            said += self._phase(self._beside(head, main, ends), self._group(head.when))
            return said + self._teardown(head.rank, late)
        head = late[0]
        unfinished = [rank for rank in ends if self.accounts[rank].of("call") is None]
        if not unfinished:
            return self._before(head) + self._teardown(head.rank, late, ends)
        text = (
            f"{named([head.rank])} failed in teardown while {named(unfinished)} had not come to "
            "the end of the test"
        )
        base = self.accounts[head.rank].of("call") or head
        wrong = self._beside(self._made(base, "call", text), [], ends)
        if "setup" not in self._given:
            said += self._phase(self._made(base, "setup"), self._group("setup"))
        said += self._phase(wrong, self._group("call"))
        return said + self._teardown(head.rank, late)

    def _before(self, head: Told) -> list[events.Event]:
        """Give the phases before a failed one that have not been given yet."""
        said: list[events.Event] = []
        for when in PHASES[: PHASES.index(head.when)]:
            told = self.accounts[head.rank].of(when)
            if when not in self._given:
                said += self._phase(told or self._made(head, when), self._group(when))
            if told is not None and told.kind == "skipped" and when == "setup":
                break  # no body was run
        return said

    def _teardown(
        self, rank: int, failed: list[Told], ends: dict[int, End] | None = None
    ) -> list[events.Event]:
        """Give the last phase: a failure, or what there is of it."""
        if "teardown" in self._given:
            return []
        if failed:
            return self._phase(self._beside(failed[0], failed, ends or {}), self._group("teardown"))
        told = self.accounts[rank].of("teardown")
        return self._phase(told or self._made(self._any(), "teardown"), self._group("teardown"))

    def _any(self) -> Told:
        return next(told for account in self.accounts for told in account.told)

    def _disagreement(self) -> list[events.Event]:
        """Give a failure where ranks have come to different ends, none of which is one."""
        base = self._any()
        said: list[events.Event] = []
        for when in ("setup", "call"):
            group = [told for told in self._group(when) if told.kind == "passed"]
            if when == "setup" and when not in self._given:
                said += self._phase(group[0] if group else self._made(base, when), group)
            elif when == "call" and when in self._given:
                wrong = self._made(base, "teardown", self._differences())
                return [*said, *self._phase(wrong, self._group("teardown"))]
        said += self._phase(self._made(base, "call", self._differences()), self._group("call"))
        return said + self._phase(self._made(base, "teardown"), self._group("teardown"))

    def _differences(self, ends: dict[int, End] | None = None) -> str:
        ends = ends or {}
        words = {
            account.rank: ends[account.rank].how if account.rank in ends else account.in_words()
            for account in self.accounts
        }
        if len(set(words.values())) == 1:
            words = {
                account.rank: f"{words[account.rank]} in attempt {len(account.attempts)}"
                for account in self.accounts
            }
        parts = [said_of(ranks, text) for ranks, text in folded(words)]
        return f"the ranks of this test came to different ends: {'; '.join(parts)}"

    # processes that were lost

    def _crash(self, ends: dict[int, End]) -> list[events.Event]:
        """Give the end of a test that not each rank came to the end of."""
        lost = sorted((end.at, rank) for rank, end in ends.items() if not end.stopped)
        if lost:
            heads = [rank for _, rank in lost if ends[rank].how == ends[lost[0][1]].how]
            cause = said_of(heads, ends[heads[0]].how, len(self.accounts))
        else:
            cause = self._differences(ends)
        order = [*(rank for _, rank in lost), *(account.rank for account in self.accounts)]
        if len(lost) == 1 and not ends[order[0]].stack:
            del order[0], order[order.index(lost[0][1])]  # the cause has said it all
        texts = {rank: self._what_it_did(rank, ends.get(rank)) for rank in dict.fromkeys(order)}
        parts = [said_of(ranks, text, mark=":") for ranks, text in folded(texts)]
        parts += [f"collectives:\n{self.collectives}"] if self.collectives else []
        stack = "\n\n".join(parts)
        outputs = [
            to_text(_labelled({rank: getattr(end, name) for rank, end in ends.items()}))
            for name in ("stdout", "stderr")
        ]
        self.failures += 1
        return [events.Crashed(self.place, cause, to_text(stack), outputs[0], outputs[1])]

    def _what_it_did(self, rank: int, end: End | None) -> str:
        """Say how it ended, where it was then, and what it had to say of its own failure."""
        account = self.accounts[rank]
        text = [told.text for told in account.last if told.kind == "failed"]
        if end is None:
            return "\n".join([account.in_words(), *text])
        return "\n".join(filter(None, [end.words, *text, end.stack.strip()]))

    # putting it together

    def _group(self, when: str) -> list[Told]:
        return [told for account in self.accounts if (told := account.of(when))]

    def _made(self, base: Told, when: str, text: str = "") -> Told:
        """Make a report that no rank has made: passed, or failed with a text."""
        kept = {name: value for name, value in base.open.items() if name == ORDINARY}
        kept = kept or {ORDINARY: "TestReport"}
        report = msgspec.structs.replace(
            base.report, when=to_text(when), outcome=b"failed" if text else b"passed", duration=0.0
        )
        data = {**kept, "longrepr": text} if text else kept
        return Told(base.rank, report, data, [], base.keywords, text)

    def _beside(
        self, head: Told, failed: Iterable[Told], ends: dict[int, End] | None = None
    ) -> Told:
        """Add to the error of the first rank to fail what the others came to."""
        ends = ends or {}
        if len(self.accounts) == 1:
            return head
        texts = {told.rank: told.text for told in sorted(failed, key=lambda told: told.at)}
        same = [ranks for ranks, _ in folded(texts) if head.rank in ranks]
        alike = [rank for rank in (same[0] if same else []) if rank != head.rank]
        lines = [f"{named([head.rank])}: {head.kind} first, in {head.when}"]
        lines += [f"{named(alike)}: same"] if alike else []
        others = [a.rank for a in self.accounts if a.rank not in (head.rank, *alike)]
        words = {rank: self._briefly(rank, ends.get(rank)) for rank in others}
        lines += [said_of(ranks, text, mark=":") for ranks, text in folded(words)]
        blocks = [(f"{len(self.accounts)} ranks", "\n".join(lines))]
        blocks += [("collectives", self.collectives)] if self.collectives else []
        more = {rank: self._at_length(rank, texts, ends.get(rank)) for rank in others}
        blocks += [(named(ranks), text) for ranks, text in folded(more) if text]
        return _with_longrepr(head, _extended(head.open.get("longrepr"), blocks))

    def _briefly(self, rank: int, end: End | None) -> str:
        return self.accounts[rank].in_words() if end is None else end.words

    def _at_length(self, rank: int, texts: dict[int, str], end: End | None) -> str:
        return "\n".join(filter(None, [texts.get(rank, ""), end.stack.strip() if end else ""]))

    def _phase(self, base: Told, group: Sequence[Told]) -> list[events.Event]:
        self._given.add(base.when)
        return self._emit(base, group)

    def _emit(self, base: Told, group: Sequence[Told]) -> list[events.Event]:
        """Give a report and those of the ranks' sections that have not been given yet."""
        reports = [base.report, *(told.report for told in group)]
        starts = [report.start for report in reports if report.start is not None]
        stops = [report.stop for report in reports if report.stop is not None]
        said: list[events.Event] = []
        places: list[int] = []
        for name, text in self._captured(group):
            index, due = self._sections.add(self.place, name, text)
            places.append(index)
            said += due
        data = {**base.open, **_properties(group)} if WASXFAIL not in base.open else base.open
        self.failures += base.kind == "failed"
        report = events.Report(
            self.place,
            base.report.when,
            base.report.outcome,
            max(report.duration for report in reports),
            min(starts, default=None) if stops else None,
            max(stops, default=None) if starts else None,
            base.keywords,
            places,
            {name: plain.pack(value) for name, value in data.items()},
        )
        return [*said, report]

    def _captured(self, group: Iterable[Told]) -> Iterator[tuple[str, str]]:
        """Give what the ranks wrote, by name, and what several wrote alike once."""
        found: dict[bytes, dict[int, str]] = {}
        for told in group:
            for name, text in told.sections:
                before = found.setdefault(name, {})
                before[told.rank] = before.get(told.rank, "") + from_text(text)
        for name, texts in found.items():
            for ranks, written in folded(texts):
                mark = f" [{named(ranks)}]" if len(self.accounts) > 1 else ""
                yield from_text(name) + mark, written


def _with_longrepr(told: Told, longrepr: Any) -> Told:
    data = {**told.open, "longrepr": longrepr}
    return Told(told.rank, told.report, data, told.sections, told.keywords, told.text)


def _extended(longrepr: Any, blocks: list[tuple[str, str]]) -> Any:
    """Add titles and texts to an error, below its traceback."""
    if isinstance(longrepr, dict) and isinstance(longrepr.get("sections"), list):
        found = copy.deepcopy(longrepr)
        found["sections"] += [(title, text, "-") for title, text in blocks]
        return found
    parts = [f"--- {title} ---\n{text}" for title, text in blocks]
    return "\n\n".join([*([str(longrepr)] if longrepr is not None else []), *parts])


def _properties(group: Sequence[Told]) -> dict[str, Any]:
    """Put the user properties of all ranks together; what only some have bears their mark."""
    lists = {told.rank: told.open.get("user_properties") or [] for told in group}
    if not any(lists.values()):
        return {}
    known = next(iter(lists.values()))
    more = [
        (f"{pair[0]} [{named([rank])}]", pair[1])
        for rank, pairs in lists.items()
        for pair in pairs
        if pair not in known
    ]
    return {"user_properties": [*known, *more]}


def _labelled(texts: dict[int, str]) -> str:
    """Put what ranks wrote one after the other, each under its name."""
    said = {rank: text for rank, text in texts.items() if text}
    return "".join(f"{named(ranks)}:\n{text.rstrip()}\n" for ranks, text in folded(said))
