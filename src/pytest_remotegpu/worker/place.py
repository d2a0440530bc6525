"""A folder in which the tree of one project stays between sessions, to be changed and not rebuilt.

Whoever has a place has it alone. Its files are copies that belong to it, never links into the
store: a test may write to any of them. So nothing in it is believed: each file and folder is looked
at again (time of change, inode, size, mode) and whatever is not as it was laid out is laid out
anew; whatever was not laid out is removed, but for bytecode of sources that are unharmed. Where
anything is odd the whole folder is given up. While a place is being changed it has no record, so
that one that was cut short is given up too. Knows no wire and no pytest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pytest_remotegpu import stamps
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.manifest import Line, Manifest
from pytest_remotegpu.worker.tree import Store, TreeEntry, TreeError

__all__ = ["Place", "take_place"]

_VERSION: Final = 1
_BYTECODE: Final = "__pycache__"
_MOST_PLACES: Final = 64
_EXECUTABLE: Final = 0o100


class _Record(msgspec.Struct, array_like=True):
    """A tree as it was laid out, at a time of its file system's clock, since the host's start."""

    version: int
    boot: str
    at: int
    manifest: bytes
    stamps: bytes
    folders: list[str]
    folder_stamps: bytes


_RECORD: Final = msgspec.msgpack.Decoder(_Record)


class OddPlaceError(Exception):
    """Raised when a place is in a state that nothing can be made of."""


class Place:
    """One folder for one tree, which this process has alone.

    :ivar lock: the descriptor that holds it; whoever keeps it open keeps the place taken.
    :ivar manifest: what lies there, as far as the record says; ``None`` for nothing.
    """

    def __init__(self, folder: Path, name: str, lock: int) -> None:
        self._top = folder / "tree"
        self.root = self._top / name
        self.lock = lock
        self._folder = folder
        self._file = folder / "record"
        self._record: _Record | None = None
        self.manifest: Manifest | None = None
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, ProtocolError):
            record = _RECORD.decode(self._file.read_bytes())
            if record.version == _VERSION and self.root.is_dir():
                self.manifest = Manifest.decode(record.manifest, known=True)
                self._record = record

    def close(self) -> None:
        """Let others have it."""
        with contextlib.suppress(OSError):
            os.close(self.lock)

    def wants(self, wanted: Manifest, store: Store) -> list[str]:
        """Give the digests that are lacking if the tree lies there as the record says."""
        lines = wanted if self.manifest is None else wanted.since(self.manifest).lines()
        return store.missing(line.digest for line in lines if line.link is None)

    def lay_out(self, wanted: Manifest, store: Store) -> list[str]:
        """Make the tree what the manifest says.

        :return: the digests of contents that turned out to be missing; empty once the tree is there
        :raises TreeError: an entry is unsafe, or the system refuses
        """
        survey = self._look()
        if survey is None or self.manifest is None:
            return self._build(wanted, store)
        delta = wanted.since(self.manifest)
        changed = {line.path: line for line in delta.lines()}
        again = (wanted.place(path) for path in survey.harmed if path not in changed)
        writing = [*changed.values(), *(wanted.line(place) for place in again if place is not None)]
        judge(wanted, writing, whole=wanted.paths != self.manifest.paths)
        contents = dict.fromkeys(line.digest for line in writing if line.link is None)
        if lacking := [digest for digest in contents if not store.holds(digest)]:
            return lacking
        same = wanted.paths == self.manifest.paths
        self._forget()
        try:
            _clear(self.root, {*delta.removed, *survey.harmed, *changed}, wanted, prune=not same)
            _write(self.root, writing, store)
        except (OSError, TreeError):
            return self._build(wanted, store)
        self._keep(wanted, survey if same else None, [line.path for line in writing])
        return []

    def _look(self) -> _Survey | None:
        """Look at what was laid out before; ``None`` where that is nothing, or not to be used."""
        if self.manifest is None or self._record is None:
            return None
        try:
            return _Survey(self.root, self.manifest, self._record)
        except (OSError, OddPlaceError):
            return None

    def _forget(self) -> None:
        self.manifest = self._record = None
        self._file.unlink(missing_ok=True)

    def _build(self, wanted: Manifest, store: Store) -> list[str]:
        """Lay out the whole tree in the place of whatever is there."""
        lacking = store.missing(line.digest for line in wanted if line.link is None)
        if lacking:
            return lacking
        self._forget()
        self._discard()
        try:
            store.build(self.root, map(_entry, wanted))
        except TreeError:
            lacking = store.missing(line.digest for line in wanted if line.link is None)
            if lacking:  # one was damaged
                return lacking
            raise
        self._keep(wanted, None, [])
        return []

    def _discard(self) -> None:
        """Remove the tree; what can't be removed is moved out of the way."""
        shutil.rmtree(self._top, ignore_errors=True)
        if os.path.lexists(self._top):
            aside = tempfile.mkdtemp(prefix="given-up-", dir=self._folder)
            try:
                self._top.rename(Path(aside, "tree"))
            except OSError as error:
                raise TreeError(f"can't clear {str(self.root)!r}: {error}") from error

    def _keep(self, wanted: Manifest, survey: _Survey | None, written: list[str]) -> None:
        """Write down what lies there now."""
        root = str(self.root)
        at = stamps.now(str(self._folder))
        if survey is None:
            folders = sorted({"", *_folders(wanted.paths)})
            files, around = stamps.survey(root, wanted.paths), stamps.survey(root, folders)
        else:
            files, folders = survey.files, survey.folders
            around = stamps.survey(root, folders)
            fresh = stamps.survey(root, written)
            for number, path in enumerate(written):
                place = wanted.place(path)
                assert place is not None
                first = place * stamps.WIDTH
                files[first : first + stamps.WIDTH] = array("q", stamps.pick(fresh, number))
        record = _Record(
            _VERSION, _boot(), at, wanted.encoded, files.tobytes(), folders, around.tobytes()
        )
        self.manifest, self._record = wanted, record
        with contextlib.suppress(OSError):
            scratch = self._folder / "record-new"
            scratch.write_bytes(msgspec.msgpack.encode(record))
            scratch.replace(self._file)


class _Survey:
    """A look at a tree that was laid out before.

    Removes what doesn't belong there.

    :ivar files: the stamps of its files as they are. :ivar folders: its folders.
    :ivar harmed: the files that are not what was laid out.
    :raises OddPlaceError: where a folder of it is none any more
    """

    def __init__(self, root: Path, manifest: Manifest, record: _Record) -> None:
        self._root = root
        self._manifest = manifest
        self._record = record
        self.folders = record.folders
        self._tidy()
        self.files = stamps.survey(str(root), manifest.paths)
        self.harmed = self._harmed()

    def _harmed(self) -> set[str]:
        before: array[int] = array("q")
        before.frombytes(self._record.stamps)
        if len(before) != len(self.files):
            raise OddPlaceError
        different = set(stamps.differing(self.files, before))
        times = self.files[stamps.CTIME :: stamps.WIDTH]
        if self._record.boot != _boot():  # what a crash has cost, no stamp tells
            fresh = set(range(len(times)))
        else:
            fresh = set(stamps.fresh(times, self._record.at))
        paths = self._manifest.paths
        spoilt = {place for place in fresh - different if not self._is_as_laid_out(place)}
        return {paths[place] for place in different | spoilt}

    def _is_as_laid_out(self, place: int) -> bool:
        line = self._manifest.line(place)
        here = self._root / line.path
        try:
            status = here.lstat()
            if line.link is not None:
                return stat.S_ISLNK(status.st_mode) and os.readlink(here) == line.link  # noqa: PTH115
            if not stat.S_ISREG(status.st_mode) or status.st_size != line.size:
                return False
            executable = bool(status.st_mode & stat.S_IXUSR) == bool(line.mode & _EXECUTABLE)
            with here.open("rb", buffering=0) as file:
                return executable and hashlib.file_digest(file, "sha256").hexdigest() == line.digest
        except OSError:
            return False

    def _tidy(self) -> None:
        """Remove, from folders in which a name has come or gone, what was not laid out there."""
        now = stamps.survey(str(self._root), self.folders)
        before: array[int] = array("q")
        before.frombytes(self._record.folder_stamps)
        if len(before) != len(now):
            raise OddPlaceError
        if not all(stat.S_ISDIR(max(mode, 0)) for mode in now[stamps.MODE :: stamps.WIDTH]):
            raise OddPlaceError
        times = now[stamps.CTIME :: stamps.WIDTH]
        places = set(stamps.differing(now, before))
        places.update(stamps.fresh(times, self._record.at))
        if places:
            known = {*self._manifest.paths, *self.folders}
            for place in places:
                _remove_strangers(self._root, self.folders[place], known)


def take_place(home: Path, project: str, name: str) -> Place:
    """Take a place of a project that nobody has, or make one.

    :param home: the folder of all places. :param project: names the project.
    :param name: of the tree's own folder, with those above it that the session works in.
    :raises OSError: where there is none
    """
    if {"", ".", ".."} & set(name.split("/")) or "\0" in name:
        name = "root"
    key = hashlib.sha256(f"{project}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    for number in range(_MOST_PLACES):
        folder = home / f"{key}-{number}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / "lock").stat().st_ino == os.fstat(lock).st_ino:  # else: swept just now
                os.utime(folder / "lock")
                return Place(folder, name, lock)
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError:
            os.close(lock)
            raise
        os.close(lock)
    raise OSError(f"all {_MOST_PLACES} places in {str(home)!r} are taken")


def judge(wanted: Manifest, lines: list[Line], *, whole: bool) -> None:
    """Refuse entries that would not keep to the tree.

    :param whole: whether the paths are others than those that were judged before
    :raises TreeError: where one does not
    """
    Store.judge(map(_entry, wanted if whole else lines))


def _entry(line: Line) -> TreeEntry:
    return TreeEntry(line.path, line.digest, line.mode, line.link)


def _clear(root: Path, paths: set[str], wanted: Manifest, *, prune: bool) -> None:
    """Take away files that go or are written anew, and what was compiled of them.

    :param prune: whether to take away folders as well that hold nothing any more.
    """
    folders: set[str] = set()
    for path in paths:
        here = root / path
        if here.is_dir() and not here.is_symlink():
            shutil.rmtree(here)
        else:
            with contextlib.suppress(NotADirectoryError):
                here.unlink(missing_ok=True)
        _drop_bytecode(here)
        folders.update(_folders([path]))
    if prune:
        needed = {"", *_folders(wanted.paths)}
        for folder in sorted(folders - needed):
            if os.path.lexists(root / folder):
                shutil.rmtree(root / folder)


def _drop_bytecode(source: Path) -> None:
    if source.suffix == ".py":
        stem = source.stem
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(source.parent / _BYTECODE):
                if entry.name.startswith(f"{stem}."):
                    Path(entry.path).unlink()


def _write(root: Path, lines: list[Line], store: Store) -> None:
    for folder in sorted({(root / line.path).parent for line in lines}):
        folder.mkdir(parents=True, exist_ok=True)
    for line in lines:
        if line.link is None:
            store.copy(_entry(line), root / line.path)
    for line in lines:  # last, so that no file can be written through one
        if line.link is not None:
            (root / line.path).symlink_to(line.link)


def _remove_strangers(root: Path, folder: str, known: set[str]) -> None:
    for entry in list(os.scandir(root / folder)):
        path = f"{folder}/{entry.name}" if folder else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if path in known:
            continue
        if not is_folder:
            Path(entry.path).unlink()
        elif entry.name == _BYTECODE:
            _keep_bytecode_only(entry.path)
        else:
            shutil.rmtree(entry.path)


def _keep_bytecode_only(folder: str) -> None:
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif not entry.name.endswith(".pyc") or not entry.is_file(follow_symlinks=False):
            Path(entry.path).unlink()


def _folders(paths: list[str]) -> Iterator[str]:
    """Give every folder above any of the paths, the root left out; some come more than once."""
    last = ""
    for path in paths:
        folder = path.rpartition("/")[0]
        if folder == last:
            continue
        last = folder
        while folder:
            yield folder
            folder = folder.rpartition("/")[0]


def _boot() -> str:
    """Name the time since this host was started; empty where that is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
