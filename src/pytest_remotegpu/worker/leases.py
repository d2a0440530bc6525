"""Leases of cards: a lock for each, held for as long as a process of the holder lives.

Three locks stand for a card, in a folder that all users of the host share. The first is the lease.
``.wanted`` is shared by those who wait for it, so that a holder with nothing to do at the moment
can see that it is in somebody's way. ``.next`` is held by one who waits for several cards, and who
would wait for ever if those who need a single one took each that becomes free. Knows cards and
locks, no order and no test.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pytest_remotegpu.cards import Card, misfit, restriction, users
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.locks import FOLDER, NEXT, WANTED, about, file_of, holders

__all__ = ["FOLDER", "Lease", "NotToBeHadError"]

AFTER_YOU: Final = 2.0
"""Seconds for which one who has given cards back leaves them to those who wait."""


class NotToBeHadError(FarSideError):
    """Raised when this host will never have what is asked for."""


class Lease:
    """Cards for one worker: taken all together or not at all, in the order of their UUIDs.

    :param cards: what the host shows. :param shape: what is asked for.
    :param folder: holds the locks.
    :raises NotToBeHadError: where the host has not enough cards of that kind.
    :raises FarSideError: where the folder of locks can't be used.
    :ivar held: the cards that are taken.
    """

    def __init__(self, cards: Sequence[Card], shape: Shape, folder: Path = FOLDER) -> None:
        fitting = [card for card in cards if not misfit(card, shape)]
        if len(fitting) < shape.count:
            raise NotToBeHadError(_too_few(cards, shape))
        self._count = shape.count
        self._cards = sorted(fitting, key=lambda card: card.uuid)
        self._folder = folder
        self._locks: list[int] = []
        self._marks: list[int] = []
        self._turn: list[int] = []
        self._not_before = 0.0
        self.held: list[Card] = []
        if self._count:
            _prepare(folder)

    @property
    def complete(self) -> bool:
        """Whether all that was asked for is held."""
        return len(self.held) == self._count

    @property
    def locks(self) -> list[int]:
        """The descriptors that hold the lease, for the processes that use the cards."""
        return list(self._locks)

    def take(self) -> bool:
        """Try to take the cards, those first that nobody else uses; say whether they are held."""
        if self.complete:
            return True
        if time.monotonic() < self._not_before and self._others_wait():
            return False
        for card in sorted(self._cards, key=lambda card: bool(users(card.uuid))):
            fd = _lock(self._file(card)) if self._is_our_turn(card) else None
            if fd is not None:
                self._locks.append(fd)
                self.held.append(card)
            if self.complete:
                self.held.sort(key=self._cards.index)
                self._stop_waiting()
                return True
        self._drop()
        self._wait()
        self._queue()
        return False

    def _file(self, card: Card, kind: str = "") -> Path:
        return file_of(card.uuid, kind, self._folder)

    def _is_our_turn(self, card: Card) -> bool:
        return bool(self._turn) or not _is_locked(self._file(card, NEXT))

    def _drop(self) -> None:
        for fd in self._locks:
            os.close(fd)
        self._locks, self.held = [], []

    def give_back(self) -> None:
        """Let the cards go, and let those who wait for them have them first."""
        self._drop()
        self._not_before = time.monotonic() + AFTER_YOU

    def close(self) -> None:
        """Let everything go."""
        self._drop()
        self._stop_waiting()

    # who waits

    def _wait(self) -> None:
        if self._marks:
            return
        for card in self._cards:
            fd = _open(self._file(card, WANTED))
            fcntl.flock(fd, fcntl.LOCK_SH)
            self._marks.append(fd)

    def _queue(self) -> None:
        """Be the next one, where several cards are asked for and nobody else is."""
        if self._count < 2 or self._turn:  # noqa: PLR2004 -- more than one
            return
        found = []
        for card in self._cards:
            fd = _lock(self._file(card, NEXT))
            if fd is None:
                break
            found.append(fd)
        if len(found) == len(self._cards):
            self._turn = found
        else:
            for fd in found:
                os.close(fd)

    def _stop_waiting(self) -> None:
        for fd in (*self._marks, *self._turn):
            os.close(fd)
        self._marks, self._turn = [], []

    def wanted(self) -> bool:
        """Say whether anybody waits for one of the cards that are held."""
        return any(self._is_wanted(card) for card in self.held)

    def _others_wait(self) -> bool:
        return any(self._is_wanted(card) for card in self._cards)

    def _is_wanted(self, card: Card) -> bool:
        return _is_locked(self._file(card, WANTED))

    # who holds

    def holders(self) -> str:
        """Say who holds cards that are asked for, one for each card."""
        texts = []
        for card in self._cards:
            pids = holders(self._file(card))
            if pids:
                texts.append(f"{card.in_words()} is held by {', '.join(map(about, pids))}")
        return "; ".join(texts) or "the cards change hands"

    def strangers(self) -> list[str]:
        """Name processes that use the held cards without a lease, one text for each card."""
        texts = []
        for card in self.held:
            found = [
                f"{about(user.pid)}, {user.memory / 2**30:.1f} GiB" for user in users(card.uuid)
            ]
            if found:
                texts.append(f"{card.in_words()} is also used by {'; '.join(found)}")
        return texts


def _too_few(cards: Sequence[Card], shape: Shape) -> str:
    has = ", ".join(card.in_words() for card in cards) or "none"
    reasons = [text for card in cards if (text := misfit(card, shape))]
    why = f" ({'; '.join(dict.fromkeys(reasons))})" if reasons else ""
    hidden = restriction(os.environ)
    return f"{shape} asked for, and this host shows {len(cards)}: {has}{why}{hidden}"


def _prepare(folder: Path) -> None:
    """Make the folder that everybody may add to and nobody else may take from.

    :raises FarSideError: where it is no such folder, or can't be made.
    """
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)
        found = folder.lstat()
    except OSError as error:
        raise FarSideError(f"the folder of leases {str(folder)!r} can't be used: {error}") from None
    if not stat.S_ISDIR(found.st_mode) or not found.st_mode & stat.S_ISVTX:
        raise FarSideError(
            f"{str(folder)!r} is no folder with the sticky bit, which leases of cards need; "
            f"remove it, or: chmod 1777 {folder}"
        )


def _open(path: Path) -> int:
    """Open a lock's file for reading, which is all that a lock needs; make it where it is missing.

    Another user's file must not be opened for creation in such a folder: the kernel refuses that.

    :raises FarSideError: where it can't be had.
    """
    for _attempt in range(100):
        with contextlib.suppress(FileNotFoundError):
            return _checked(path, os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            os.fchmod(fd, 0o644)
            return fd
    raise FarSideError(f"the lock {str(path)!r} comes and goes")


def _checked(path: Path, fd: int) -> int:
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise FarSideError(f"the lock {str(path)!r} is no plain file; remove it")


def _lock(path: Path) -> int | None:
    """Lock a file; ``None`` where somebody else has.

    :raises FarSideError: where it can't be opened.
    """
    try:
        fd = _open(path)
    except OSError as error:
        raise FarSideError(f"the lock {str(path)!r} can't be opened: {error}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _is_locked(path: Path) -> bool:
    fd = _lock(path)
    if fd is not None:
        os.close(fd)
    return fd is None
