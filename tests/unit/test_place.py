"""A tree that stays between sessions is what the list of files says, whatever was done to it."""

from __future__ import annotations

import errno
import hashlib
import os
import py_compile
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_remotegpu import stamps
from pytest_remotegpu.manifest import Line, Manifest
from pytest_remotegpu.protocol import events, frames, orders
from pytest_remotegpu.snapshot import Rules, take
from pytest_remotegpu.trees import announce, supply

if os.name == "nt":
    pytest.skip("workers need POSIX", allow_module_level=True)

import fcntl

from pytest_remotegpu.worker import ageing, place
from pytest_remotegpu.worker.source import Source
from pytest_remotegpu.worker.tree import Store, TreeError

RULES = Rules((), (), 2**30)
AFTER_A_TICK = 0.03


class Host:
    """A far side's disk, and a project here."""

    def __init__(self, folder: Path) -> None:
        self.here = folder / "here"
        self.home = folder / "home"
        self.scratch = folder / "scratch"
        self.memory = folder / "memory"
        self.asked: list[str] = []
        for name, text in {"a.py": "A = 1\n", "pkg/b.py": "B = 1\n", "data/x.txt": "x"}.items():
            self.write(name, text)
        (self.here / "run.sh").write_text("#!/bin/sh\n", encoding="utf-8")
        (self.here / "run.sh").chmod(0o755)
        (self.here / "link").symlink_to("pkg/b.py")

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def open(self) -> Source:
        """Begin an order as a worker does, and give it what it lacks."""
        taken = take(self.here, RULES, self.memory)
        source = Source(self.home, str(self.scratch), announce(taken, "project", "name"))
        asked: list[events.Event] = []
        self.asked = []
        source.go_on(asked.append)
        while asked:
            need = asked.pop(0)
            assert isinstance(need, events.Need)
            self.asked += need.digests
            sent: list[bytes] = []
            supply(taken, need.digests, Sender(sent), print)
            for body in frames.Frames(frames.MAX_OUTBOUND).feed(b"".join(sent)):
                source.go_on(asked.append, frames.read_message(body))
        taken.remember()
        assert source.built
        return source

    def run(self, harm: Callable[[Path], object] | None = None) -> Path:
        """Have the tree laid out, do something in it, and let it go."""
        source = self.open()
        try:
            self.compare(source.root)
            if harm is not None:
                harm(source.root)
        finally:
            source.close()
        return source.root

    def compare(self, root: Path) -> None:
        """Both sides hold the same, bytecode left out."""
        assert look(root) == look(self.here)


class Sender:
    """Takes messages as a worker's channel does."""

    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    def __call__(self, *messages: object) -> None:
        self._sent += map(frames.encode_message, messages)


def look(root: Path) -> dict[str, object]:
    """Give what each path is, but for folders that only hold files, and bytecode."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file() and path.suffix != ".pyc":
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        elif path.is_dir() and path.name != "__pycache__" and not any(path.iterdir()):
            found[name] = "empty"
    return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give a host on which the project has been once."""
    host = Host(tmp_path)
    host.run()
    time.sleep(AFTER_A_TICK)
    return host


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- one tree, session after session


def test_only_what_is_new_travels(host: Host) -> None:
    host.run()
    assert host.asked == []
    host.write("a.py", "A = 2\n")
    host.run()
    assert host.asked == [sha(b"A = 2\n")]
    host.write("a.py", "A = 1\n")
    host.run()
    assert host.asked == []


def test_the_tree_is_the_same_folder_and_its_files_are_not_written_anew(host: Host) -> None:
    first = host.run()
    before = (first / "pkg/b.py").stat()
    host.write("a.py", "A = 2\n")
    assert host.run() == first
    after = (first / "pkg/b.py").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def same_size_and_time(root: Path) -> None:
    status = (root / "a.py").stat()
    (root / "a.py").write_text("A = 9\n", encoding="utf-8")
    os.utime(root / "a.py", ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced_by_another(root: Path) -> None:
    (root / "other").write_text("A = 9\n", encoding="utf-8")
    (root / "other").replace(root / "a.py")


def link_for_file(root: Path) -> None:
    (root / "a.py").unlink()
    (root / "a.py").symlink_to("/etc/passwd")


def folder_for_file(root: Path) -> None:
    (root / "a.py").unlink()
    (root / "a.py").mkdir()
    (root / "a.py/b").touch()


def link_for_folder(root: Path) -> None:
    shutil.rmtree(root / "pkg")
    (root / "outside").mkdir()
    (root / "outside/b.py").write_text("B = 1\n", encoding="utf-8")
    (root / "pkg").symlink_to("outside")


def link_elsewhere(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("a.py")


HARM: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _root: None,
    "same size and time": same_size_and_time,
    "another file": replaced_by_another,
    "link for file": link_for_file,
    "folder for file": folder_for_file,
    "link for folder": link_for_folder,
    "file gone": lambda root: (root / "a.py").unlink(),
    "folder gone": lambda root: shutil.rmtree(root / "pkg"),
    "mode": lambda root: (root / "run.sh").chmod(0o644),
    "no rights": lambda root: (root / "pkg").chmod(0),
    "new file": lambda root: (root / "pkg/out.txt").touch(),
    "new folder": lambda root: (root / "out/deep").mkdir(parents=True),
    "new link": lambda root: (root / "out").symlink_to("pkg"),
    "pipe": lambda root: os.mkfifo(root / "pipe"),
    "link elsewhere": link_elsewhere,
    "all gone": shutil.rmtree,
}


@pytest.mark.parametrize("edited", [False, True], ids=["unchanged", "edited"])
@pytest.mark.parametrize("harm", HARM.values(), ids=HARM.keys())
def test_what_tests_do_to_the_tree_is_undone(
    host: Host, harm: Callable[[Path], None], *, edited: bool
) -> None:
    host.run(harm)
    if edited:
        host.write("pkg/b.py", "B = 2\n")
        host.write("new/c.py", "")
    host.run()
    host.run(harm)
    host.run()


def test_harm_done_at_once_is_seen(tmp_path: Path) -> None:
    """Within one tick of the clock nothing but the content tells."""
    host = Host(tmp_path)
    for _ in range(5):
        host.run(same_size_and_time)


def test_a_write_to_the_tree_does_not_reach_the_store(host: Host) -> None:
    host.run(lambda root: [p.write_text("spoilt") for p in root.rglob("*.py")])
    for path in (host.home / "store").rglob("*"):
        if path.is_file() and len(path.name) == 64:
            assert sha(path.read_bytes()) == path.name


def test_bytecode_stays_with_its_source_and_goes_with_it(host: Host) -> None:
    def compile_all(root: Path) -> None:
        for path in (root / "a.py", root / "pkg/b.py"):
            py_compile.compile(str(path))
        (root / "__pycache__/stray").touch()

    host.run(compile_all)
    host.write("a.py", "A = 3\n")
    root = host.run()
    assert [path.name.split(".")[0] for path in root.rglob("*.pyc")] == ["b"]
    assert not (root / "__pycache__/stray").exists()
    host.run(lambda root: (root / "pkg/b.py").write_text("B = 9\n", encoding="utf-8"))
    assert list(host.run().rglob("*.pyc")) == []


def test_another_branch_and_back(host: Host) -> None:
    """Files become folders, and folders files."""
    shutil.rmtree(host.here / "pkg")
    (host.here / "link").unlink()
    (host.here / "data/x.txt").unlink()
    host.write("pkg", "no folder now")
    host.write("data/x.txt/inner", "no file now")
    host.run()
    (host.here / "pkg").unlink()
    shutil.rmtree(host.here / "data/x.txt")
    host.write("pkg/b.py", "B = 1\n")
    host.write("data/x.txt", "x")
    (host.here / "link").symlink_to("pkg/b.py")
    host.run()
    assert host.asked == []


def test_sessions_at_the_same_time_have_trees_of_their_own(host: Host) -> None:
    one, two = host.open(), host.open()
    assert one.root != two.root
    assert host.asked == []
    host.compare(one.root)
    host.compare(two.root)
    one.close()
    two.close()
    assert host.run() == one.root


def test_a_tree_that_was_cut_short_is_given_up(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    host.write("a.py", "A = 2\n")
    host.write("pkg/b.py", "B = 2\n")
    with monkeypatch.context() as patch:
        patch.setattr(place, "_write", stop)
        with pytest.raises(KeyboardInterrupt):
            host.run()
    for lock in host.home.glob("trees/*/lock"):  # as the end of the process does
        lock.unlink()
    host.run()


def test_after_a_start_of_the_host_contents_are_read(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash may leave a file with its old name, size and times, and without its content."""
    root = host.run()
    path = root / "a.py"
    content, status = path.read_bytes(), path.stat()
    path.write_bytes(b"\0" * len(content))
    (record,) = host.home.glob("trees/*/record")
    found = place._RECORD.decode(record.read_bytes())  # noqa: SLF001
    index = Manifest.decode(found.manifest).place("a.py")
    assert index is not None
    harmed = bytearray(found.stamps)
    now = stamps.survey(str(root), ["a.py"]).tobytes()
    harmed[index * len(now) : (index + 1) * len(now)] = now
    found.stamps, found.at = bytes(harmed), path.stat().st_ctime_ns + 10**10
    record.write_bytes(msgspec.msgpack.encode(found))
    monkeypatch.setattr(place, "_boot", lambda: "another start")
    assert status.st_size == path.stat().st_size
    host.run()


# --- contents


def test_a_damaged_content_is_asked_for_again(host: Host) -> None:
    digest = sha(b"A = 1\n")
    stored = host.home / "store" / digest[:2] / digest
    stored.write_bytes(b"A = 0\n")
    host.run(lambda root: (root / "a.py").unlink())
    host.run()
    assert host.asked == [digest]
    assert stored.read_bytes() == b"A = 1\n"


def test_a_new_tree_notices_a_damaged_content_too(host: Host) -> None:
    digest = sha(b"A = 1\n")
    (host.home / "store" / digest[:2] / digest).write_bytes(b"A = 0\n")
    shutil.rmtree(host.home / "trees")
    host.run()
    assert host.asked == [digest]


def test_an_empty_store_is_filled_again(host: Host) -> None:
    shutil.rmtree(host.home / "store")
    host.run()
    assert host.asked == []  # all is in the tree
    host.run(lambda root: (root / "a.py").unlink())
    host.run()
    assert host.asked == [sha(b"A = 1\n")]


def test_a_list_that_the_far_side_lacks_is_asked_for(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for number in range(400):
        host.write(f"many/file-{number}.txt", str(number))
    host.run()
    host.write("a.py", "A = 2\n")
    host.run()
    assert host.asked == [sha(b"A = 2\n")]  # by the difference alone
    shutil.rmtree(host.home)
    host.write("a.py", "A = 3\n")
    host.run()
    assert len(host.asked) > 400


def test_large_contents_travel_in_pieces(host: Host) -> None:
    host.write("text", "many words " * 900_000)
    (host.here / "noise").write_bytes(os.urandom(9_000_000))
    (host.here / "empty").touch()
    host.run()
    assert len(host.asked) == 3


def test_a_file_that_changed_is_left_out(host: Host) -> None:
    host.write("a.py", "A = 2\n")
    taken = take(host.here, RULES, host.memory)
    host.write("a.py", "A = 3\n")
    source = Source(host.home, str(host.scratch), announce(taken, "project", "name"))
    asked: list[events.Event] = []
    source.go_on(asked.append)
    (need,) = asked
    assert isinstance(need, events.Need)
    sent: list[bytes] = []
    notes: list[str] = []
    supply(taken, need.digests, Sender(sent), notes.append)
    for body in frames.Frames(frames.MAX_OUTBOUND).feed(b"".join(sent)):
        assert source.go_on(asked.append, frames.read_message(body))
    assert not (source.root / "a.py").exists()
    assert (source.root / "pkg/b.py").exists()
    assert "'a.py' changed after the snapshot was taken" in notes[0]
    source.close()
    host.run()


def whole(*lines: Line) -> orders.Tree:
    found = Manifest.of(lines)
    return orders.Tree(
        digest=found.digest, manifest=zlib.compress(found.encoded), unfolded=len(found.encoded),
        project="p", name="n",
    )  # fmt: skip


ONE = Line("a", sha(b"one"), 3, 0o644, None)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (orders.Pack([sha(b"two")], [3], zlib.compress(b"two")), "is no part of the tree"),
        (orders.Pack([sha(b"one")], [2**29], zlib.compress(b"one")), "of 3 bytes came with"),
        (orders.Pack([sha(b"one")], [3], zlib.compress(bytes(2**24))), "announced with 3 bytes"),
        (orders.Pack([sha(b"one")], [3], zlib.compress(b"on")), "announced with 3 bytes"),
        (orders.Pack([sha(b"one")], [3], b"no zlib"), "came damaged"),
        (orders.Pack([sha(b"one")], [3], zlib.compress(b"two")), "arrived as"),
        (orders.Pack([sha(b"one")], [-1], zlib.compress(b"")), "bytes came at once"),
        (orders.Pack([sha(b"one")], [3, 3], zlib.compress(b"one")), "within another"),
        (orders.Blob(sha(b"one"), zlib.compress(bytes(2**27)), unfolded=2**27), "came at once"),
        (orders.Blob(sha(b"one"), b"a bit more than was said"), "of 3 bytes came with"),
        (orders.Blob(sha(b"one"), b"two"), "arrived as"),
        (orders.Blob("../../x", b"two"), "is no part of the tree"),
    ],
)
def test_contents_that_are_not_what_they_claim(
    tmp_path: Path, message: orders.Pack | orders.Blob, why: str
) -> None:
    source = Source(tmp_path / "home", str(tmp_path), whole(ONE))
    asked: list[events.Event] = []
    assert not source.go_on(asked.append)
    with pytest.raises(TreeError, match=why):
        source.go_on(asked.append, message)


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "a//b", ".", ""])
def test_a_tree_keeps_to_its_folder(tmp_path: Path, path: str) -> None:
    source = Source(tmp_path / "home", str(tmp_path), whole(ONE._replace(path=path)))
    asked: list[events.Event] = []
    source.go_on(asked.append)
    with pytest.raises(TreeError, match="is no plain path"):
        source.go_on(asked.append, orders.Blob(sha(b"one"), b"one"))


@pytest.mark.parametrize("name", ["..", ".", "", "a/../b", "/etc", "a//b"])
def test_the_name_of_the_folder_is_a_name(tmp_path: Path, name: str) -> None:
    tree = whole(ONE)
    tree = orders.Tree(
        digest=tree.digest, manifest=tree.manifest, unfolded=tree.unfolded, project="p", name=name
    )
    source = Source(tmp_path / "home", str(tmp_path), tree)
    asked: list[events.Event] = []
    source.go_on(asked.append)
    assert source.go_on(asked.append, orders.Blob(sha(b"one"), b"one"))
    assert source.root.is_relative_to(tmp_path / "home" / "trees")
    assert source.root.name == "root"


# --- the folder on the far side


def test_the_folders_are_this_user_s_alone(host: Host) -> None:
    for name in ("store", "trees"):
        assert (host.home / name).stat().st_mode & 0o777 == 0o700
    (host.home / "store").chmod(0o777)
    host.run()
    assert (host.home / "store").stat().st_mode & 0o777 == 0o700


def test_without_a_folder_to_keep_things_in_the_scratch_one_serves(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.home.write_text("no folder", encoding="utf-8")
    assert host.run().is_relative_to(host.scratch)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_where_nothing_can_be_locked_the_scratch_folder_serves(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def refuse(file: int, how: int) -> None:
        if host.home.resolve() in Path(f"/proc/self/fd/{file}").resolve().parents:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert host.run().is_relative_to(host.scratch)


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    contents = [bytes([number]) * 5000 for number in range(8)]
    for age, content in enumerate(contents):
        store.put_small(sha(content), content)
        os.utime(tmp_path / "store" / sha(content)[:2] / sha(content), (age, age))
    store.get(sha(contents[0]))  # is the youngest now
    half = tmp_path / "store" / "ab"
    half.mkdir(exist_ok=True)
    (half / ".incoming-1-1").write_bytes(b"half")
    os.utime(half / ".incoming-1-1", (1, 1))
    ageing.limit_store(tmp_path / "store", 1, limit=10**9)
    assert store.missing(map(sha, contents)) == []
    ageing.limit_store(tmp_path / "store", 40_000, limit=20_000)
    left = [content[0] for content in contents if not store.missing([sha(content)])]
    assert left == [0, 6, 7]
    assert not (half / ".incoming-1-1").exists()


def test_a_full_disk_is_cleared_of_what_is_not_needed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = sha(b"A = 1\n")
    host.write("a.py", "A = 2\n")
    real = Store.put_small
    stored = host.home / "store" / old[:2] / old

    def full(self: Store, digest: str, content: bytes) -> None:
        if stored.exists():
            raise TreeError(f"can't store {digest!r}: {os.strerror(errno.ENOSPC)}")
        real(self, digest, content)

    monkeypatch.setattr(Store, "put_small", full)
    host.run()
    assert not stored.exists()


def test_room_is_made_for_a_large_content(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write("a.py", "A = 2\n")
    old = sha(b"A = 1\n")
    host.write("large", "words " * 100_000)
    monkeypatch.setattr(ageing, "free", lambda _folder: 1000)
    host.run()
    assert not (host.home / "store" / old[:2] / old).exists()


def test_trees_that_nobody_uses_go(host: Host) -> None:
    kept = host.open()
    for number in range(4):
        fd = place.take_place(host.home / "trees", f"other {number}", "n")
        os.utime(host.home / "trees" / fd.root.parent.parent.name / "lock", (number, number))
        fd.close()
    ageing.limit_places(host.home / "trees", most=2)
    left = {path.name for path in (host.home / "trees").iterdir()}
    assert len(left) == 2
    assert kept.root.parent.parent.name in left
    kept.close()


# --- whatever happens


NAMES = st.sampled_from(["a.py", "pkg/b.py", "pkg", "data/x.txt", "new/deep/f", "link", "run.sh"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "remove", "mode", "harm", "scribble", "run", "run", "evict"]),
        NAMES,
        st.sampled_from(["one", "two", "three"]),
    ),
    max_size=14,
)


def change(root: Path, kind: str, name: str, text: str) -> None:
    """Do something to a tree, whichever it is; what stands in the way is removed."""
    path = root / name
    for above in [*path.parents][::-1]:
        if above.is_relative_to(root) and above != root and (above.is_symlink() or above.is_file()):
            above.unlink()
    if kind == "mode":
        if path.is_file():
            path.chmod(path.stat().st_mode ^ 0o100)
    elif path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if kind in ("write", "harm"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def empty_folders(root: Path) -> Iterator[Path]:
    """Give the folders that hold nothing: they don't travel."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            yield path


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_the_far_tree_equals_the_near_one(steps: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        host = Host(Path(name))
        root = host.run()
        for kind, path, text in steps:
            if kind == "run":
                for folder in empty_folders(host.here):
                    folder.rmdir()
                host.run()
            elif kind == "evict":
                ageing.make_room(host.home / "store", needed=set())
            elif kind in ("harm", "scribble") and root.is_dir():
                change(root, "harm" if kind == "harm" else "remove", path, text)
            elif kind in ("write", "remove", "mode"):
                change(host.here, kind, path, text)
        for folder in empty_folders(host.here):
            folder.rmdir()
        host.run()
