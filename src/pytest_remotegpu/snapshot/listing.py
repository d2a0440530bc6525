"""Which paths are worth a look: what git lists, or what a walk finds; reads no content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from pytest_remotegpu.snapshot import git
from pytest_remotegpu.snapshot.globs import Parts
from pytest_remotegpu.snapshot.sieve import Sieve

__all__ = ["Trace", "candidates", "unreadable"]

_ABSENT_SUBMODULE: Final = "is a submodule not checked out (git submodule update --init)"


class Trace(Struct):
    """What the candidates depend on: while none of it changes, they are the same.

    ``listings`` has a digest of what git said of each checkout, ``walked`` the folders of which
    every name counts, ``absent`` paths at which nothing was. ``steady`` says whether that is all.
    """

    listings: dict[str, str] = field(default_factory=dict)
    walked: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    steady: bool = True


def candidates(sieve: Sieve, trace: Trace) -> set[Parts]:
    """Return the paths of all files, links and special files that the rules are to judge.

    :param trace: receives what they depend on
    :raises UsageError: git finds its repository broken
    """
    listed = _listed(sieve, trace)
    if not listed:
        trace.steady = False
        return _everything(sieve, trace)
    if not sieve.seeks(()):
        return listed
    return listed | {path for path in _walk(sieve, trace, (), sieve.seeks) if sieve.includes(path)}


def unreadable(error: OSError) -> str:
    """Return the reason for a path that the system doesn't let us read."""
    return f"can't be read ({error.strerror})"


def _listed(sieve: Sieve, trace: Trace) -> set[Parts]:
    """List what git lists: nothing where it can't be asked, with a note if it should have been."""
    try:
        return set(_checkout(sieve, trace, ()))
    except git.NoGitError as error:
        if git.is_within_repository(sieve.root):
            sieve.notes.append(f"{error}, so ignored files are sent too")
        return set()


def _everything(sieve: Sieve, trace: Trace) -> set[Parts]:
    walked = set(_walk(sieve, trace, (), _any))
    if walked and not sieve.notes and git.is_within_repository(sieve.root):
        sieve.notes.append("git lists no file under the project root, so ignored ones are sent")
    return walked


def _checkout(sieve: Sieve, trace: Trace, folder: Parts) -> Iterator[Parts]:
    listing = git.list_files(sieve.root.joinpath(*folder))
    trace.listings["/".join(folder)] = hashlib.sha256(listing.raw).hexdigest()
    for path in listing.files:
        yield (*folder, *path.split("/"))
    for path in listing.checkouts:
        yield from _nested(sieve, trace, (*folder, *path.split("/")))


def _nested(sieve: Sieve, trace: Trace, folder: Parts) -> Iterator[Parts]:
    """Yield the files of a submodule, or of an untracked checkout within the checkout."""
    here = sieve.root.joinpath(*folder)
    if not os.path.isdir(here):  # noqa: PTH112 -- raises nothing
        trace.absent.add("/".join(folder))
        return
    if not sieve.enters(folder):
        return
    if _is_empty(here):
        trace.walked.add("/".join(folder))
        sieve.leave("/".join(folder), _ABSENT_SUBMODULE)
    elif os.path.lexists(here / ".git"):
        yield from _inner_checkout(sieve, trace, folder)
    else:
        trace.steady = False
        yield from _walk(sieve, trace, folder, _any)


def _inner_checkout(sieve: Sieve, trace: Trace, folder: Parts) -> Iterator[Parts]:
    try:
        yield from _checkout(sieve, trace, folder)
    except git.NoGitError as error:
        sieve.notes.append(f"{error} in {'/'.join(folder)!r}, so ignored files are sent too")
        trace.steady = False
        yield from _walk(sieve, trace, folder, _any)


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False  # whoever reads it next will say so


def _any(_: Parts) -> bool:
    return True


def _walk(
    sieve: Sieve, trace: Trace, start: Parts, wanted: Callable[[Parts], bool]
) -> Iterator[Parts]:
    """Yield whatever is no folder below ``start``; links are not followed."""
    pending = [start]
    while pending:
        folder = pending.pop()
        trace.walked.add("/".join(folder))
        try:
            children = list(os.scandir(sieve.root.joinpath(*folder)))
        except OSError as error:
            sieve.leave("/".join(folder) or ".", unreadable(error))
            continue
        for child in children:
            path = (*folder, child.name)
            if not child.is_dir(follow_symlinks=False):
                yield path
            elif wanted(path) and sieve.enters(path):
                pending.append(path)
