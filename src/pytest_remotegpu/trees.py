"""The project's files as the wire speaks of them: announced by a digest, sent where they lack.

Knows snapshots and the wire; no session, no worker.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from pytest_remotegpu import snapshot
from pytest_remotegpu.config import Settings
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import orders

__all__ = ["Revision", "Sent", "announce", "rules", "supply"]

AT_ONCE: Final = 16 * 2**10
"""Bytes of a list of files up to which it is sent unasked."""


def rules(settings: Settings, root: Path, folder: str) -> snapshot.Rules:
    """Say what travels: what the session writes does not, unless it is named or at a commit.

    :param root: the project's folder. :param folder: where relative paths begin.
    """
    own = (settings.json, settings.artifacts) if not settings.rev else ()
    written = tuple(filter(None, (_inside(root, folder, each) for each in own)))
    named = {text.strip("/") for text in settings.include}
    written = tuple(each for each in written if each not in named)
    return snapshot.Rules(settings.include, settings.exclude, settings.max_upload, written)


def _inside(root: Path, folder: str, path: str | None) -> str:
    """Give the glob of a path in the project; empty for one that is elsewhere, or all of it."""
    if not path:
        return ""
    here, top = (Path(os.path.realpath(each)) for each in (Path(folder, path).expanduser(), root))
    inside = here != top and here.is_relative_to(top)
    return snapshot.escaped(here.relative_to(top).as_posix()) if inside else ""


class Sent(Struct):
    """How many files' contents were sent, and how many bytes they are."""

    files: int = 0
    size: int = 0


class Revision:
    """The files of a commit, in a folder of their own.

    :ivar commit: what the name stands for. :ivar notes: what the user should know.
    :raises UsageError: where git knows no such commit, or can't write its files.
    """

    def __init__(self, root: Path, ref: str) -> None:
        self._root, self._ref = root, ref
        self.commit = snapshot.resolve(root, ref)
        self._folder = tempfile.TemporaryDirectory(
            prefix="remotegpu-rev-", ignore_cleanup_errors=True
        )
        self._there, absent = snapshot.check_out(root, self.commit, Path(self._folder.name))
        self.notes = [
            f"the files of submodule {path!r} are not sent: they are not here at the commit that"
            f" {ref!r} has of it"
            for path in absent
        ]
        self._taken: snapshot.Snapshot | None = None

    def take(self, rules: snapshot.Rules) -> snapshot.Snapshot:
        """Take the snapshot of these files."""
        self._taken = snapshot.take(self._there, rules)
        return self._taken

    def why_left_out(self, path: str) -> str | None:
        """Say why a path of the working tree was not sent; ``None`` where it was or is none."""
        here = Path(os.path.normpath(self._root / path))
        if not os.path.lexists(here) or not here.is_relative_to(self._root) or self._taken is None:
            return None
        there = self._there / here.relative_to(self._root)
        if os.path.lexists(there):
            return self._taken.why_left_out(str(there.relative_to(self._there)))
        return f"{path!r} was not sent: --remote-rev={self._ref} sends what that commit has"

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


def announce(taken: snapshot.Snapshot, project: str, name: str) -> orders.Tree:
    """Name the tree; add what differs from the list that was sent last, or the whole list.

    :param project: names the project. :param name: of its folder.
    """
    whole, base = taken.manifest, taken.base
    tree = orders.Tree(digest=whole.digest, project=project, name=name)
    if base is not None and len(whole.encoded) > AT_ONCE:
        if base.digest == whole.digest:
            return tree
        delta = whole.since(base).encode()
        if len(delta) < len(whole.encoded) // 2:
            return msgspec.structs.replace(tree, base=base.digest, delta=delta)
    packed = zlib.compress(whole.encoded, 1)
    return msgspec.structs.replace(tree, manifest=packed, unfolded=len(whole.encoded))


def supply(
    taken: snapshot.Snapshot | None,
    digests: Iterable[str],
    send: Callable[..., None],
    note: Callable[[str], None],
    further: Iterable[snapshot.Snapshot] = (),
) -> Sent:
    """Send contents that a far side lacks.

    :param send: takes messages. :param note: takes what the user should know.
    :param further: the trees that were announced beside the first.
    :raises ProtocolError: for contents that are no part of the trees; nothing is sent then.
    """
    if taken is None:
        raise ProtocolError("contents are asked for where no tree was sent")
    wanted = list(dict.fromkeys(digests))
    parts = []
    for each in (taken, *further):
        parts.append((each, [digest for digest in wanted if each.has(digest)]))
        wanted = [digest for digest in wanted if not each.has(digest)]
    if wanted:
        raise ProtocolError("contents are asked for that are no part of the tree")
    sent = Sent()
    for each, own in parts:
        if own:
            _supply(each, own, send, note, sent)
    return sent


def _supply(
    taken: snapshot.Snapshot,
    wanted: list[str],
    send: Callable[..., None],
    note: Callable[[str], None],
    sent: Sent,
) -> None:
    for parcel in snapshot.pack(taken, wanted):
        match parcel:
            case snapshot.Packed(packed, sizes, data):
                send(orders.Pack(packed, sizes, data))
                own = [
                    size for name, size in zip(packed, sizes, strict=True) if _is_file(taken, name)
                ]
                sent.files += len(own)
                sent.size += sum(own)
            case snapshot.Piece(digest, data, last, unfolded):
                send(orders.Blob(digest, data, last, unfolded=unfolded))
                if _is_file(taken, digest):
                    sent.files += last
                    sent.size += unfolded or len(data)
            case snapshot.Gone(digest, why):
                note(f"not sent: {why}")
                send(orders.Blob(digest, b"", gone=True))


def _is_file(taken: snapshot.Snapshot, digest: str) -> bool:
    """Say whether it is a file's content, and not the list of them all."""
    return digest != taken.manifest.digest
