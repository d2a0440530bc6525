"""Trees are built whole, inside their folder, from checked contents, or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_remotegpu.snapshot import Rules, take
from pytest_remotegpu.worker.tree import Store, TreeEntry, TreeError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="workers need POSIX")

Entry = tuple[str, str, int, str | None]


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def look(root: Path) -> dict[str, tuple[str, object, bool]]:
    """Describe everything below a folder: kind, content and, for files, the executable bit."""
    seen: dict[str, tuple[str, object, bool]] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            seen[name] = ("link", path.readlink().as_posix(), False)
        elif path.is_dir():
            seen[name] = ("folder", None, False)
        else:
            seen[name] = ("file", path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
    return seen


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Give a store that holds the content ``hello``."""
    store = Store(tmp_path / "store")
    store.put(sha(b"hello"), [b"hello"])
    return store


def file(path: str, content: bytes = b"hello", mode: int = 0o644) -> TreeEntry:
    return TreeEntry(path, sha(content), mode, None)


def link(path: str, text: str) -> TreeEntry:
    return TreeEntry(path, "", 0o644, text)


# --- the store


def test_contents_may_come_in_pieces(store: Store, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    store.put(sha(content), (content[at : at + 70_000] for at in range(0, len(content), 70_000)))
    store.put(sha(b""), [])
    store.build(tmp_path / "tree", [file("big", content), file("empty", b"")])
    assert (tmp_path / "tree" / "big").read_bytes() == content
    assert (tmp_path / "tree" / "empty").read_bytes() == b""


def test_missing_says_what_to_send_once_and_in_order(store: Store) -> None:
    one, two, here = sha(b"1"), sha(b"2"), sha(b"hello")
    assert store.missing([two, here, one, two]) == [two, one]
    store.put(two, [b"2"])
    assert store.missing([two, here, one]) == [one]


def test_another_store_on_the_same_folder_sees_the_same(store: Store, tmp_path: Path) -> None:
    assert store.missing([sha(b"hello")]) == []
    assert Store(tmp_path / "store").missing([sha(b"hello")]) == []


def test_a_content_that_is_not_what_it_claims_leaves_nothing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=f"announced as '{sha(b'a')}' arrived as '{sha(b'b')}'"):
        store.put(sha(b"a"), [b"b"])
    assert store.missing([sha(b"a"), sha(b"b")]) == [sha(b"a"), sha(b"b")]
    assert [path.name for path in (tmp_path / "store").rglob("*") if path.is_file()] == [
        sha(b"hello")
    ]


def test_a_sender_that_breaks_off_leaves_nothing(store: Store, tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"hel"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        store.put(sha(b"help"), chunks())
    assert len([path for path in (tmp_path / "store").rglob("*") if path.is_file()]) == 1


def test_contents_can_be_pushed_side_by_side(store: Store) -> None:
    first, second = store.receive(sha(b"1234")), store.receive(sha(b"5678"))
    for incoming, chunk in [(first, b"12"), (second, b"56"), (first, b"34"), (second, b"78")]:
        incoming.write(chunk)
    first.finish()
    first.discard()
    second.discard()
    second.discard()
    assert store.missing([sha(b"1234"), sha(b"5678")]) == [sha(b"5678")]


@pytest.mark.parametrize(
    "digest", ["", "..", "../" * 21 + "x", "A" * 64, "0" * 63, "0" * 64 + "\n"]
)
def test_digests_are_digests(store: Store, digest: str) -> None:
    with pytest.raises(TreeError, match="is no digest"):
        store.put(digest, [b"x"])
    with pytest.raises(TreeError, match="is no digest"):
        store.missing([digest])
    with pytest.raises(TreeError, match="is no digest"):
        store.build(Path("never"), [TreeEntry("a", digest, 0o644, None)])


def test_contents_are_for_this_user_alone(store: Store, tmp_path: Path) -> None:
    store.build(tmp_path / "tree", [file("a")])
    for folder in (tmp_path / "store", tmp_path / "tree"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_full_disk_is_a_clear_error(store: Store) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(TreeError, match=f"can't store '{sha(b'x' * (1 << 17))}': File too"):
            store.put(sha(b"x" * (1 << 17)), [b"x" * (1 << 17)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.missing([sha(b"x" * (1 << 17))]) != []


# --- the tree


def test_files_links_and_the_executable_bit(store: Store, tmp_path: Path) -> None:
    store.build(
        tmp_path / "deep" / "tree",
        [
            file("a/b/run", mode=0o755),
            link("a/up", "../a/b/run"),
            link("here", "."),
            link("loop", "loop"),
            link("a/none", "b/none"),
            file("new\nline ü C:x", mode=0o600),
            ("plain/tuple", sha(b"hello"), 0o100, None),
        ],
    )
    assert look(tmp_path / "deep" / "tree") == {
        "a": ("folder", None, False),
        "a/b": ("folder", None, False),
        "a/b/run": ("file", b"hello", True),
        "a/up": ("link", "../a/b/run", False),
        "a/none": ("link", "b/none", False),
        "here": ("link", ".", False),
        "loop": ("link", "loop", False),
        "new\nline ü C:x": ("file", b"hello", False),
        "plain": ("folder", None, False),
        "plain/tuple": ("file", b"hello", True),
    }


def test_a_test_that_edits_its_files_does_not_spoil_the_store(store: Store, tmp_path: Path) -> None:
    store.build(tmp_path / "one", [file("a")])
    (tmp_path / "one" / "a").write_bytes(b"spoilt")
    store.build(tmp_path / "two", [file("a")])
    assert (tmp_path / "two" / "a").read_bytes() == b"hello"


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/abs", "..", "../x", "a/../x", "a/./x", ".", "a//x", "a/"),
        *("\0", "a\0b", "C:/x", "c:", "\udc80", "a/\ud800"),
    ],
)
def test_unsafe_paths(store: Store, tmp_path: Path, path: str) -> None:
    for entry in (file(path), link(path, "x")):
        with pytest.raises(TreeError, match="is no plain path inside the tree"):
            store.build(tmp_path / "tree", [file("ok"), entry])
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("l", "/etc"),
        ("l", ".."),
        ("l", "../x"),
        ("d/l", "../../x"),
        ("d/l", "./.././../x"),
        ("d/l", "x/../../../y"),
        ("l", "d/../x"),
        ("l", ""),
        ("l", "a\0b"),
        ("l", "\udcff"),
    ],
)
def test_unsafe_links(store: Store, tmp_path: Path, path: str, text: str) -> None:
    with pytest.raises(TreeError) as caught:
        store.build(tmp_path / "tree", [link(path, text)])
    assert str(caught.value) == f"{path!r} is a link to {text!r}, which may leave the tree"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([file("a"), file("b"), file("a")], "'a' comes twice"),
        ([link("a", "b"), file("a")], "'a' comes twice"),
        ([link("d", "."), file("d/x")], "'d' is to be a file or link, and a folder"),
        ([file("d/e/x"), file("d")], "'d' is to be a file or link, and a folder"),
    ],
)
def test_entries_that_contradict_each_other(
    store: Store, tmp_path: Path, entries: list[TreeEntry], message: str
) -> None:
    with pytest.raises(TreeError, match=message):
        store.build(tmp_path / "tree", entries)


def test_missing_contents_are_counted_before_anything_is_written(
    store: Store, tmp_path: Path
) -> None:
    entries = [file(name, name.encode()) for name in "abcde"]
    with pytest.raises(
        TreeError, match="contents of 5 files never arrived, of 'a', 'b', 'c' first"
    ):
        store.build(tmp_path / "tree", [file("ok"), *entries])
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_damaged_content_is_noticed_and_asked_for_again(store: Store, tmp_path: Path) -> None:
    (blob,) = (path for path in (tmp_path / "store").rglob("*") if path.is_file())
    blob.write_bytes(b"jello")
    with pytest.raises(TreeError, match="stored content of 'x/a' is damaged; send it again"):
        store.build(tmp_path / "tree", [file("x/a")])
    assert store.missing([sha(b"hello")]) == [sha(b"hello")]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_the_system_refuses_is_a_clear_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=r"can't build '.*tree': .*name too long"):
        store.build(tmp_path / "tree", [file("x" * 300)])
    (tmp_path / "file").touch()
    with pytest.raises(TreeError, match="can't build"):
        store.build(tmp_path / "file" / "tree", [file("a")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "store"]


def test_a_destination_in_use_stays_as_it_is(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    store.build(tmp_path / "empty", [file("a")])
    with pytest.raises(TreeError, match=r"can't build '.*empty'"):
        store.build(tmp_path / "empty", [file("b")])
    (tmp_path / "alias").symlink_to("store")
    with pytest.raises(TreeError, match=r"can't build '.*alias'"):
        store.build(tmp_path / "alias", [file("b")])
    assert list(look(tmp_path / "empty")) == ["a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alias", "empty", "store"]


# --- for any list of entries

PIECES = st.sampled_from(["a", "b", "c", "..", ".", "", "~", "C:", "a\0", "\udc80"])
GOOD_PIECES = st.sampled_from(["a", "b", "c"])
GOOD_TEXTS = st.lists(GOOD_PIECES, min_size=1, max_size=4).map("/".join)
TEXTS = st.lists(PIECES, min_size=1, max_size=5).map("/".join) | GOOD_TEXTS
LINK_TEXTS = st.lists(st.sampled_from(["..", "a", "b", "c"]), min_size=1, max_size=5).map("/".join)
ENTRIES = st.lists(
    st.builds(file, TEXTS)
    | st.builds(file, GOOD_TEXTS)
    | st.builds(link, GOOD_TEXTS, LINK_TEXTS)
    | st.builds(link, TEXTS, TEXTS),
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(entries=ENTRIES)
@example(entries=[link("a/b/l", "../.."), link("x", "a/b/l/../../b")])
@example(entries=[link("a", "b"), link("b", "a"), link("c", "a/x")])
def test_a_tree_keeps_to_itself_or_is_not_built(entries: list[TreeEntry]) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name).resolve()
        store = Store(top / "store")
        store.put(sha(b"hello"), [b"hello"])
        root = top / "deep" / "tree"
        before = look(top)
        try:
            store.build(root, entries)
        except TreeError:
            assert {path: it for path, it in look(top).items() if path != "deep"} == before
            return  # and "deep", where it exists, is empty
        around = {path: it for path, it in look(top).items() if not path.startswith("deep")}
        assert around == before
        assert [path.name for path in (top / "deep").iterdir()] == ["tree"]
        for entry in entries:
            assert os.path.lexists(root / entry.path)
            assert Path(os.path.realpath(root / entry.path)).is_relative_to(root)


CONTENTS = st.binary(max_size=40)
MODES = st.sampled_from([0o755, 0o644])
NAMES = st.sampled_from(["a", "b", "ü", "x y", "new\nline", "-", "*", "long" * 50])
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.tuples(CONTENTS, MODES), max_size=6
)
LINKS = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join),
    st.lists(NAMES | st.just(".."), min_size=1, max_size=4).map("/".join),
    max_size=4,
)


@settings(max_examples=30, deadline=None)
@given(files=TREES, texts=LINKS)
def test_what_is_taken_here_is_built_there(
    files: dict[str, tuple[bytes, int]], texts: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        here, there = Path(name, "root", "here"), Path(name, "there")
        here.mkdir(parents=True)
        for path, (content, mode) in files.items():
            if _has_room(here, path):
                (here / path).write_bytes(content)
                (here / path).chmod(mode)
        for path, text in texts.items():
            if _has_room(here, path):
                (here / path).symlink_to(text)
        snapshot = take(here, Rules(include=(), exclude=(), max_bytes=1 << 20))
        store = Store(Path(name, "store"))
        wanted = store.missing(entry.digest for entry in snapshot.entries if entry.link is None)
        for digest, content in snapshot.blobs(wanted):
            store.put(digest, [content[:7], content[7:]])
        store.build(there, [(one.path, one.digest, one.mode, one.link) for one in snapshot.entries])
        _compare(here, there, dict(snapshot.left_out))


def _has_room(root: Path, path: str) -> bool:
    """Make the path's folders, unless something else is in their place; whether it is free."""
    parents = [root / parent for parent in Path(path).parents]
    if any(os.path.lexists(one) and (one.is_symlink() or not one.is_dir()) for one in parents):
        return False
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    return not os.path.lexists(root / path)


def _compare(here: Path, there: Path, left_out: dict[str, str]) -> None:
    """Both hold the same, but for links that lead out; links may be spelt another way."""
    files, built = look(here), look(there)
    for path in left_out:
        assert files.pop(path)[0] == "link"
        assert not Path(os.path.realpath(here / path)).is_relative_to(here)
    wanted = {path for path, (kind, _, _) in files.items() if kind != "folder"}
    used = {parent.as_posix() for path in wanted for parent in Path(path).parents}
    assert built.keys() == wanted | {path for path in files if path in used}
    for path in wanted:
        if files[path][0] == "file":
            assert built[path] == files[path]
        elif os.path.lexists(target := os.path.realpath(here / path)):
            inside = Path(target).relative_to(here)
            assert os.path.realpath(there / path) == os.path.realpath(there / inside)
