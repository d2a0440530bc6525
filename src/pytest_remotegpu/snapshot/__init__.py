"""Which files travel to the far side, and their content; knows no pytest, no wire and no backend.

A snapshot is taken of one root folder. In a git checkout its candidates are the tracked files and
the untracked ones that git doesn't ignore, those of submodules and nested checkouts included;
elsewhere every file. ``include`` globs add ignored files, ``exclude`` globs take files away and
always win.

Globs are relative to the root and start there: ``*.bin`` means the root's own files, ``**/*.bin``
any depth. ``*``, ``?`` and ``[...]`` stay within one path component, match a leading dot, and tell
upper case from lower; a component ``**`` stands for any number of folders, none included. A glob
that matches a folder covers all that is in it.

Some names stay behind although git lists them: version control data, virtual environments, caches,
and whatever looks like a secret (module `guards` has the lists). All but the first can be sent
by an ``include`` glob that spells the name in question out (``certs/test.pem``, ``**/test.pem``); a
wildcard never does, so ``**`` can't let a key slip through.

Of a file's mode only the executable bit travels, and empty folders don't. A symbolic link travels
as a link, its text made relative where it names an absolute path; one that leaves the root stays
behind. Nothing stays behind silently, except what git ignores: `Snapshot.left_out` has the rest,
`Snapshot.why_left_out` answers for both.
"""

from pytest_remotegpu.snapshot.git import checkout_of
from pytest_remotegpu.snapshot.globs import escaped
from pytest_remotegpu.snapshot.packing import Gone, Packed, Piece, pack
from pytest_remotegpu.snapshot.revision import Asked, check_out, resolve
from pytest_remotegpu.snapshot.taking import take
from pytest_remotegpu.snapshot.values import Entry, Rules, Snapshot, SnapshotError

__all__ = ["Asked", "Entry", "Gone", "Packed", "Piece", "Rules", "Snapshot", "SnapshotError"]
__all__ += ["check_out", "checkout_of", "escaped", "pack", "resolve", "take"]
