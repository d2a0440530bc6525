"""What this user has running elsewhere: backends asked side by side, and none of them waited for.

Knows backends by the contract for lists; what runs on this host is no business of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from pytest_remotegpu import backends
from pytest_remotegpu.backends.base import Collects, Follows, Lists, Running, Site
from pytest_remotegpu.errors import UsageError

__all__ = [
    "Rented",
    "Told",
    "ask",
    "attempt",
    "collect",
    "data",
    "lines",
    "pick",
    "refusal",
    "stop",
    "stop_all",
    "stop_run",
]

Told = tuple[str, bool]
"""What was done, in words, and whether it went well."""

PATIENCE: Final = 20.0
"""Seconds that a backend has to answer."""


@dataclass
class Rented:
    """What one backend answers.

    :ivar running: what runs. :ivar orphans: what nobody will use or end any more.
    :ivar trouble: why it can't be asked; empty where it can.
    """

    backend: str
    lists: Lists | None = None
    running: list[Running] = field(default_factory=list)
    orphans: list[Running] = field(default_factory=list)
    trouble: str = ""

    def name(self, running: Running) -> str:
        """Name a thing as the command line does."""
        return f"{self.backend}:{running.id}"

    def log(self, running: Running) -> Iterator[str]:
        """Yield the lines of a thing's log."""
        assert self.lists is not None
        return self.lists.logs(running.id)

    def follow(self, running: Running) -> Iterator[str]:
        """Yield the lines of a thing's log and those to come, where the backend can tell them."""
        if isinstance(self.lists, Follows):
            return self.lists.follow(running.id)
        return self.log(running)


def attempt(do: Callable[[], Any]) -> tuple[Any, str]:
    """Do something that a backend's own code takes part in.

    :return: what it gives, and in one line what went wrong.
    """
    try:
        return do(), ""
    except Exception as error:  # noqa: BLE001 -- somebody else's code; the others go on without it
        text = " ".join(str(error).split())
        return None, text or type(error).__name__


def ask(site: Site, *, orphans: bool = False, patience: float = PATIENCE) -> list[Rented]:
    """Ask all backends that list anything what they have.

    :param orphans: whether to ask for orphans as well. :param patience: seconds for all of them.
    """
    answers: dict[str, Rented] = {}
    threads = []
    for name in backends.listing():
        threads.append(
            threading.Thread(target=_ask, args=(name, site, answers, orphans), daemon=True)
        )
        threads[-1].start()
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    late = f"does not answer within {patience:g} s"
    found = [answers.get(name) or Rented(name, trouble=late) for name in backends.listing()]
    return [each for each in found if each.lists is not None or each.trouble]


def _ask(name: str, site: Site, answers: dict[str, Rented], orphans: bool) -> None:  # noqa: FBT001 -- a thread's
    answers[name], trouble = attempt(lambda: _answer(name, site, orphans=orphans))
    if trouble:
        answers[name] = Rented(name, trouble=trouble)


def _answer(name: str, site: Site, *, orphans: bool) -> Rented:
    made = backends.lists(name, site)
    if made is None:
        return Rented(name)
    left = made.orphans() if orphans and isinstance(made, Collects) else []
    return Rented(name, made, list(made.list()), list(left))


def pick(found: list[Rented], names: list[str]) -> list[tuple[Rented, Running]]:
    """Find the things that are named as ``BACKEND:ID``.

    :raises UsageError: for a name that is none of theirs.
    """
    known = {each.name(running): (each, running) for each in found for running in each.running}
    for name in names:
        if name not in known:
            why = [refusal(each) for each in found if each.trouble]
            why.insert(0, f"nothing that runs is called {name!r}; remotegpu ps lists what does")
            raise UsageError("; ".join(why))
    return [known[name] for name in names]


# ---------------------------------------------------------------- what is said of it


def refusal(found: Rented) -> str:
    """Say that a backend can't be asked."""
    return f"{found.backend} can't be asked: {found.trouble}"


def _ours(found: Rented) -> list[Running]:
    """List what runs and is not left over."""
    left = {running.id for running in found.orphans}
    return [running for running in found.running if running.id not in left]


def lines(away: Iterable[Rented]) -> Iterator[str]:
    """Write what there is, a line for each thing."""
    for found in away:
        for running in _ours(found):
            use = running.use or ("in use" if running.busy else "")
            yield ", ".join(filter(None, [found.name(running), running.about, use]))
            yield from (f"  {command}" for command in running.commands)
        for running in found.orphans:
            yield f"{found.name(running)}, {running.about}, left over: remotegpu gc takes it away"
        if found.trouble:
            yield refusal(found)
        elif not found.running and not found.orphans:
            yield f"{found.backend}: nothing runs"


def data(found: Rented) -> dict[str, Any]:
    """Give the same as plain values."""
    things = [(running, False) for running in _ours(found)]
    things += [(running, True) for running in found.orphans]
    return {
        "name": found.backend,
        "trouble": found.trouble,
        "running": [{**asdict(running), "orphan": orphan} for running, orphan in things],
    }


# ---------------------------------------------------------------- what is done about it


def _do(found: Rented, running: Running, do: Callable[[], object], done: str, failed: str) -> Told:
    _, trouble = attempt(do)
    return f"{found.name(running)} {f'{failed}: {trouble}' if trouble else done}", not trouble


def stop(found: Rented, running: Running) -> Told:
    """End a thing."""
    assert found.lists is not None
    lists = found.lists
    return _do(found, running, lambda: lists.stop(running.id), "has ended", "does not end")


def stop_all(found: Rented, *, busy: bool) -> Iterator[Told]:
    """End what a backend runs.

    :param busy: whether that is to end, too, which sessions use, or which is not paid for.
    """
    if found.trouble:
        yield refusal(found), False
    for running in found.running:
        free = running.paid is False
        if (running.busy or free) and not busy:
            why = running.use or ("it is not paid for" if free else "a session uses it")
            yield f"{found.name(running)} was left alone: {why}; --all ends it too", free
        else:
            yield stop(found, running)


def stop_run(away: Iterable[Rented], run: str) -> Iterator[Told]:
    """End what belongs to one run alone, whether or not a session of it is still there."""
    asked = list(away)
    theirs = [(each, it) for each in asked for it in each.running if it.run == run]
    for each in asked:
        if each.trouble:
            yield refusal(each), False
    for each, running in theirs:
        yield stop(each, running)
    if not theirs:
        yield f"nothing that belongs to run {run} alone is left", True


def collect(found: Rented, *, dry: bool) -> Iterator[Told]:
    """Take away what is left over.

    :param dry: whether only to say what that is.
    """
    if found.trouble:
        yield refusal(found), False
    lists = found.lists
    for running in found.orphans:
        if dry:
            yield f"{found.name(running)}, {running.about}, would be taken away", True
        else:
            assert isinstance(lists, Collects)
            do = partial(lists.collect, running.id)
            done = f"was taken away ({running.about})"
            yield _do(found, running, do, done, "can't be taken away")
