"""Takes a snapshot from the one before: asks what its list of files depends on, stats every file.

While git says the same, and no folder has become another thing, the files are the same ones; then
only those are read whose stamps differ, or are too fresh to prove anything. Git's answer is awaited
while the files are looked at.
"""

from __future__ import annotations

import hashlib
import stat
from array import array
from pathlib import Path

import msgspec

from pytest_remotegpu import guards, stamps
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.manifest import DIGEST, NO_CONTENT
from pytest_remotegpu.snapshot import git, index
from pytest_remotegpu.snapshot.index import LEFT, LINK, POINTER, SECRET, Index, Rows
from pytest_remotegpu.snapshot.reading import read_file, read_link
from pytest_remotegpu.snapshot.sieve import Sieve, is_environment

__all__ = ["judged", "look", "renew"]


def renew(sieve: Sieve, known: Index, at: int) -> Index | None:
    """Return the index as it is now: ``known`` itself where nothing has changed.

    :param at: when this began, by the clock of the file system
    :return: None where the files are to be listed anew
    """
    asked: list[tuple[git.Question, str]] = []
    try:
        for folder, digest in known.listings.items():
            asked.append((git.Question(sieve.root / folder, *git.LISTING), digest))
        changed = _changed(sieve.root, known) if _is_in_place(sieve.root, known) else None
        while asked:
            question, digest = asked.pop()
            if hashlib.sha256(question.answer()).hexdigest() != digest:
                return None
    except (git.NoGitError, UsageError):
        return None
    finally:
        for question, _ in asked:
            question.drop()
    if changed is None:
        return None
    return _reread(sieve, known, at, *changed) if changed[1] else known


def _is_in_place(root: Path, known: Index) -> bool:
    """Whether every folder is what it was, and nothing is where nothing was."""
    if any(stamp != -1 for stamp in stamps.survey(str(root), known.absent)):
        return False
    now = stamps.survey(str(root), known.folders)
    before = index.unpacked(known.folder_stamps)
    environments, walked = set(known.environments), set(known.walked)
    places = set(stamps.fresh(now[stamps.CTIME :: stamps.WIDTH], known.at))
    for place in places.union(stamps.differing(now, before)):
        folder = known.folders[place]
        stamp, old = stamps.pick(now, place), stamps.pick(before, place)
        same_kind = stat.S_IFMT(max(stamp[stamps.MODE], 0)) == stat.S_IFMT(old[stamps.MODE])
        if folder in walked or not same_kind:
            return False
        if is_environment(root / folder) != (folder in environments):
            return False
    return True


def _changed(root: Path, known: Index) -> tuple[array[int], list[int]] | None:
    """Give the stamps as they are now, and the places of files that have to be read again."""
    rows = known.rows
    now = stamps.survey(str(root), rows.paths)
    before = index.unpacked(rows.stamps)
    places = set(stamps.fresh(now[stamps.CTIME :: stamps.WIDTH], known.at))
    places.update(stamps.differing(now, before))
    for place in places:
        stamp, old = stamps.pick(now, place), stamps.pick(before, place)
        if stat.S_IFMT(max(stamp[stamps.MODE], 0)) != stat.S_IFMT(max(old[stamps.MODE], 0)):
            return None
    kinds = {kind for kind in set(rows.flags) if kind & LINK or (kind & LEFT and not kind & SECRET)}
    if kinds:  # where a link leads to, and what can't be read, no stamp tells
        places.update(place for place, kind in enumerate(rows.flags) if kind in kinds)
    return now, sorted(places)


def _reread(sieve: Sieve, known: Index, at: int, now: array[int], places: list[int]) -> Index:
    rows = Rows(known.rows.paths, b"", b"", b"", dict(known.rows.links), dict(known.rows.reasons))
    digests, flags = bytearray(known.rows.digests), bytearray(known.rows.flags)
    for place in places:
        path = rows.paths[place]
        stamp, digest, flag = look(sieve, path, stamps.pick(now, place), rows)
        first = place * stamps.WIDTH
        now[first : first + stamps.WIDTH] = array("q", stamp)
        digests[place * DIGEST : (place + 1) * DIGEST] = digest
        flags[place] = judged(sieve, path, flag, rows)
    rows.stamps, rows.digests, rows.flags = now.tobytes(), bytes(digests), bytes(flags)
    if rows == known.rows and not _has_fresh(now, places, known.at):
        return known
    return msgspec.structs.replace(known, at=at, rows=rows)


def _has_fresh(now: array[int], places: list[int], at: int) -> bool:
    """Whether any of them would have to be read again the next time."""
    times = (now[place * stamps.WIDTH + stamps.CTIME] for place in places)
    return any(stamps.is_fresh(time, at) for time in times)


def look(
    sieve: Sieve, path: str, stamp: stamps.Stamp, rows: Rows
) -> tuple[stamps.Stamp, bytes, int]:
    """Read a file or link; give its stamp, digest and flags.

    :param stamp: what it had; kept where there is nothing to read
    :param rows: receives a link's text, or the reason why there is nothing to send
    """
    rows.links.pop(path, None)
    rows.reasons.pop(path, None)
    if stat.S_ISLNK(stamp[stamps.MODE]):
        try:
            rows.links[path] = read_link(sieve.root, path)
        except ValueError as error:
            rows.reasons[path] = str(error)
        return stamp, NO_CONTENT, LINK
    content = read_file(f"{sieve.prefix}{path}", stamp)
    if isinstance(content, str):
        rows.reasons[path] = content
        return stamp, NO_CONTENT, 0
    flags = (SECRET if content.secret else 0) | (POINTER if content.pointer else 0)
    return content.stamp, content.digest, flags


def judged(sieve: Sieve, path: str, flags: int, rows: Rows) -> int:
    """Add to a file's flags whether it stays behind, and to the reasons why."""
    parts = tuple(path.split("/"))
    if flags & SECRET and not sieve.spells_out(parts, (len(parts) - 1,)):
        rows.reasons[path] = guards.SECRET
    return flags | LEFT if path in rows.reasons else flags
