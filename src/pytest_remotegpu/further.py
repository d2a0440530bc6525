"""The trees of editable installs that lie outside the project, and travel with it.

Takes their snapshots and speaks for them; which installs there are, and what an import path is made
of, others say. Knows no pytest and no worker.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from pytest_remotegpu import environment, missing, snapshot, trees
from pytest_remotegpu.classify.needing import Needing
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.protocol import orders

if TYPE_CHECKING:  # not loaded where no files are sent
    from pytest_remotegpu.editables import Install

__all__ = ["Further", "imported_there", "sendable"]

SUFFIXES: Final = tuple(importlib.machinery.EXTENSION_SUFFIXES)


class Part(NamedTuple):
    """One of them.

    :ivar taken: its files. :ivar revision: that they are of, where it is that of the project.
    """

    install: Install
    taken: snapshot.Snapshot
    revision: trees.Revision | None

    def why_left_out(self, path: str) -> str | None:
        """Say why a path of it was not sent; ``None`` where it was or is none."""
        found = self.taken if self.revision is None else self.revision
        return found.why_left_out(path)


class Further:
    """Those of one session.

    :ivar notes: what the user should know.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.notes: list[str] = []

    @property
    def roots(self) -> list[Path]:
        """The folders that travel."""
        return [part.install.folder for part in self.parts]

    @property
    def snapshots(self) -> list[snapshot.Snapshot]:
        """What is in them."""
        return [part.taken for part in self.parts]

    def take(
        self,
        installs: Iterable[Install],
        left: int,
        memory: Callable[[str], Path | None],
        revision: Callable[[Path], trees.Revision | None],
    ) -> None:
        """Take the snapshots.

        :param left: bytes that their files may have together.
        :param memory: names the file in which a snapshot is remembered, from a name for it.
        :param revision: gives the files of the session's commit; ``None`` for those that are there.
        :raises UsageError: where there are more bytes.
        """
        for install in installs:
            known = memory(f"snapshot-{hashlib.sha256(bytes(install.folder)).hexdigest()[:12]}")
            own = revision(install.folder)
            rules = snapshot.Rules((), (), left)
            try:
                taken = own.take(rules) if own else snapshot.take(install.folder, rules, known)
            except UsageError as error:
                raise UsageError(_too_large(install, str(error))) from None
            left -= taken.size
            self.parts.append(Part(install, taken, own))
            self.notes += [f"in {str(install.folder)!r}: {note}" for note in taken.notes]

    def describe(self) -> list[str]:
        """Say what travels of each, and what does not."""
        lines = []
        for part in self.parts:
            install, taken = part.install, part.taken
            amount = f"{len(taken.entries)} files, {taken.size} bytes"
            lines.append(f"{install.name} (editable install) of {str(install.folder)!r}: {amount}")
            lines += [f"  left out: {path} {why}" for path, why in taken.left_out]
        return lines

    def announce(self, host: str) -> list[orders.Tree]:
        """Name the trees.

        :param host: on which they are.
        """
        return [
            msgspec.structs.replace(
                trees.announce(part.taken, f"{host}:{folder}", folder.name or "root"),
                root=str(folder),
            )
            for part in self.parts
            for folder in [part.install.folder]
        ]

    def explain(self, module: str, path: Iterable[str]) -> str:
        """Say of a module why its file did not travel; empty where that is not known.

        :param path: the import path.
        """
        entries = list(path)
        for part in self.parts:
            places = missing.paths_of(module, environment.inside(entries, part.install.folder))
            why = next(filter(None, map(part.why_left_out, places)), None)
            if why:
                return f"{why} (of {str(part.install.folder)!r}, installed here in editable mode)"
        return ""

    def remember(self) -> None:
        """Write down what makes the next session's snapshots quick."""
        for taken in self.snapshots:
            taken.remember()

    def close(self) -> None:
        """Leave no file behind."""
        for part in self.parts:
            if part.revision is not None:
                part.revision.close()


def imported_there(
    tests: Iterable[Path],
    root: Path,
    folders: Sequence[Path],
    installs: Sequence[Install],
    path: Iterable[str],
    served: Mapping[str, str],
) -> dict[str, str]:
    """Give the modules of editable installs that test files import, by their source: name and file.

    This side imports none of these files. Compiled modules beside those that are imported count.

    :param folders: where modules of the project are looked for. :param path: the import path.
    """
    entries = list(path)
    places: list[Path] = []
    for install in installs:
        places += map(Path, environment.inside(entries, install.folder))
        places += map(Path, environment.sources(served, install.folder)[0])
    needing = Needing("", root, [*folders, *places])
    reached = dict.fromkeys(file for test in tests for file in needing.loaded_by(test))
    found: dict[str, str] = {}
    for file in reached:
        place = next((place for place in places if file.is_relative_to(place)), None)
        if place is not None:
            beside = (other for other in file.parent.iterdir() if other.name.endswith(SUFFIXES))
            for each in (file, *beside):
                parts = each.relative_to(place).parts
                found[".".join([*parts[:-1], each.name.partition(".")[0]])] = str(each)
    return found


def sendable(
    installs: Iterable[Install],
    root: Path,
    path: Iterable[str],
    served: Mapping[str, str],
    modules: Mapping[str, str],
) -> tuple[list[Install], list[str]]:
    """Pick those whose sources are all that is needed to import them.

    :param root: the project's folder. :param path: the import path.
    :param served: where modules lie that import hooks serve, by name.
    :param modules: files of imported modules, by name.
    :return: those, and what there is to say of the others.
    """
    entries = list(path)
    found, notes = [], []
    for install in installs:
        folder = install.folder
        why = ""
        if built := next(_compiled(folder, root, served, modules), ""):
            why = f"its module {built!r} is compiled"
        elif not environment.inside(entries, folder) and not environment.sources(served, folder)[0]:
            why = "its import hook does not tell where its modules are"
        if why:
            notes.append(
                f"{install.name!r}, installed here in editable mode from {str(folder)!r}, is not "
                f"sent: {why}; what the far side has installed of it is used"
            )
        else:
            found.append(install)
    return found, notes


def _compiled(
    folder: Path, root: Path, served: Mapping[str, str], modules: Mapping[str, str]
) -> Iterator[str]:
    """Yield the compiled modules of an install, wherever its build has put them."""
    from pytest_remotegpu.editables import is_installed  # noqa: PLC0415 -- see the top

    own = {name for name, place in served.items() if Path(place).is_relative_to(folder)}
    for name, text in modules.items():
        if text.endswith(SUFFIXES):
            file = Path(text)
            inside = file.is_relative_to(folder) and not file.is_relative_to(root)
            if (inside and not is_installed(file, folder)) or name.partition(".")[0] in own:
                yield name


def _too_large(install: Install, said: str) -> str:
    text, _, _ = said.partition("\nleave files out with")  # its globs are the project's alone
    return (
        f"{install.name!r}, which is installed here in editable mode from {str(install.folder)!r}, "
        f"travels with the project: {text}\nraise remotegpu_max_upload, or install it here without "
        "-e, and on the far side, to have it not sent"
    )
